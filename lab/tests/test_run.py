"""hakmem run: the program's own exit status and signals; and a clear message if HAKMEM cannot be loaded."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hakmem_lab.target import allocators, elf, libhakmem, preload
from tests.conftest import killed_after
from tests.inside import LIBRARY, NOBODY, clean_environment, compile_c, hakmem

HELLO = '#include <stdio.h>\nint main(void) { puts("hello"); return 3; }\n'
COMMAND = [sys.executable, "-m", "hakmem_lab", "run", "--library", str(LIBRARY)]


@pytest.fixture(scope="module")
def hello(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_c(tmp_path_factory.mktemp("hello"), HELLO)


@pytest.mark.parametrize("status", [0, 1, 7, 125, 255])
def test_exit_status_passes_through(status: int) -> None:
    done = hakmem("run", "--", "sh", "-c", f"exit {status}")
    assert (done.returncode, done.stdout, done.stderr) == (status, "", "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV, signal.SIGUSR1])
def test_signals_pass_through(number: signal.Signals) -> None:
    script = "import sys; print('ready', flush=True); sys.stdin.read()"
    with killed_after(
        [*COMMAND, "--", sys.executable, "-c", script],
        env=clean_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout and child.stdout.readline() == "ready\n"
        child.send_signal(number)
        assert child.wait(60) == -number


@pytest.mark.parametrize(("command", "status"), [("run --stats json", 125), ("profile -o x.heap", 1)])
def test_a_working_folder_that_is_gone(tmp_path: Path, command: str, status: int) -> None:
    lab = shlex.join([sys.executable, "-m", "hakmem_lab"])
    gone = f"mkdir gone && cd gone && rmdir ../gone && {lab} {command} -- true"
    done = subprocess.run(["sh", "-c", gone], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == status and "the working folder has been removed" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


def test_streams_that_are_closed() -> None:
    """The program finds them closed; what the lab opens does not take their places."""
    command = shlex.join([*COMMAND, "--stats", "text", "--", "sh", "-c", "echo x; exit 7"])
    for closed in (">&-", "2>&-", "<&- >&- 2>&-"):
        words = ["sh", "-c", f"{command} {closed}"]
        done = subprocess.run(words, env=clean_environment(), capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (7, "x\n" if closed == "2>&-" else ""), done.stderr
        assert "Traceback" not in done.stderr and ("statistics" in done.stderr) == (closed == ">&-")


def test_the_program_takes_the_process_and_its_streams() -> None:
    with killed_after(
        [*COMMAND, "--", "sh", "-c", "echo $$; cat; echo err >&2"],
        env=clean_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        out, err = child.communicate("through\n", timeout=60)
    assert (out, err) == (f"{child.pid}\nthrough\n", "err\n")


def test_statistics_prove_that_it_served(hello: Path) -> None:
    done = hakmem("run", "--stats", "text", "--", hello)
    assert (done.returncode, done.stdout) == (3, "hello\n")
    assert re.match(r"hakmem: statistics of process \d+ \(program\)\n", done.stderr)
    assert int(re.findall(r"total refilled=(\d+)", done.stderr)[0]) > 0


# Every second of these closes standard error before the library prints.
COREUTILS = """\
sort FILE; ls -l /; cat FILE; head FILE; tail FILE; wc FILE; cut -c 1 FILE; tr a b; uniq FILE; date; df /; du FILE;
stat FILE; id; env; seq 10; tac FILE; md5sum FILE; od FILE; join FILE FILE; nl FILE; grep -c root FILE; dd if=FILE"""


@pytest.mark.parametrize("line", COREUTILS.split(";"))
def test_statistics_of_programs_that_close_stderr(line: str, tmp_path: Path) -> None:
    words = line.replace("FILE", "/etc/passwd").split()
    done = hakmem("run", "--stats", "text", "--", *words)
    own = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert done.returncode == own.returncode
    assert f"({words[0]})\n" in done.stderr
    assert int(re.findall(r"total refilled=(\d+)", done.stderr)[0]) > 0
    done = hakmem("run", "--stats", "text", "--stats-file", tmp_path / "%p", "--", *words)
    assert "total refilled=" in next(tmp_path.iterdir()).read_text()


def test_statistics_of_all_processes_and_of_none() -> None:
    bash = shutil.which("bash") or pytest.skip("no bash; other shells end by _exit()")
    done = hakmem("run", "--stats", "text", "--", bash, "-c", "ls / >&2; exit 3")
    assert done.returncode == 3
    names = re.findall(r"^hakmem: statistics of process \d+ \((\w+)\)$", done.stderr, re.MULTILINE)
    assert names == ["ls", "bash"] and done.stderr.index("bin") < done.stderr.index("hakmem:")
    done = hakmem("run", "--stats", "text", "--", "sh", "-c", "kill -TERM $$")
    assert done.returncode == -signal.SIGTERM and "sh wrote no statistics" in done.stderr


def test_signals_reach_a_program_whose_statistics_are_printed() -> None:
    """Python ignores some signals; the program begins with those that the shell had."""
    script = "import signal, sys; signal.signal(10, lambda *_: sys.exit(7)); print('ready', flush=True); signal.pause()"
    command = [*COMMAND, "--stats", "text", "--", sys.executable, "-c", script]
    with killed_after(command, env=clean_environment(), stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout and child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGUSR1)
        assert child.wait(60) == 7
    for options in ((), ("--stats", "text")):
        done = hakmem("run", *options, "--", "sh", "-c", "yes | head -n 1; grep SigIgn /proc/self/status")
        assert done.stdout.splitlines()[0] == "y" and "Broken pipe" not in done.stderr
        assert int(done.stdout.split()[-1], 16) & 1 << signal.SIGPIPE - 1 == 0


def test_statistics_into_a_file(hello: Path, tmp_path: Path) -> None:
    done = hakmem("run", "--stats", "json", "--stats-file", tmp_path / "out.%p.json", "--", hello)
    (written,) = tmp_path.iterdir()
    assert done.returncode == 3 and "statistics go to" in done.stderr
    assert re.fullmatch(r"out\.\d+\.json", written.name)
    shown = hakmem("stats", written)
    assert shown.returncode == 0 and "Size classes" in shown.stdout
    done = hakmem("run", "--stats", "prom", "--stats-file", tmp_path / "out.prom", "--", hello)
    assert (tmp_path / "out.prom").read_text().startswith("# TYPE hakmem_")


def test_settings_reach_the_program() -> None:
    done = hakmem(
        "run", "--preset", "hot_512", "--set", "refill_count=64", "--set", "HAKMEM_PURGE_DELAY=5s", "--", "env"
    )
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert {"HAKMEM_PRESET=hot_512", "HAKMEM_REFILL_COUNT=64", "HAKMEM_PURGE_DELAY=5s"} <= set(lines)
    assert f"LD_PRELOAD={LIBRARY}" in lines
    assert not [line for line in lines if line.startswith("HAKMEM_LIBRARY=")]


def test_variables_of_the_lab_are_kept_from_the_program() -> None:
    done = hakmem("run", "--", "env", HAKMEM_PEERS="/tmp", HAKMEM_REFILL_COUNT="64")
    assert [line for line in done.stdout.splitlines() if line.startswith("HAKMEM_")] == ["HAKMEM_REFILL_COUNT=64"]
    assert done.stderr == ""
    assert "HAKMEM_PEERS" not in hakmem("doctor", HAKMEM_PEERS="/tmp").stdout


def test_other_preloaded_libraries_stay(tmp_path: Path) -> None:
    other = compile_c(tmp_path, "int other;\n", "-shared", "-fPIC", name="libother.so")
    done = hakmem("run", "--", "env", LD_PRELOAD=str(other))
    assert f"LD_PRELOAD={LIBRARY} {other}" in done.stdout.splitlines()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--set", "refil_count=3"), "did you mean refill_count?"),
        (("--set", "HAKMEM_REFIL_COUNT=3"), "did you mean HAKMEM_REFILL_COUNT?"),
        (("--set", "refill_count=100000"), "is not a number from 1 to 256"),
        (("--set", "refill_count"), "not key=value"),
        (("--preset", "hot_51"), "the nearest one is hot_512"),
        (("--stats", "jsn"), "did you mean json?"),
        (("--stats-file", "x"), "--stats-file needs"),
        (("--sample", "/proc/none/x"), "--sample /proc/none/x: No such file"),
        (("--no-such-option",), "No such option: --no-such-option"),
        (("--sample-interval", "0"), "--sample-interval"),
        (("--canary=1",), "--canary"),
    ],
)
def test_wrong_options_are_refused_before_anything_runs(arguments: tuple[str, ...], said: str) -> None:
    done = hakmem("run", *arguments, "--", "echo", "ran")
    assert done.returncode == 125
    assert "ran" not in done.stdout
    assert said in done.stderr.replace("\n", " ")


def test_harden_says_when_the_library_lacks_it() -> None:
    done = hakmem("run", "--harden", "--", "env")
    if "harden" in libhakmem.options(LIBRARY):
        assert done.returncode == 0 and "HAKMEM_HARDEN=1" in done.stdout.splitlines()
    else:
        assert done.returncode == 125 and "has no option harden" in done.stderr


def test_a_canary_goes_on() -> None:
    program = "import ctypes; c = ctypes.CDLL(None); c.free(ctypes.create_string_buffer(64)); print('still here')"
    done = hakmem("run", "--canary", "--", sys.executable, "-c", program)
    assert done.returncode == 0 and "still here" in done.stdout
    assert "survived (HAKMEM_MISUSE=report): nothing was done" in done.stderr


# --- what cannot be loaded --------------------------------------------------------------------------------------------


def refused(program: Path | str, *words: str) -> None:
    done = hakmem("run", "--", program)
    assert done.returncode == 125, done.stderr
    said = done.stderr.replace("\n", " ")
    assert "would not run on HAKMEM" in said and "hello" not in done.stdout
    for word in words:
        assert word in said


def test_static_program(tmp_path: Path) -> None:
    static = compile_c(tmp_path, HELLO, "-static")
    refused(static, "linked statically", "libhakmem.a", "--anyway")
    done = hakmem("run", "--anyway", "--", static)
    assert (done.returncode, done.stdout) == (3, "hello\n")


def test_script_whose_interpreter_is_static(tmp_path: Path) -> None:
    static = compile_c(tmp_path, HELLO, "-static", name="interpreter")
    script = tmp_path / "script"
    script.write_text(f"#!{static}\n")
    script.chmod(0o755)
    refused(script, f"whose interpreter is {static}", "linked statically")
    through_env = tmp_path / "through_env"
    through_env.write_text("#!/usr/bin/env -S interpreter\n")
    through_env.chmod(0o755)
    done = hakmem("run", "--", through_env, PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert done.returncode == 125 and "linked statically" in done.stderr


def test_script_runs_on_hakmem(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\necho $1\ngrep -c libhakmem /proc/$$/maps\nexit 5\n")
    script.chmod(0o755)
    done = hakmem("run", "--", script, "word")
    word, mappings = done.stdout.split()
    assert (done.returncode, word) == (5, "word") and int(mappings) >= 2


def test_musl(tmp_path: Path) -> None:
    refused(compile_c(tmp_path, HELLO, "-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1"), "runs on musl")


MUSL = "/lib/ld-musl-x86_64.so.1"


@pytest.mark.skipif(not Path(MUSL).exists(), reason="musl is not installed")
def test_libraries_and_programs_of_musl(hello: Path, tmp_path: Path) -> None:
    bare = ("-nostdlib", "-fPIC", "-fno-builtin")
    program = compile_c(tmp_path, "void _start(void) { for (;;); }", *bare, f"-Wl,--dynamic-linker={MUSL}")
    library, other = (
        compile_c(tmp_path, f"void *{name}(long n) {{ return (void *)n; }}", *bare, "-shared", name=f"{name}.so")
        for name in ("malloc", "other")
    )
    assert allocators.c_library(program).startswith("musl 1.") and "musl" not in allocators.c_library(hello)
    assert allocators.why_not_loaded(allocators.Allocator("x", "ours", library), program) is None
    assert allocators.why_not_loaded(allocators.Allocator("x", "ours", other), program)
    libc = compile_c(tmp_path, "int libc;", *bare, "-shared", "-Wl,-soname=libc.so", name="libc.so")
    of_musl = compile_c(tmp_path, "int x;", *bare, "-shared", "-Wl,--no-as-needed", str(libc), name="of_musl.so")
    described = elf.describe(of_musl)
    assert described is not None
    assert preload.obstacle(preload.look(str(program), {}), described) is None
    assert "is for musl" in (preload.obstacle(preload.look(str(hello), {}), described) or "")[0]


def test_another_machine(hello: Path, tmp_path: Path) -> None:
    content = bytearray(hello.read_bytes())
    machine = 0xB7 if content[18] != 0xB7 else 0x3E  # aarch64, or x86-64 where this is aarch64
    content[18] = machine
    foreign = tmp_path / "foreign"
    foreign.write_bytes(content)
    foreign.chmod(0o755)
    refused(foreign, "is built for aarch64" if machine == 0xB7 else "is built for x86-64", "--library")


def test_setuid_program(hello: Path, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file to another user")
    privileged = tmp_path / "privileged"
    shutil.copy(hello, privileged)
    os.chown(privileged, NOBODY, NOBODY)
    privileged.chmod(0o4755)
    refused(privileged, "it is setuid", "ignores LD_PRELOAD")


def test_library_that_the_linker_refuses(hello: Path, tmp_path: Path) -> None:
    broken = compile_c(
        tmp_path,
        "int f(void);\nint g(void) { return f(); }\n",
        "-shared",
        "-fPIC",
        "-Wl,-soname,libhakmem.so.0",
        name="libhakmem.so",
    )
    content = broken.read_bytes()
    cut = tmp_path / "cut" / "libhakmem.so"
    cut.parent.mkdir()
    cut.write_bytes(content[: len(content) // 3])
    done = hakmem("run", "--library", cut, "--", hello)
    assert done.returncode == 125 and "hello" not in done.stdout


def test_a_library_of_others(hello: Path, tmp_path: Path) -> None:
    other = compile_c(tmp_path, "int other;\n", "-shared", "-fPIC", name="libother.so")
    done = hakmem("run", "--library", other, "--", hello)
    assert done.returncode == 125 and "is another library, without hak_malloc" in done.stderr
    assert hakmem("run", "--anyway", "--library", other, "--", hello).stdout == "hello\n"


def test_program_with_its_own_malloc(tmp_path: Path) -> None:
    own = compile_c(
        tmp_path,
        "#include <stddef.h>\nvoid *malloc(size_t n) { (void)n; return NULL; }\n"
        "int main(void) { return malloc(1) != NULL; }\n",
        "-rdynamic",
    )
    done = hakmem("run", "--", own)
    assert done.returncode == 0 and "has a malloc of its own" in done.stderr.replace("\n", " ")


@pytest.mark.parametrize("sanitizer", ["address", "thread", "leak"])
def test_program_of_a_sanitizer(tmp_path: Path, sanitizer: str) -> None:
    """It would exit at start, crash, or find nothing: the sanitizer's own malloc must serve it."""
    built = compile_c(tmp_path, HELLO, f"-fsanitize={sanitizer}")
    refused(built, "is built with a sanitizer (lib", "--anyway", "without -fsanitize")
    done = hakmem("ab", "--a", "", "--b", "alloc:system", "--", built)
    assert done.returncode == 1 and "is built with a sanitizer" in done.stderr


