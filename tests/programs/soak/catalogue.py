"""All descriptions: every class of these modules that has a name."""

import databases
import languages
import servers

PROGRAMS = {each.name: each for module in (databases, servers, languages)
            for each in vars(module).values() if isinstance(each, type) and getattr(each, "name", "")}
