"""The crates hakmem-sys and hakmem: packed by cargo, then unpacked elsewhere, built and tested there from the packed files alone,
without a network."""
import shutil
import tarfile

from package_common import OUT, ROOT, Failed, clock, fresh, needs, run, version

CRATES = ("hakmem-sys", "hakmem")


def cargo(*arguments, at, offline=True):
    """cargo in a folder. What it builds lies under out/, lest a package hold it."""
    environment = {**clock(), "CARGO_TARGET_DIR": str(OUT / "rust"), "CARGO_NET_OFFLINE": "true" if offline else "false"}
    return run(["cargo", *arguments], cwd=at, env=environment)


def build(target):
    """The .crate files; what they need of other crates is fetched before, and the packing itself is offline."""
    needs("cargo", "cc")
    cargo("fetch", at=ROOT / "rust", offline=False)
    cargo("package", "--allow-dirty", *(word for name in CRATES for word in ("-p", name)), "--no-verify", at=ROOT / "rust")
    made = [OUT / "rust" / "package" / f"{name}-{version()}.crate" for name in CRATES]
    missing = [path.name for path in made if not path.is_file()]
    if missing:
        raise Failed(f"cargo made no {missing[0]}")
    files = [target / path.name for path in made]
    for path, copy in zip(made, files):
        shutil.copy2(path, copy)
    check(files)
    return files


def unpack(files):
    """A workspace of the packed crates, in which hakmem takes hakmem-sys from beside it."""
    folder = fresh(OUT / "crates-unpacked")
    for path in files:
        with tarfile.open(path) as archive:
            archive.extractall(folder, filter="data") if hasattr(tarfile, "data_filter") else archive.extractall(folder)
    names = ", ".join(f'"{name}-{version()}"' for name in CRATES)
    (folder / "Cargo.toml").write_text(f'[workspace]\nmembers = [{names}]\nresolver = "2"\n\n[patch.crates-io]\n'
                                       f'hakmem-sys = {{ path = "hakmem-sys-{version()}" }}\n', encoding="utf-8")
    return folder


def check(files):
    """Builds and tests the packed files by themselves, both beside malloc and in its place."""
    folder = unpack(files)
    if not (folder / f"hakmem-sys-{version()}" / "c" / "src" / "unity.c").is_file():
        raise Failed("hakmem-sys does not carry its source")
    for features in ("hakmem/allocator-api2,hakmem/metrics,hakmem/pprof", "hakmem/override"):
        said = cargo("test", "--release", "--features", features, at=folder)
        if said.count("test result: ok") < 5 or "collections" not in said:
            raise Failed(f"the packed crates' tests did not run:\n{said}")
    print("crates: built and tested from the packed files, offline, beside malloc and in its place")


PROGRAM = """#[global_allocator]
static GLOBAL: hakmem::Hakmem = hakmem::Hakmem;
"""


def test(files):
    """The suite's Rust program, of maps, strings, trees and threads with channels, on the packed crates."""
    folder = unpack(files)
    (folder / "user" / "src").mkdir(parents=True)
    (folder / "user" / "Cargo.toml").write_text(
        '[package]\nname = "user"\nversion = "0.0.0"\nedition = "2021"\n\n'
        f'[dependencies]\nhakmem = {{ path = "../hakmem-{version()}" }}\n', encoding="utf-8")
    program = (ROOT / "bench" / "suite" / "real" / "rust" / "src" / "main.rs").read_text(encoding="utf-8")
    (folder / "user" / "src" / "main.rs").write_text(program + PROGRAM, encoding="utf-8")
    workspace = folder / "Cargo.toml"
    workspace.write_text(workspace.read_text(encoding="utf-8").replace("members = [", 'members = ["user", '), encoding="utf-8")
    cargo("build", "--release", "-q", "-p", "user", at=folder)
    said = run([OUT / "rust" / "release" / "user", "20000"], env={**clock(), "HAKMEM_STATS": "1"})
    if "hakmem" not in said:
        raise Failed(f"the program did not run on HAKMEM:\n{said}")
    print("crates: the suite's Rust program runs on the packed crates")
