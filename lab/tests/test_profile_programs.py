"""Four programs with a planted leak, which hakmem leaks shows first, with file and line; Redis profiled by PID; stacks
of JavaScript and Python."""

from __future__ import annotations

import json
import re
import resource
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from hakmem_lab.target import libhakmem
from hakmem_lab.terminal.errors import LabError
from tests.conftest import Hakmem, killed_after

pytest.importorskip("google.protobuf")

SERVER = """
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

struct Session { std::string name; std::vector<char> history; };

static void answer(int connection)
{
    std::map<std::string, std::unique_ptr<Session>> sessions;
    char word[64];
    for (ssize_t got; (got = read(connection, word, sizeof word)) > 0;) {
        auto known = std::make_unique<Session>();
        known->name.assign(word, got);
        sessions[known->name] = std::move(known);
        auto *lost = new Session;   // LEAK
        memset(lost, 1, sizeof *lost);
        lost = nullptr;
        if (write(connection, word, got) != got)
            break;
    }
    close(connection);
}

int main()
{
    std::vector<std::thread> threads;
    for (int client = 0; client < 4; client++) {
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
            return 1;
        threads.emplace_back(answer, ends[0]);
        threads.emplace_back([end = ends[1]] {
            for (int i = 0; i < 200; i++) {
                std::string asked = "request " + std::to_string(i), said(64, 0);
                if (write(end, asked.data(), asked.size()) < 0 || read(end, &said[0], said.size()) < 0)
                    break;
            }
            close(end);
        });
    }
    for (auto &thread : threads)
        thread.join();
    return 0;
}
"""

RUST = """
use std::collections::HashMap;

#[inline(never)]
fn remember(index: &mut HashMap<String, Vec<u8>>, word: &str) {
    index.entry(word.to_string()).or_default().push(1);
    let lost = vec![7u8; 1000]; // LEAK
    std::mem::forget(lost);
}

fn main() {
    let mut index = HashMap::new();
    for i in 0..1000 {
        remember(&mut index, &format!("word {}", i % 97));
    }
    println!("{}", index.len());
}
"""

EXTENSION = """
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <string.h>

static PyObject *leaky_parse(PyObject *self, PyObject *arguments)
{
    const char *text;
    Py_ssize_t length;
    (void)self;
    if (!PyArg_ParseTuple(arguments, "s#", &text, &length))
        return NULL;
    char *copy = malloc(4000);   // LEAK
    if (copy == NULL)
        return PyErr_NoMemory();
    memset(copy, text[0], 4000);
    return PyLong_FromSsize_t(length + (copy[1] == 0));
}

static PyMethodDef methods[] = { { "parse", leaky_parse, METH_VARARGS, NULL }, { NULL, NULL, 0, NULL } };
static struct PyModuleDef module = { PyModuleDef_HEAD_INIT, "leaky", NULL, -1, methods, NULL, NULL, NULL, NULL };
PyMODINIT_FUNC PyInit_leaky(void) { return PyModule_Create(&module); }
"""


SQL_FUNCTION = """
#include <stddef.h>
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT1
static void initials(sqlite3_context *context, int count, sqlite3_value **values)
{
    const unsigned char *text = sqlite3_value_text(values[0]);
    char *copy = sqlite3_mprintf("%s: %400c", text, text[0]);   // LEAK
    sqlite3_result_text(context, copy, 1, SQLITE_TRANSIENT);
    (void)count;
}
int sqlite3_extension_init(sqlite3 *db, char **message, const sqlite3_api_routines *api)
{
    SQLITE_EXTENSION_INIT2(api);
    (void)message;
    return sqlite3_create_function(db, "initials", 1, SQLITE_UTF8, NULL, initials, NULL, NULL);
}
"""


@pytest.fixture(scope="module", autouse=True)
def library() -> Path:
    try:
        return libhakmem.find()
    except LabError:
        pytest.skip("the library is not built")


def built(folder: Path, name: str, source: str, *command: str) -> int:
    """Compiles a program; the line on which it leaks."""
    (folder / name).write_text(source)
    subprocess.run([*command, name], cwd=folder, check=True)
    return next(number for number, line in enumerate(source.split("\n"), 1) if "// LEAK" in line)


