#!/usr/bin/env python3
# test: timeout=600 cost=60
"""git clones, repacks and checks repositories to the same objects.

One repository is made here, with thousands of commits, so that packing has work to do; the other has the
project's newest commits, where the sources are a git repository. git's many processes and threads all run on the library.
"""

import pathlib
import random

from support import check, main, need

COMMITS = 4000
NEWEST = 100   # commits of the project
FILES = 120
CONFIGURATION = """[user]
    name = Tester
    email = tester@example.org
[safe]
    directory = *
[gc]
    auto = 0
[pack]
    threads = 2
"""


def history():
    """A stream for git fast-import: each commit changes a few lines of one file among many."""
    chance = random.Random(1)
    files = {f"src/d{i % 9}/file{i}.txt": [f"line {k} of file {i}" for k in range(150)] for i in range(FILES)}
    names = list(files)
    for number in range(COMMITS):
        name = names[number] if number < FILES else chance.choice(names)
        lines = files[name]
        for _ in range(3):
            lines[chance.randrange(len(lines))] = f"change {chance.getrandbits(64):x} in {number}"
        if number % 10 == 0:
            lines.append(f"added in {number}")
        content, message = "\n".join(lines) + "\n", f"Commit {number}\n"
        yield (f"commit refs/heads/main\ncommitter Tester <tester@example.org> {1700000000 + 60 * number} +0000\n"
               f"data {len(message)}\n{message}\nM 100644 inline {name}\ndata {len(content)}\n{content}\n")
        if number % 500 == 499:
            yield f"reset refs/tags/v{number}\nfrom refs/heads/main\n\n"


class Git:
    """git on one allocator, with a configuration of the test's own."""

    def __init__(self, git, allocator, configuration):
        self.git, self.allocator = git, allocator
        self.extra = {"GIT_CONFIG_GLOBAL": str(configuration), "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"}

    def __call__(self, *arguments, cwd, input=None):
        return self.allocator.run([self.git, *arguments], cwd=cwd, extra=self.extra, input=input)


def clone_and_repack(git, source, directory):
    """Clone over git's transport, pack anew, check; return refs, objects and the files of the work tree."""
    git("clone", "--quiet", source.as_uri(), "copy", cwd=directory)
    copy = directory / "copy"
    git("gc", "--quiet", "--aggressive", "--prune=now", cwd=copy)
    git("fsck", "--full", "--strict", cwd=copy)
    check(git("status", "--porcelain", cwd=copy) == "", "the clone's files differ from its commit")
    objects = sorted(git("rev-list", "--all", "--objects", cwd=copy).splitlines())
    changes = git("log", "--stat", "--format=%H %s", "-n", "1000", cwd=copy)
    blame = git("blame", "-s", git("ls-files", cwd=copy).splitlines()[0], cwd=copy)
    return git("for-each-ref", cwd=copy), objects, changes, blame


def test(setup):
    git_path = need("git", "git")
    project = pathlib.Path(setup.arguments[0])
    configuration = setup.directory / "gitconfig"
    configuration.write_text(CONFIGURATION)
    snapshot = setup.directory / "snapshot.git"
    stream = "".join(history())

    def made(allocator, directory):
        git = Git(git_path, allocator, configuration)
        git("init", "--quiet", "--bare", "--initial-branch=main", "made.git", cwd=directory)
        git("fast-import", "--quiet", cwd=directory / "made.git", input=stream)
        return clone_and_repack(git, directory / "made.git", directory)

    def own(allocator, directory):
        return clone_and_repack(Git(git_path, allocator, configuration), snapshot, directory)

    setup.require_bindings([git_path, "init", "--quiet", "bound.git"], programs=["git"])
    setup.compare(made, refilled=50_000, calls=2_000_000)
    if (project / ".git").exists():
        # Of a copy, since commits may be made while the test runs; of the newest ones, lest each commit make it longer.
        system_git = Git(git_path, setup.system, configuration)
        system_git("clone", "--quiet", "--bare", "--depth", NEWEST, project.resolve().as_uri(), snapshot, cwd=setup.directory)
        setup.compare(own, refilled=1_000, calls=10_000)


main(test)
