"""All descriptions: every class of these modules that has a name."""

import databases
import documents
import languages
import servers

import tools

PROGRAMS = {each.name: each for module in (databases, servers, languages, documents, tools)
            for each in vars(module).values() if isinstance(each, type) and each.__dict__.get("name")}
