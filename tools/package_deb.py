"""Debian's packages, built twice: libhakmem0, libhakmem-region0, libhakmem-dev and hakmem-tools must come out with the same bytes."""
import email.utils
import filecmp
import shutil
import subprocess
import time

import package_image
from package_common import (
    OUT,
    PACKAGING,
    ROOT,
    Failed,
    bare_root,
    clock,
    epoch,
    fresh,
    inside,
    needs,
    project_files,
    run,
    stage,
    stamp,
    version,
)

PACKAGED = ("src", "include", "cmake", "starter", "CMakeLists.txt", "LICENSE", "docs/man", "packaging/tools")
FORMAT = "https://" + "www.debian.org/doc/packaging-manuals/copyright-format/1.0/"   # a name, never fetched
TOLERATED = (
    "initial-upload-closes-no-bugs",   # it is in no distribution yet
    "bogus-mail-host",                 # no address stands in the tree
    "bogus-mail-host-in-debian-changelog",
)


def changelog():
    """debian/changelog: this version, at the last commit's time."""
    when = email.utils.formatdate(int(epoch()), localtime=False).replace("-0000", "+0000")
    return (f"hakmem ({version()}) unstable; urgency=medium\n\n  * Version {version()}.\n\n"
            f" -- The HAKMEM developers <hakmem@localhost>  {when}\n")


def copyright_text():
    """debian/copyright, from LICENSE."""
    _title, _, rest = (ROOT / "LICENSE").read_text(encoding="utf-8").partition("\n\n")
    owner, _, text = rest.partition("\n\n")
    lines = "\n".join(" " + (line or ".") for line in text.strip().split("\n"))
    year = time.gmtime(int(epoch())).tm_year
    template = (PACKAGING / "debian" / "copyright").read_text(encoding="utf-8")
    template = template.replace("@FORMAT@", FORMAT)
    return template.replace("@COPYRIGHT@", owner.replace("Copyright (c)", f"Copyright: {year}")).replace("@LICENSE@", lines)


def build_once(name):
    """Builds in a folder of this name; the folder with what came out."""
    folder = fresh(OUT / "deb" / name)
    tree = folder / f"hakmem-{version()}"
    stage(tree, project_files(*PACKAGED))
    shutil.copytree(PACKAGING / "debian", tree / "debian")
    (tree / "debian" / "changelog").write_text(changelog(), encoding="utf-8")
    (tree / "debian" / "copyright").write_text(copyright_text(), encoding="utf-8")
    stamp(tree)
    run(["dpkg-buildpackage", "-us", "-uc", "-rfakeroot", "--no-check-builddeps"], cwd=tree, env=clock())
    return folder


def lint(folder):
    """Lintian's errors and warnings, but for those that only a distribution can mend."""
    changes = next(folder.glob("*.changes"))
    allow_root = ["--allow-root"]
    said = subprocess.run(["lintian", *allow_root, "--fail-on", "none", "--suppress-tags", ",".join(TOLERATED), str(changes)],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    found = [line for line in said.stdout.splitlines() if line[:2] in ("E:", "W:")]
    if found or said.returncode:
        raise Failed("lintian found:\n" + "\n".join(found or [said.stdout]))


def build(target):
    """The packages, after they came out twice the same and pleased lintian."""
    needs("dpkg-buildpackage", "dh", "cmake", "ninja", "fakeroot", "lintian")
    first, second = build_once("first"), build_once("second")
    made = sorted(path.name for path in first.iterdir() if path.suffix in (".deb", ".dsc", ".xz"))
    _, differ, failed = filecmp.cmpfiles(first, second, made, shallow=False)
    if differ or failed:
        raise Failed(f"not the same bytes when built twice: {', '.join(differ + failed)}")
    lint(first)
    return [shutil.copy2(first / name, target) and target / name for name in made]


def test(files):
    """Installs the packages in a bare root, and runs the package's own tests there, which autopkgtest would."""
    root = bare_root("deb", ("g++", "libc6-dev", "pkg-config"))
    (root / "packages").mkdir()
    for path in files:
        if path.suffix == ".deb" and "dbgsym" not in path.name:
            shutil.copy2(path, root / "packages")
    inside(root, "dpkg -i /packages/*.deb")
    shutil.copytree(PACKAGING / "debian" / "tests", root / "own-tests")
    for name in ("preload", "link"):
        inside(root, f"cd /tmp; /own-tests/{name}")
    if "hakmem" not in inside(root, "HAKMEM_STATS=1 hakmem run perl -e 1 2>&1"):
        raise Failed("perl did not run on HAKMEM")
    inside(root, "dpkg -P libhakmem-dev libhakmem-region0 hakmem-tools libhakmem0; ! test -e /usr/include/hakmem.h")
    print("deb: installed in a bare root, both tests passed there, removed without a rest")
    package_image.test(files)
