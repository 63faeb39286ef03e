"""The suites: which programs' own tests, where they come from, how a part of each is run and read.

A suite has parts (a module, a file of tests), each a process of its own. `prepare` fetches and builds what is needed,
`parts` names them, `command` gives argv, the folder to run in and further environment, `read` the outcome of each case.
`witness` is a command of the program that is under test; it proves that the library serves it.
"""
import glob
import os
import pathlib
import re
import shutil
import subprocess
import sys

from outcome import FAILED, PASSED, SKIPPED, Cases, Skip, from_junit, from_lines, from_tap
from sources import run


def need(program, package):
    path = shutil.which(program)
    if path is None:
        raise Skip(f"{program} is missing: install {package}")
    return path


class Suite:
    name = ""
    limit = 600     # seconds that a part may take
    at_once = True  # parts do not get in each other's way

    def prepare(self, archive):
        raise NotImplementedError

    def parts(self, quick):
        raise NotImplementedError

    def command(self, part, directory, lane):
        raise NotImplementedError

    def read(self, part, text, directory):
        return from_tap(text)


class Python(Suite):
    """CPython's own modules, with its own allocator out of the way, so that every object goes to malloc."""

    name = "python"
    limit = 900
    quick_modules = ["test_dict", "test_list", "test_weakref"]
    modules = [*quick_modules, "test_array", "test_asyncio", "test_bigmem", "test_buffer", "test_bytes", "test_bz2", "test_capi", "test_class", "test_codecs", "test_collections", "test_concurrent_futures", "test_copy", "test_ctypes", "test_deque", "test_descr", "test_exceptions", "test_fork1", "test_functools", "test_gc", "test_generators", "test_hashlib", "test_heapq", "test_io", "test_itertools", "test_json", "test_long", "test_lzma", "test_marshal", "test_memoryview", "test_mmap", "test_multiprocessing_fork", "test_multiprocessing_forkserver", "test_multiprocessing_spawn", "test_os", "test_pickle", "test_queue", "test_re", "test_set", "test_signal", "test_sort", "test_sqlite3", "test_ssl", "test_str", "test_struct", "test_subprocess", "test_sys", "test_thread", "test_threading", "test_threading_local", "test_tuple", "test_unicodedata", "test_userdict", "test_zlib"]
    # `-m test` starts another process in newer versions.
    runner = "from test.libregrtest.main import main\nmain()"

    def prepare(self, archive):
        candidates = [sys.executable]
        for folder in [*os.environ["PATH"].split(os.pathsep), "/usr/bin"]:
            candidates += sorted(glob.glob(folder + "/python3") + glob.glob(folder + "/python3.[0-9]*[0-9]"))
        for candidate in dict.fromkeys(candidates):
            found = subprocess.run([candidate, "-c", "import test.libregrtest, test.test_gc, sys; print(sys.executable)"],
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
            if found.returncode == 0:
                self.python = found.stdout.strip()
                known = "import importlib.util as u, sys\n" \
                        "print(*[m for m in sys.argv[1:] if u.find_spec('test.' + m)])"
                self.known = subprocess.run([self.python, "-c", known, *self.modules], stdout=subprocess.PIPE,
                                            text=True, check=True).stdout.split()
                self.witness = [self.python, "-c", "import json, ctypes"]
                return
        raise Skip("no python3 has its own test modules: install libpython3.N-testsuite ('./dev setup --programs')")

    def parts(self, quick):
        return [name for name in (self.quick_modules if quick else self.modules) if name in self.known]

    def command(self, part, directory, lane):
        argv = [self.python, "-c", self.runner, "--junit-xml", directory / "report.xml", "-u", "none", part]
        return argv, directory, {"PYTHONMALLOC": "malloc", "TMPDIR": str(directory)}

    def read(self, part, text, directory):
        return from_junit(directory / "report.xml")


class Perl(Suite):
    """Perl's t/, from its source package, with the system's perl of the same version."""

    name = "perl"
    limit = 300
    at_once = False  # some write into the tree
    folders = ("base", "cmd", "comp", "op", "re", "uni", "io", "lib", "mro")

    def prepare(self, archive):
        self.perl = need("perl", "perl")
        self.tree = archive.source("perl")
        paths = subprocess.run([self.perl, "-MConfig", "-e", 'print "$Config{archlibexp}\\n$Config{privlibexp}\\n"'],
                               stdout=subprocess.PIPE, text=True, check=True).stdout.split()
        for folder in paths:  # what building perl would have put into lib/
            for entry in pathlib.Path(folder).iterdir():
                target = self.tree / "lib" / entry.name
                if not target.exists() and not target.is_symlink():
                    target.symlink_to(entry)
        self.witness = [self.perl, "-e", "my @a = map { $_ x 10 } 1 .. 100000"]

    def parts(self, quick):
        folders = ("base", "cmd") if quick else self.folders
        return [f"{folder}/{path.name}" for folder in folders for path in sorted((self.tree / "t" / folder).glob("*.t"))]

    def command(self, part, directory, lane):
        return [self.perl, "-I../lib", part], self.tree / "t", {"TMPDIR": str(directory), "PERL_SKIP_TTY_TEST": "1"}


class Redis(Suite):
    """redis' own suite in Tcl, against the installed server; its allocator is a library that the preload replaces."""

    name = "redis"
    limit = 900
    quick_files = ["unit/type/list", "unit/type/incr"]
    files = [*quick_files, "unit/printver", "unit/dump", "unit/auth", "unit/protocol", "unit/keyspace", "unit/scan", "unit/info", "unit/type/string", "unit/type/list-2", "unit/type/set", "unit/type/zset", "unit/type/hash", "unit/type/stream", "unit/sort", "unit/expire", "unit/other", "unit/multi", "unit/scripting", "unit/bitops", "unit/bitfield", "unit/geo", "unit/hyperloglog", "unit/lazyfree", "unit/pubsub", "unit/slowlog", "unit/maxmemory", "unit/limits", "unit/introspection", "unit/latency-monitor", "unit/tracking", "integration/rdb", "integration/aof", "integration/replication"]

    def prepare(self, archive):
        self.tree = archive.source("redis")
        need("tclsh", "tcl")
        for program in ("redis-server", "redis-cli", "redis-benchmark", "redis-check-aof", "redis-check-rdb"):
            target = self.tree / "src" / program
            if not target.exists():
                target.symlink_to(need(program, "redis-server redis-tools"))
        self.witness = [self.tree / "src/redis-server", "--version"]

    def parts(self, quick):
        wanted = self.quick_files if quick else self.files
        return [name for name in wanted if (self.tree / "tests" / f"{name}.tcl").exists()]

    def command(self, part, directory, lane):
        # A tree of links per run: servers put their files below it.
        for name in ("src", "tests", "runtest", "redis.conf", "utils"):
            (directory / name).symlink_to(self.tree / name)
        (directory / "tests").unlink()
        shutil.copytree(self.tree / "tests", directory / "tests")
        port = str(21111 + 1000 * lane)
        argv = ["./runtest", "--clients", "1", "--single", part, "--baseport", port, "--portcount", "900"]
        return argv, directory, {"TERM": "dumb"}

    def read(self, part, text, directory):
        text = re.sub(r"\x1b\[[0-9;]*m", "", text)
        kinds = {PASSED: r"\[ok\]: (.*?)(?: \(\d+ ms\))?$", FAILED: r"\[(?:err|exception|timeout)\]: (.*?)(?: in | \(|$)",
                 SKIPPED: r"\[(?:skip|ignore)\]: (.*)"}
        cases = from_lines(text, kinds)
        cases.add("end", PASSED if "All tests passed without errors" in text else FAILED)
        return cases


class Busybox(Suite):
    """busybox' testsuite/, with the package's program (the dynamically linked one)."""

    name = "busybox"
    limit = 120
    quick_applets = ["awk", "sed", "tar", "sort"]

    def prepare(self, archive):
        self.tree = archive.source("busybox")
        place = archive.binary("busybox")
        found = [path for path in (place / "bin/busybox", place / "usr/bin/busybox") if path.exists()]
        if not found:
            raise Skip("the package busybox has no program")
        self.busybox = found[0]
        self.config = self.tree / "debian/config/pkg/deb"
        self.witness = [self.busybox, "sort", "/etc/services" if os.path.exists("/etc/services") else "/etc/passwd"]

    def parts(self, quick):
        folder = self.tree / "testsuite"
        names = {path.name[:-6] for path in folder.glob("*.tests")}
        names |= {path.name for path in folder.iterdir() if path.is_dir()}
        return sorted(names & set(self.quick_applets) if quick else names)

    def command(self, part, directory, lane):
        shutil.copytree(self.tree / "testsuite", directory / "testsuite", symlinks=True)
        (directory / "scripts").symlink_to(self.tree / "scripts")
        build = directory / "build"
        build.mkdir()
        shutil.copy(self.busybox, build / "busybox")
        shutil.copy(self.config, build / ".config")
        argv = ["sh", "./runtest", "-v", part]
        return argv, directory / "testsuite", {"bindir": str(build), "tsdir": str(directory / "testsuite")}

    def read(self, part, text, directory):
        return from_lines(text, {PASSED: r"PASS: (.*)", FAILED: r"FAIL: (.*)", SKIPPED: r"(?:SKIPPED|UNTESTED): (.*)"})


class Git(Suite):
    """git's t/, on a git that is built from its source package, without what needs further libraries."""

    name = "git"
    limit = 900
    quick_numbers = ("t0001", "t1300")
    numbers = (*quick_numbers, "t0000", "t0003", "t0008", "t0020", "t0021", "t0040", "t1000", "t1006", "t1400", "t1500", "t2000", "t2200", "t3000", "t3200", "t3400", "t3404", "t3600", "t3700", "t3900", "t4000", "t4013", "t4015", "t4100", "t4200", "t4202", "t5000", "t5300", "t5302", "t5303", "t5304", "t5310", "t5400", "t5500", "t5510", "t5601", "t6000", "t6012", "t6020", "t6030", "t6120", "t6300", "t6500", "t7003", "t7004", "t7006", "t7101", "t7201", "t7300", "t7400", "t7500", "t7600", "t7700", "t7800", "t8001", "t9300")

    def prepare(self, archive):
        self.tree = archive.source("git")
        if not (self.tree / "t/helper/test-tool").exists() or not (self.tree / "git").exists():
            need("make", "make")
            if not os.path.exists("/usr/include/zlib.h"):
                raise Skip("building git needs zlib: install zlib1g-dev")
            switches = [f"NO_{what}=1" for what in
                        ("CURL", "EXPAT", "OPENSSL", "GETTEXT", "TCLTK", "PYTHON", "INSTALL_HARDLINKS")]
            run(["make", "-j2", "CFLAGS=-O1", *switches, "all"], self.tree, "building git", archive.log)
        self.witness = [self.tree / "git", "--version"]

    def parts(self, quick):
        wanted = self.quick_numbers if quick else self.numbers
        return [path.name for path in sorted((self.tree / "t").glob("t[0-9]*.sh")) if path.name[:5] in wanted]

    def command(self, part, directory, lane):
        argv = ["sh", f"./{part}", f"--root={directory}/trash", "--no-color"]
        return argv, self.tree / "t", {"TEST_OUTPUT_DIRECTORY": str(directory), "TERM": "dumb"}


class Sqlite(Suite):
    """SQLite's tests in Tcl, on a test program that is built from its source package."""

    name = "sqlite"
    limit = 900
    quick_files = ("select1", "index")
    files = (*quick_files, "alter", "analyze", "attach", "autovacuum", "backup", "between", "bigrow", "blob", "btree01", "cast", "check", "collate1", "conflict", "corrupt", "date", "delete", "distinct", "expr", "fkey2", "func", "hook", "in", "incrblob", "insert", "intpkey", "join", "json101", "limit", "lock", "malloc3", "memdb", "misc1", "null", "pager1", "pragma", "quote", "rollback", "rowid", "savepoint", "select2", "select3", "select4", "shared", "sort", "subquery", "table", "temptable", "thread001", "trans", "trigger1", "types", "unique", "update", "vacuum", "view", "wal", "where", "with1", "window1", "zeroblob", "fts3aa", "rtree1")

    def prepare(self, archive):
        self.tree = archive.source("sqlite3")
        self.program = self.tree / "testfixture"
        if not self.program.exists():
            need("make", "make")
            if not (os.path.exists("/usr/include/tcl.h") or glob.glob("/usr/include/tcl*/tcl.h")):
                raise Skip("building SQLite's test program needs Tcl: install tcl-dev")
            if not (self.tree / "Makefile").exists():
                run(["sh", "./configure", "--disable-readline"], self.tree, "configuring SQLite", archive.log)
            run(["make", "-j2", "testfixture"], self.tree, "building SQLite's test program", archive.log,
                {"CFLAGS": "-O1"})
        self.witness = [self.program, self.tree / "test/select1.test"]

    def parts(self, quick):
        wanted = self.quick_files if quick else self.files
        places = [self.tree / "test", self.tree / "ext/fts3", self.tree / "ext/rtree"]
        found = [place / f"{name}.test" for name in wanted for place in places]
        return [str(path.relative_to(self.tree)) for path in found if path.exists()]

    def command(self, part, directory, lane):
        return [self.program, self.tree / part], directory, {}

    def read(self, part, text, directory):
        """Cases of a failing n-th allocation are one: how many there are depends on how much room blocks have, which SQLite
        asks for (malloc_usable_size). With what glibc says rounded down to 16 they are others on the same malloc."""
        found = from_lines(text, {FAILED: r"! (\S+) (?:expected|got)", PASSED: r"(\S+?)\.\.\. ?Ok$"})
        cases = Cases()
        for name, outcome in found.items():
            folded, counted = re.subn(r"(\.pc=\d+)?\.iFail=\d+", ".iFail=n", name)
            if not counted:
                cases.add(name, outcome)
                continue
            folded = re.sub(r" \(\d+\)$", "", folded)
            if cases.get(folded) != FAILED:
                cases[folded] = outcome
        end = re.search(r"(\d+) errors out of (\d+) tests", text)
        cases.add("end", PASSED if end and end.group(1) == "0" else FAILED)
        if len(found) == len(cases) - 1:
            cases.add(f"count {end.group(2) if end else 'unknown'}", PASSED)
        return cases


class Php(Suite):
    """PHP's own tests, from its source package, with the installed PHP, which opens its extensions with RTLD_DEEPBIND. Zend's
    allocator takes pages from the system, so that a part `malloc/...` runs without it."""

    name = "php"
    limit = 900
    quick_folders = ["ext/json/tests", "malloc/tests/classes"]
    folders = [*quick_folders, "Zend/tests", "tests/lang", "ext/bcmath/tests", "ext/ctype/tests", "ext/date/tests", "ext/dom/tests", "ext/ffi/tests", "ext/gmp/tests", "ext/iconv/tests", "ext/intl/tests", "ext/libxml/tests", "ext/mbstring/tests", "ext/opcache/tests", "ext/pcntl/tests", "ext/pcre/tests", "ext/pdo_sqlite/tests", "ext/phar/tests", "ext/posix/tests", "ext/reflection/tests", "ext/session/tests", "ext/simplexml/tests", "ext/sockets/tests", "ext/spl/tests", "ext/sqlite3/tests", "ext/standard/tests/array", "ext/standard/tests/general_functions", "ext/standard/tests/serialize", "ext/standard/tests/strings", "ext/tokenizer/tests", "ext/xml/tests", "ext/xmlreader/tests", "ext/xmlwriter/tests", "ext/xsl/tests", "ext/zlib/tests", "malloc/ext/dom/tests", "malloc/ext/spl/tests", "malloc/ext/standard/tests/array", "malloc/ext/standard/tests/strings"]

    def prepare(self, archive):
        self.php = need("php", "php-cli php-xml php-sqlite3 php-mbstring php-intl php-gmp php-bcmath")
        version = subprocess.run([self.php, "-r", "echo PHP_MAJOR_VERSION, '.', PHP_MINOR_VERSION;"], stdout=subprocess.PIPE,
                                 text=True, check=True).stdout
        self.tree = archive.source(f"php{version}")
        self.witness = [self.php, "-r", "$values = array_map('strrev', range(1, 100000));"]

    def parts(self, quick):
        folders = self.quick_folders if quick else self.folders
        return [name for name in folders if (self.tree / name.removeprefix("malloc/")).is_dir()]

    def command(self, part, directory, lane):
        # Tests write beside themselves; those of databases read what lies in ext/pdo.
        folder = part.removeprefix("malloc/")
        shutil.copytree(self.tree / folder, directory / folder, symlinks=True)
        (directory / "ext").mkdir(exist_ok=True)
        (directory / "ext/pdo").symlink_to(self.tree / "ext/pdo")
        shutil.copy(self.tree / "run-tests.php", directory)
        argv = [self.php, "run-tests.php", "-q", "-p", self.php, folder]
        extra = {"TEST_PHP_JUNIT": str(directory / "report.xml"), "TMPDIR": str(directory), "NO_INTERACTION": "1",
                 "SKIP_ONLINE_TESTS": "1", "SKIP_SLOW_TESTS": "1", "USE_ZEND_ALLOC": "0" if part != folder else "1"}
        return argv, directory, extra

    def read(self, part, text, directory):
        return from_junit(directory / "report.xml")


SUITES = {suite.name: suite for suite in (Python, Perl, Redis, Busybox, Git, Sqlite, Php)}
