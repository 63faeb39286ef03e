"""Builds the library and the starter into the package `hakmem` with nothing but a C compiler; pyproject.toml says all else.

The files of the source stand beside this one in source/ (tools/package_wheel.py lays them there)."""

import os
import shlex
import subprocess
import sysconfig
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.dist import Distribution

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:
    from wheel.bdist_wheel import bdist_wheel

SOURCE = Path(__file__).resolve().parent / "source"
UNITS = [("src/unity.c", ""), ("src/unity_rare.c", "rare"), ("src/entry/cxx_linked.c", "beside"),
         ("src/os/keys.c", "beside")]


def flags():
    """{word: [flag]} of unit.flags."""
    found = {}
    for line in (SOURCE / "unit.flags").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            word, *rest = line.split()
            found.setdefault(word, []).extend(rest)
    return found


def compiles(compiler, flag):
    done = subprocess.run([*compiler, "-Werror", flag, "-x", "c", "-c", "-o", os.devnull, "-"],
                          input=b"int a;\n", capture_output=True, check=False)
    return done.returncode == 0


def links(compiler, *flags):
    done = subprocess.run([*compiler, "-shared", "-o", os.devnull, *flags, "-x", "c", "-"], input=b"", capture_output=True, check=False)
    return done.returncode == 0


def is_gnu_ld(compiler):
    said = subprocess.run([*compiler, "-Wl,--version"], capture_output=True, text=True, check=False).stdout
    return "GNU ld" in said


def build_libraries(target, scratch, version):
    """Compiles and links libhakmem.so, and libhakmem-region.so against it, in a folder."""
    compiler, found = shlex.split(os.environ.get("CC", "cc")), flags()
    scratch.mkdir(parents=True, exist_ok=True)
    common = [f"-D{name}" for name in [*found["define"], "HAK_OVERRIDE=1", f'HAK_VERSION_STRING="{version}"']]
    common += [f"-I{SOURCE / 'src'}", f"-I{SOURCE / 'include'}", *found["compile"]]
    common += [flag for flag in found["known"] if compiles(compiler, flag)]
    common += [f"-ffile-prefix-map={SOURCE}=.", *shlex.split(os.environ.get("CFLAGS", ""))]

    def compiled(name, kind):
        made = str(scratch / (name.replace("/", "_") + ".o"))
        extra = [*(["-DHAK_SHARED=1"] if kind == "beside" else []), *found.get(kind, [])]
        subprocess.run([*compiler, *common, *extra, "-c", str(SOURCE / name), "-o", made], check=True)
        return made

    def link(name, symbols, *rest):
        how = [flag for flag in found["link"] if links(compiler, flag)] + shlex.split(os.environ.get("LDFLAGS", ""))
        subprocess.run([*compiler, "-shared", "-o", str(target / f"{name}.so"), f"-Wl,-soname,{name}.so.0", *how,
                        f"-Wl,--version-script,{SOURCE / 'cmake' / symbols}", *rest, "-pthread", "-ldl"], check=True)

    beside = [(f"src/interpose/{path.name}", "beside") for path in sorted((SOURCE / "src" / "interpose").glob("*.c"))]
    layout = [f"-Wl,-T,{SOURCE / 'cmake' / 'layout.ld'}"] if is_gnu_ld(compiler) else []
    link("libhakmem", "symbols.map", *(compiled(*unit) for unit in UNITS + beside), *layout)
    link("libhakmem-region", "region.map", compiled("src/unity_region.c", "region"), str(target / "libhakmem.so"))


def build_starter(target, scratch, version):
    """Compiles the starter (cmake/HakmemStarter.cmake), and links it without a C library where it needs none: only then, since
    zig's compiler has no headers of a C library that it does not link."""
    compiler = shlex.split(os.environ.get("CC", "cc"))
    flags = ["-Os", "-std=gnu17", "-D_GNU_SOURCE", "-DNDEBUG", f'-DHAK_VERSION_STRING="{version}"', '-DHAK_MULTIARCH=""',
             "-ffunction-sections", "-fdata-sections", f"-ffile-prefix-map={SOURCE}=.", f"-I{SOURCE / 'src'}", f"-I{SOURCE / 'include'}"]
    link = ["-Wl,--gc-sections", "-s"]
    if sysconfig.get_platform().endswith(("x86_64", "aarch64", "riscv64")):
        flags += ["-DHAK_FREESTANDING=1", "-ffreestanding", "-fno-pie", "-fno-stack-protector", "-U_FORTIFY_SOURCE",
                  "-fno-asynchronous-unwind-tables"]
        flags += [flag for flag in ("-fcf-protection=none",) if compiles(compiler, flag)]
        link += ["-static", "-nostdlib", "-no-pie", "-Wl,--build-id=none,-z,noexecstack"]
    objects = []
    for source in [*sorted((SOURCE / "starter").glob("*.c")), SOURCE / "src" / "diag" / "format.c"]:
        objects.append(str(scratch / f"starter_{source.stem}.o"))
        subprocess.run([*compiler, *flags, "-c", str(source), "-o", objects[-1]], check=True)
    subprocess.run([*compiler, *link, *objects, "-o", str(target)], check=True)


class BuildLibrary(build_py):
    """The Python files, then the libraries and the starter beside them."""

    def run(self):
        super().run()
        if not self.editable_mode:
            place, objects = Path(self.build_lib) / "hakmem", Path(self.build_lib).parent / "hakmem-objects"
            build_libraries(place, objects, self.distribution.get_version())
            build_starter(place / "starter", objects, self.distribution.get_version())


class ForAnyPython(bdist_wheel):
    """Tied to the machine, not to a version of Python."""

    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self):
        return "py3", "none", sysconfig.get_platform().replace("-", "_").replace(".", "_")


class WithLibrary(Distribution):
    def has_ext_modules(self):
        return True


setup(cmdclass={"build_py": BuildLibrary, "bdist_wheel": ForAnyPython}, distclass=WithLibrary)
