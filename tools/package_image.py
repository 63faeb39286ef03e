"""The example packaging/docker/Dockerfile, step by step in a bare root of its distribution: a builder of images is not needed to see
that its steps work and that its program runs on HAKMEM."""
import json
import re
import shlex
import shutil

from package_common import PACKAGING, SUITE, Failed, bare_root, inside


def steps():
    """[(instruction, its words)] of the Dockerfile."""
    text = (PACKAGING / "docker" / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [tuple(line.split(None, 1)) for line in lines]


class Image:
    """A root, and what the steps have said of its processes."""

    def __init__(self, packages):
        self.root, self.packages, self.environment, self.command = None, packages, {}, None

    def step_from(self, words):
        if words.partition(":")[2] != f"{SUITE}-slim":
            raise Failed(f"the Dockerfile begins with {words}, and the packages are of {SUITE}")
        self.root = bare_root("image")

    def step_copy(self, words):
        pattern, target = words.split()
        found = [path for path in self.packages if path.match(pattern)]
        if not found:
            raise Failed(f"no package is {pattern}")
        for path in found:
            shutil.copy2(path, self.root / target.strip("/"))

    def step_run(self, words):
        self.shell(words)

    def step_env(self, words):
        self.environment.update(re.fullmatch(r"(\w+)=(.*)", word).groups() for word in shlex.split(words))

    def step_cmd(self, words):
        self.command = shlex.join(json.loads(words))

    def shell(self, command):
        """A command in the root; the variables are set there, since chroot itself is a program of this system."""
        exports = "".join(f"export {name}={shlex.quote(value)}; " for name, value in self.environment.items())
        return inside(self.root, exports + command)

    def run(self):
        """What the image's program prints, with the statistics."""
        return self.shell(f"export HAKMEM_STATS=1; {self.command} 2>&1")


def test(packages):
    """Takes every step, then runs the program."""
    image = Image(packages)
    for instruction, words in steps():
        take = getattr(image, f"step_{instruction.lower()}", None)
        if take is None:
            raise Failed(f"the Dockerfile has a step that is not tested: {instruction}")
        take(words)
    said = image.run()
    if not said.startswith("on HAKMEM") or "hakmem" not in said:
        raise Failed(f"the Dockerfile's program did not run on HAKMEM:\n{said}")
    print("deb: the Dockerfile's steps taken in a bare root; its program runs on HAKMEM")
