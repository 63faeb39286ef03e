"""Trees of the library for systems without one of the other packages: for musl and for glibc, on x86-64 and 64-bit Arm. Each is unpacked
at any place: bin, lib, include and share. Built twice, they must come out with the same bytes."""
import filecmp
import pathlib
import shutil
import sys

from package_common import (
    ENTER,
    OUT,
    PACKAGING,
    ROOT,
    Failed,
    bare_root,
    clock,
    fill_devices,
    fresh,
    needs,
    project_files,
    run,
    stage,
    stamp,
    tarball,
    version,
)

PACKAGED = ("src", "include", "cmake", "starter", "CMakeLists.txt")
MANUALS = ((PACKAGING / "tools" / "hakmem.1", "man1"), (ROOT / "docs/man/hakmem.7", "man7"), (ROOT / "docs/man/hakmem.h.3", "man3"))
GNU_COMPILERS = {"x86_64-linux-gnu": "gcc", "aarch64-linux-gnu": "aarch64-linux-gnu-gcc"}
MUSL = ("x86_64-linux-musl", "aarch64-linux-musl")
CONSUMERS = ROOT / "tests/package/consumer"


def systems():
    """Those for which there is a compiler."""
    yield from (name for name, compiler in GNU_COMPILERS.items() if shutil.which(compiler))
    yield from MUSL


def options(system):
    """What CMake is told of a system."""
    if "musl" in system:
        run([sys.executable, "-B", ROOT / "tools/cross.py", system])
        yield from (f"-DCMAKE_TOOLCHAIN_FILE={ROOT / 'cmake/cross.cmake'}", f"-DHAKMEM_TARGET={system}")
        yield "-DCMAKE_SHARED_LINKER_FLAGS=-Wl,--gc-sections,--strip-debug"   # else zig links the whole of its compiler's library
    elif system.startswith("aarch64"):
        yield f"-DCMAKE_TOOLCHAIN_FILE={ROOT / 'cmake/aarch64-linux-gnu.cmake'}"
    else:
        yield f"-DCMAKE_C_COMPILER={GNU_COMPILERS[system]}"


def build_once(system, name):
    """The tree of a system, from a source in a folder of this name."""
    folder = fresh(OUT / "tarball" / name / system)
    source, tree = folder / "source", folder / f"hakmem-{version()}-{system}"
    stage(source, project_files(*PACKAGED))
    run(["cmake", "-S", source, "-B", folder / "build", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_INSTALL_LIBDIR=lib",
         "-DHAKMEM_BUILD_TESTS=OFF", "-DHAKMEM_BUILD_BENCH=OFF", "-DHAKMEM_BUILD_DEMO=OFF",
         *options(system)], env={**clock(), "CFLAGS": f"-ffile-prefix-map={folder}=."})
    run(["cmake", "--build", folder / "build"], env=clock())
    run(["cmake", "--install", folder / "build", "--prefix", tree], env=clock())
    for manual, section in MANUALS:
        (tree / "share/man" / section).mkdir(parents=True)
        shutil.copy(manual, tree / "share/man" / section)
    shutil.copy(ROOT / "LICENSE", tree)
    stamp(tree)
    return tree


def build(target):
    """A tarball for each system, after it came out twice the same."""
    needs("cmake", "ninja")
    files = []
    for system in systems():
        packed = [tarball(tree, tree.parent / f"{tree.name}.tar.gz") for tree in (build_once(system, "first"), build_once(system, "second"))]
        if not filecmp.cmp(*packed, shallow=False):
            raise Failed(f"not the same bytes when built twice: {packed[0].name}")
        files.append(shutil.copy2(packed[0], target) and target / packed[0].name)
    return files


def unpack(files, system, place):
    run(["tar", "-C", place, "--strip-components=1", "-xf", next(path for path in files if path.name.endswith(f"-{system}.tar.gz"))])


def expect(what, said, wanted=f"hakmem {version()}"):
    if wanted not in said:
        raise Failed(f"{what}: {said}")


def consumers(system, tree):
    """Programs of a project that finds the unpacked tree."""
    built = fresh(OUT / "tarball-user")
    run(["cmake", "-S", CONSUMERS, "-B", built, f"-DCMAKE_PREFIX_PATH={tree}", "-DCMAKE_FIND_ROOT_PATH_MODE_PACKAGE=BOTH",
         f"-DWANTED_VERSION={version()}", *options(system)])
    run(["cmake", "--build", built])
    return [built / name for name in ("consumer_shared", "consumer_static", "region_shared", "region_static")]


def test_native(system, root, files):
    """In a root without a compiler: programs linked with the tree's libraries, and one that knows nothing of them."""
    (root / "opt").mkdir(exist_ok=True)
    unpack(files, system, root / "opt")
    for program in consumers(system, root / "opt"):
        shutil.copy2(program, root)
        expect(program.name, run([*ENTER, root, f"/{program.name}"], env={**clock(), "LD_LIBRARY_PATH": "/opt/lib"}))
    compiler = GNU_COMPILERS.get(system, ROOT / "out/cross" / system / "cc")
    run([compiler, *(["-dynamic"] if "musl" in system else []), ROOT / "tests/programs/hello.c", "-o", root / "plain"])
    expect("a program without the library", run([*ENTER, root, "/opt/bin/hakmem", "run", "--require", "-o", "stats=1", "/plain"]),
           "statistics of process")


def musl_root():
    """Nothing but musl."""
    loader = pathlib.Path("/lib/ld-musl-x86_64.so.1")
    if not loader.exists():
        raise Failed("musl is not installed; ./dev setup --packages installs it")
    root = fresh(OUT / "roots" / "tarball-musl")
    (root / "lib").mkdir()
    shutil.copy(loader, root / "lib")
    fill_devices(root)
    return root


def test_emulated(system, files):
    """A static program of 64-bit Arm, and the starter."""
    needs("qemu-aarch64")
    tree = fresh(OUT / "tarball-arm")
    unpack(files, system, tree)
    compiler = GNU_COMPILERS.get(system, ROOT / "out/cross" / system / "cc")
    run([compiler, "-static", CONSUMERS / "main.c", f"-I{tree / 'include'}", f"-L{tree / 'lib'}", "-lhakmem", "-o", tree / "user"])
    expect(system, run(["qemu-aarch64", tree / "user"]))
    expect(system, run(["qemu-aarch64", tree / "bin/hakmem", "--version"]))


def test(files):
    """Uses each where it was unpacked: a bare root, or the emulator."""
    for system in systems():
        if system.startswith("aarch64"):
            test_emulated(system, files)
        else:
            test_native(system, musl_root() if system in MUSL else bare_root("tarball"), files)
        print(f"tarball: {system}: programs ran on what was unpacked", flush=True)
