"""The Conan recipe: built in a cache of its own, and a program linked through it. What is left is the recipe with its source."""
import shutil
import sys

from package_common import OUT, PACKAGING, ROOT, Failed, clock, fresh, project_files, run, stage, tarball, version

VENV = OUT / "conan-venv"


def conan(*arguments, at):
    """Conan, from an environment of its own, with a home of its own."""
    if not (VENV / "complete").is_file():
        shutil.rmtree(VENV, ignore_errors=True)
        run([sys.executable, "-m", "venv", VENV])
        run([VENV / "bin" / "python", "-m", "pip", "install", "-q", "conan>=2,<3"])
        (VENV / "complete").touch()
    return run([VENV / "bin" / "conan", *arguments], cwd=at, env={**clock(), "CONAN_HOME": str(OUT / "conan-home")})


def build(target):
    """The recipe with its source, after Conan has built it from there."""
    folder = fresh(OUT / "conan") / f"hakmem-conan-{version()}"
    stage(folder, project_files("src", "include", "cmake", "starter", "CMakeLists.txt", "LICENSE"))
    shutil.copy2(PACKAGING / "conan" / "conanfile.py", folder)
    packed = tarball(folder, target / f"{folder.name}.tar.gz")
    conan("profile", "detect", "--force", at=folder)
    conan("create", ".", "--version", version(), "--no-remote", at=folder)
    return [packed]


def test(_files):
    """A user's project finds the package and runs."""
    user = fresh(OUT / "conan-user")
    shutil.copytree(ROOT / "tests" / "package" / "consumer", user / "consumer")
    conan("install", f"--requires=hakmem/{version()}", "--no-remote", "-g", "CMakeToolchain", "-g", "CMakeDeps", at=user)
    run(["cmake", "-S", user / "consumer", "-B", user / "build", f"-DCMAKE_TOOLCHAIN_FILE={user / 'conan_toolchain.cmake'}",
         "-DCMAKE_BUILD_TYPE=Release", f"-DWANTED_VERSION={version()}"])
    run(["cmake", "--build", user / "build"])
    said = run([user / "build" / "consumer_shared"]).strip()
    if said != f"hakmem {version()}":
        raise Failed(f"the program said: {said}")
    print("conan: a project found the package and ran on it")
