"""The examples packaging/docker/Dockerfile and Dockerfile.distroless, step by step in bare roots of the distribution: a builder of images
is not needed to see that their steps work and that their programs run on HAKMEM."""
import json
import pathlib
import re
import shlex
import shutil
import tempfile

from package_common import PACKAGING, SUITE, Failed, bare_root, inside


def steps(name):
    """[(instruction, its words)] of a Dockerfile."""
    text = (PACKAGING / "docker" / name).read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [tuple(line.split(None, 1)) for line in lines]


class Image:
    """A root, those of earlier stages, and what the steps have said of its processes. What $BASE names is a bare root too."""

    def __init__(self, files):
        self.root, self.stages, self.files, self.environment, self.command = None, {}, files, {}, None

    def step_arg(self, words):
        if words != "BASE":
            raise Failed(f"the Dockerfile has an argument that the test does not give: {words}")

    def step_from(self, words):
        image, _, stage = words.partition(" AS ")
        if image != "$BASE" and image.partition(":")[2] != f"{SUITE}-slim":
            raise Failed(f"the Dockerfile begins with {image}, and the packages are of {SUITE}")
        self.root, self.environment = bare_root(f"image-{stage or 'last'}"), {}
        self.stages[stage] = self.root

    def step_copy(self, words):
        *stage, pattern, target = words.split()
        if stage:
            found = [self.stages[stage[0].removeprefix("--from=")] / pattern.strip("/")]
        else:
            found = [path for path in self.files if path.match(pattern)]
        if not found:
            raise Failed(f"no file is {pattern}")
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


def test_one(name, files):
    """Takes every step, then runs the program."""
    image = Image(files)
    for instruction, words in steps(name):
        take = getattr(image, f"step_{instruction.lower()}", None)
        if take is None:
            raise Failed(f"the Dockerfile has a step that is not tested: {instruction}")
        take(words)
    said = image.run()
    if not said.startswith("on HAKMEM") or "hakmem" not in said:
        raise Failed(f"the Dockerfile's program did not run on HAKMEM:\n{said}")
    print(f"deb: {name}'s steps taken in a bare root; its program runs on HAKMEM")


def test(packages):
    with tempfile.TemporaryDirectory() as folder:
        app = pathlib.Path(folder) / "app"
        app.write_text("#!/bin/sh\nexec perl -e 'print qq(on HAKMEM\\n)'\n", encoding="utf-8")
        app.chmod(0o755)
        test_one("Dockerfile", packages)
        test_one("Dockerfile.distroless", [*packages, app])