def lost(folder: Path, place: str, line: int, least: int, *program: str | Path) -> None:
    """The first leak shown has this many bytes, and this is its first frame in the program's own source."""
    output = folder / "lost.json"
    command = [sys.executable, "-m", "hakmem_lab", "leaks", "--json", str(output), "--", *map(str, program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 23, done.stderr
    first = json.loads(output.read_text())[0]
    assert first["bytes"] >= least, first
    own = next(frame for frame in first["stack"] if (frame["file"] or "").endswith(place))
    assert own["line"] == line, first
    head = done.stderr[done.stderr.index("leak of") :].split("leak of")[1]
    assert re.search(rf"{re.escape(place)}:{line}\b", head), done.stderr


def test_a_server_of_many_threads(tmp_path: Path) -> None:
    compiler = shutil.which("c++") or pytest.skip("no C++ compiler")
    line = built(tmp_path, "server.cpp", SERVER, compiler, "-std=c++17", "-g", "-O1", "-pthread", "-o", "server")
    lost(tmp_path, "server.cpp", line, 790 * 56, tmp_path / "server")


def test_a_rust_program(tmp_path: Path) -> None:
    compiler = shutil.which("rustc") or pytest.skip("no rustc")
    line = built(tmp_path, "words.rs", RUST, compiler, "-g", "-C", "opt-level=1")
    lost(tmp_path, "words.rs", line, 1000 * 990, tmp_path / "words")


def test_a_python_extension(tmp_path: Path) -> None:
    compiler = shutil.which("cc") or pytest.skip("no C compiler")
    include = sysconfig.get_path("include")
    if not (Path(include) / "Python.h").is_file():
        pytest.skip("no Python.h")
    command = (compiler, "-g", "-O1", "-shared", "-fPIC", f"-I{include}", "-o", "leaky.so")
    line = built(tmp_path, "leaky.c", EXTENSION, *command)
    (tmp_path / "use.py").write_text(
        f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\n"
        "import leaky\nfor i in range(500):\n    leaky.parse(str(i))\n"
    )
    lost(tmp_path, "leaky.c", line, 499 * 4000, sys.executable, tmp_path / "use.py")


def test_a_function_of_sqlite(tmp_path: Path) -> None:
    """The shell and its library are stripped; the leak was allocated three calls deep in them."""
    compiler = shutil.which("cc") or pytest.skip("no C compiler")
    shell = shutil.which("sqlite3") or pytest.skip("no sqlite3")
    if not Path("/usr/include/sqlite3ext.h").is_file():
        pytest.skip("no sqlite3ext.h")
    line = built(tmp_path, "initials.c", SQL_FUNCTION, compiler, "-g", "-O1", "-shared", "-fPIC", "-o", "initials.so")
    rows = "with recursive n(i) as (select 1 union all select i + 1 from n where i < 2000) select i || 'th' as t from n"
    work = (
        f"create table words as {rows}; create index by_t on words (t); select count(distinct initials(t)) from words;"
    )
    lost(tmp_path, "initials.c", line, 1995 * 400, shell, ":memory:", f".load {tmp_path}/initials", work)


# --- a server that goes on ------------------------------------------------------------------------------------------


def ask(port: int, *commands: str) -> str:
    """Redis's inline commands; the answers, once as many bytes as the last answer needs have come."""
    with closing(socket.create_connection(("127.0.0.1", port), timeout=20)) as connection:
        connection.sendall("".join(f"{command}\r\n" for command in commands).encode())
        said = b""
        while said.count(b"\r\n") < len(commands):
            said += connection.recv(65536) or b"\r\n" * len(commands)
        return said.decode()


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    server = shutil.which("redis-server") or pytest.skip("no redis-server")
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", str(tmp_path)]
    command = [sys.executable, "-m", "hakmem_lab", "run", "--", server, *settings]
    with killed_after(command, stdout=subprocess.DEVNULL) as running:
        for _ in range(200):
            try:
                ask(port, "PING")
                break
            except OSError:
                time.sleep(0.1)
        yield running, port


def test_redis_under_load_by_its_number(redis: tuple[subprocess.Popen[bytes], int], tmp_path: Path) -> None:
    running, port = redis
    started = re.search(r"run_id:(\w+)", ask(port, "INFO server"))
    work = [sys.executable, "-m", "hakmem_lab", "profile", str(running.pid), "--seconds", "4", "--interval", "64K"]
    with killed_after([*work, "-o", str(tmp_path / "redis.json")], stdout=subprocess.PIPE, text=True) as profiled:
        round_number = 0
        while profiled.poll() is None:
            round_number += 1
            ask(port, *(f"SET key:{round_number}:{i} {'x' * 1000}" for i in range(200)))
        assert profiled.returncode == 0
    document = json.loads((tmp_path / "redis.json").read_text())
    assert document["totals"]["allocated"]["bytes"] > 1_000_000
    again = re.search(r"run_id:(\w+)", ask(port, "INFO server"))
    assert started and again and started.group(1) == again.group(1)


AGENT = "Mozilla/5.0_(X11;_Linux_x86_64)_AppleWebKit/537.36_(KHTML,_like_Gecko)_Chrome/126.0.0.0_Safari/537.36"


def fill(port: int, name: str) -> None:
    """Five thousand sessions: a name of more than 64 bytes, which has to come first here, and twenty settings."""
    settings = " ".join(f"setting{number} on" for number in range(1, 21))
    for first in range(0, 5000, 500):
        users = range(first, first + 500)
        ask(port, *(f"HSET {name}:{user} agent {AGENT} {settings}" for user in users))


def memory_of(port: int) -> int:
    said = re.search(r"used_memory:(\d+)", ask(port, "INFO memory"))
    assert said is not None
    return int(said.group(1))


def test_the_story_of_sessions(redis: tuple[subprocess.Popen[bytes], int], tmp_path: Path) -> None:
    """The story of docs/profiling.md: one field that is too long for a list makes a table of each session. The server
    answers although only its timer runs when the profile is requested."""
    running, port = redis
    profiled: dict[str, dict[str, float]] = {}
    grown: dict[str, int] = {}
    for name in ("table", "list"):
        output = tmp_path / f"{name}.json"
        work = [sys.executable, "-m", "hakmem_lab", "profile", str(running.pid), "--seconds", "4", "--interval", "16K"]
        before = memory_of(port)
        with killed_after([*work, "-o", str(output)], stderr=subprocess.PIPE, text=True) as profile:
            assert profile.stderr and "is profiled for" in profile.stderr.readline()
            fill(port, name)
            grown[name] = memory_of(port) - before
            assert profile.wait(60) == 0
        sums: dict[str, float] = {}
        for stack in json.loads(output.read_text())["stacks"]:
            for function in {str(frame["name"]) for frame in stack["frames"]}:
                sums[function] = sums.get(function, 0) + stack["live"]["bytes"]
        profiled[name] = sums
        ask(port, "CONFIG SET hash-max-listpack-value 256", "FLUSHALL SYNC")
    # The server counts rounded blocks, which are larger than requested.
    assert 0.5 * grown["table"] < profiled["table"]["hsetCommand"] < grown["table"]
    assert profiled["table"]["dictAdd"] > 0.5 * profiled["table"]["hsetCommand"]
    assert grown["list"] < 0.4 * grown["table"]
    assert profiled["list"].get("dictAdd", 0) < 0.2 * profiled["list"]["hsetCommand"]
    assert profiled["list"]["lpAppend"] > 0.5 * profiled["list"]["hsetCommand"]


JAVASCRIPT = """
const kept = [];
function keeper() { kept.push(Buffer.allocUnsafeSlow(200000)); }
function busy() { for (let i = 0; i < 300; i++) keeper(); }
busy();
"""

JAVA = """
import java.nio.ByteBuffer;
import java.util.ArrayList;
public class Keep {
    static ArrayList<ByteBuffer> kept = new ArrayList<>();
    static void keeper() { kept.add(ByteBuffer.allocateDirect(20000)); }
    static void busy() { for (int i = 0; i < 5000; i++) { keeper(); } }
    public static void main(String[] words) { busy(); }
}
"""

PYTHON = """
kept = []
def keeper():
    kept.append(bytearray(200000))
def busy():
    for _ in range(300):
        keeper()
busy()
"""


@pytest.fixture
def maps_for_perf() -> Iterator[None]:
    """Removes the files that programs leave for perf."""
    before = set(Path("/tmp").glob("perf-*.map"))
    yield
    for told in set(Path("/tmp").glob("perf-*.map")) - before:
        told.unlink()


def stacks_of(hakmem: Hakmem, folder: Path, *program: str) -> list[str]:
    """The stacks of most bytes first, each from the outermost function inwards."""
    file = folder / "stacks.collapsed"
    hakmem("profile", "--kind", "allocated", "--interval", "16K", "-o", str(file), "--", *program)
    lines = [line.rpartition(" ") for line in file.read_text().splitlines()]
    return [stack for stack, _, _ in sorted(lines, key=lambda line: -int(line[2]))]


@pytest.mark.usefixtures("hakmem_library", "maps_for_perf")
def test_functions_of_javascript(hakmem: Hakmem, tmp_path: Path) -> None:
    """Through V8's code, by its frame pointers, and back to the program's start."""
    node = shutil.which("node") or pytest.skip("no node")
    (tmp_path / "keep.js").write_text(JAVASCRIPT)
    options = ("--perf-basic-prof", "--interpreted-frames-native-stack")
    first = stacks_of(hakmem, tmp_path, node, *options, "keep.js")[0]
    assert re.search(r"^_start;.*;JS:busy \S*keep.js:4\S*;JS:keeper \S*keep.js:3.*AllocateUninitialized", first), first


@pytest.mark.usefixtures("hakmem_library", "maps_for_perf")
def test_functions_of_java(hakmem: Hakmem, tmp_path: Path) -> None:
    """Through the JVM's interpreter and its compiled functions."""
    compiler, java = shutil.which("javac"), shutil.which("java")
    if not compiler or not java:
        pytest.skip("no JDK")
    (tmp_path / "Keep.java").write_text(JAVA)
    subprocess.run([compiler, "Keep.java"], cwd=tmp_path, check=True, timeout=100)
    options = ("-XX:+PreserveFramePointer", "-XX:+UnlockDiagnosticVMOptions", "-XX:+DumpPerfMapAtExit")
    first = next(stack for stack in stacks_of(hakmem, tmp_path, java, *options, "Keep") if "Unsafe_Allocate" in stack)
    assert re.search(r"JavaCalls::call.*jdk.internal.misc.Unsafe.allocateMemory0.*;Unsafe_AllocateMemory0", first), (
        first
    )


STARTS_S = 0.5  # the lab itself, of which node's own time may be a small part


@pytest.mark.usefixtures("hakmem_library")
def test_leaks_of_node_take_no_longer_than_three_times_the_program(hakmem: Hakmem, tmp_path: Path) -> None:
    """By processor time: node's file has 75,000 symbols, the profile 5,000 addresses."""
    node = shutil.which("node") or pytest.skip("no node")
    (tmp_path / "work.js").write_text(
        "const a = [];\nfor (let i = 0; i < 20000; i++) a.push(Buffer.from('x'.repeat(i % 100)));\n"
    )

    def seconds(*command: str, **more: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        environment = libhakmem.without_settings() | more
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert done.returncode in (0, 23), done.stderr
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    settings = {"HAKMEM_PROFILE": f"leaks:{tmp_path}/x.json", "HAKMEM_PROFILE_INTERVAL": "1"}
    own = min(seconds(node, "work.js", LD_PRELOAD=str(libhakmem.find()), **settings) for _ in range(2))
    all_of_it = min(seconds(sys.executable, "-m", "hakmem_lab", "leaks", "--", node, "work.js") for _ in range(2))
    assert all_of_it < 3 * own + STARTS_S, (all_of_it, own)


def tells_perf(python: str) -> bool:
    return subprocess.run([python, "-X", "perf", "-c", "pass"], capture_output=True, check=False).returncode == 0


@pytest.mark.usefixtures("hakmem_library", "maps_for_perf")
def test_functions_of_python(hakmem: Hakmem, tmp_path: Path) -> None:
    """CPython's own interpreter and the functions of the program in turn, with a Python that was built as most are."""
    found = [sys.executable if sys.version_info >= (3, 12) else None]
    found += [shutil.which(f"python3.{minor}") for minor in range(20, 11, -1)]
    found += sorted(str(path) for path in Path.home().glob(".pyenv/versions/3.1[2-9]*/bin/python3"))
    python = next((path for path in found if path and tells_perf(path)), None) or pytest.skip("no Python 3.12 or newer")
    (tmp_path / "keep.py").write_text(PYTHON)
    first = stacks_of(hakmem, tmp_path, "env", "PYTHONMALLOC=malloc", python, "-X", "perf", "keep.py")[0]
    assert re.search(r"^_start;.*;<module>;.*;busy;.*;keeper;.*PyByteArray_Resize$", first), first