def test_sanitizer_that_is_preloaded(hello: Path) -> None:
    done = hakmem("run", "--", hello, LD_PRELOAD="libasan-x.so.8")
    assert done.returncode == 125 and "LD_PRELOAD brings a sanitizer (libasan-x.so.8)" in done.stderr


def test_script_without_a_first_line(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text('echo "$1 $LD_PRELOAD"\nexit 3\n')
    script.chmod(0o755)
    for options in ((), ("--stats", "text")):
        done = hakmem("run", *options, "--", script, "word")
        assert done.returncode == 3 and re.fullmatch(r"word \S*libhakmem\.so\S*\n", done.stdout)


def test_not_found_and_not_executable(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("x")
    assert [
        hakmem("run", "--", each).returncode for each in ("no-such-program", tmp_path / "none", plain, tmp_path)
    ] == [127, 127, 126, 126]
    for name, said in (("./none", "no such file"), ("none.heap", "no such file"), (str(plain), "may not be executed")):
        assert said in hakmem("run", "--", name).stderr
    assert "no such file" in hakmem("profile", "none.heap").stderr
    done = hakmem("run", "--", "")
    assert done.returncode == 127 and "the program's name is empty" in done.stderr and "./" not in done.stderr


def test_a_file_here_is_not_taken_for_a_program(hello: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(hello.parent)
    done = hakmem("run", "--", hello.name)
    assert done.returncode == 127 and f"There is one here: ./{hello.name}" in done.stderr


def test_library_path_with_a_space(hello: Path, tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    shutil.copy(LIBRARY, folder / "libhakmem.so")
    done = hakmem("run", "--library", folder, "--", hello)
    assert done.returncode == 125 and "with a space" in done.stderr
