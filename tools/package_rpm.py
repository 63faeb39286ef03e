"""The RPM packages hakmem-libs, hakmem-region, hakmem-devel and hakmem-tools."""
import re
import shutil

from package_common import (
    OUT,
    PACKAGING,
    Failed,
    bare_root,
    clock,
    fresh,
    inside,
    needs,
    project_files,
    run,
    stage,
    tarball,
    version,
)

PACKAGED = ("src", "include", "cmake", "starter", "CMakeLists.txt", "LICENSE", "docs/man", "packaging/tools")
WANTED = {"libs": ["libhakmem.so.0"], "region": ["libhakmem-region.so.0"], "devel": ["include/hakmem.h\n", "include/hakmem.hpp\n"],
          "tools": ["bin/hakmem\n"]}


def build(target):
    """The packages, each with the file that it is for."""
    needs("rpmbuild", "cmake", "ninja")
    top = fresh(OUT / "rpm")
    tree = top / f"hakmem-{version()}"
    stage(tree, project_files(*PACKAGED))
    (top / "SOURCES").mkdir()
    tarball(tree, top / "SOURCES" / f"hakmem-{version()}.tar.gz")
    run(["rpmbuild", "-bb", "--nodeps", "--define", f"_topdir {top}", "--define", f"hakmem_version {version()}",
         "--define", "hakmem_libdir /usr/lib64", "--define", "use_source_date_epoch_as_buildtime 1",
         "--define", "_buildhost localhost", PACKAGING / "rpm" / "hakmem.spec"], env=clock())
    made = sorted((top / "RPMS").rglob("*.rpm"))
    for part, files in WANTED.items():
        package = next((path for path in made if path.name.startswith(f"hakmem-{part}-")), None)
        listed = run(["rpm", "-qlp", package]) if package else ""
        missing = [file.strip() for file in files if file not in listed]
        if missing:
            raise Failed(f"rpmbuild made no hakmem-{part} with {missing[0]}")
    return [target / path.name for path in made if shutil.copy2(path, target)]


def test(files):
    """Installs them by rpm in a bare root and runs a program there. It is Debian's, since no other can be made here: that the
    packages' needs are met by an RPM distribution is read from what they say they need."""
    root = bare_root("rpm", ("rpm",))
    (root / "packages").mkdir()
    for path in files:
        shutil.copy2(path, root / "packages")
    needed = run(["rpm", "-qp", "--requires", next(path for path in files if "-libs-" in path.name)])
    strange = [line for line in needed.splitlines()
               if not re.match(r"(libc\.so\.6|ld-linux-|rpmlib\(|/sbin/ldconfig|rtld\()", line)]
    if strange:
        raise Failed(f"hakmem-libs needs more than the C library: {strange}")
    inside(root, "rpm -i --nodeps /packages/*.rpm; echo /usr/lib64 > /etc/ld.so.conf.d/lib64.conf; ldconfig")
    if "hakmem" not in inside(root, "HAKMEM_STATS=1 hakmem run perl -e 1 2>&1"):
        raise Failed("perl did not run on HAKMEM")
    inside(root, "rpm -e --nodeps hakmem-tools hakmem-devel hakmem-region hakmem-libs; ! test -e /usr/include/hakmem.h")
    print("rpm: installed in a bare root, perl ran on it, removed without a rest")
