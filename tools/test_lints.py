#!/usr/bin/env python3
"""The lints' own test: each finds the violations planted for it, passes what is allowed, and fails on nothing."""
import contextlib
import io
import pathlib
import shutil
import tempfile
import unittest
from unittest import mock

import lint
import lint_circles
import lint_contracts
import lint_format
import lint_generated
import lint_idioms
import lint_lab
import lint_layers
import lint_python
import lint_scripts
import lint_shape
import lint_text
import lint_tidy
import lint_workflows
import test_documented

HEADER = "/* What this file is for. */\n"


class LintTest(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.root)

    def plant(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())

    def findings(self, module):
        with contextlib.redirect_stdout(io.StringIO()):
            return module.run(self.root)[1]

    def assert_finds(self, module, *wanted):
        """The lint finds exactly these, in any order, each recognised by a part of it."""
        found = self.findings(module)
        for part in wanted:
            self.assertTrue(any(part in finding for finding in found), f"{part!r} not in {found}")
        self.assertEqual(len(found), len(wanted), found)


class Layers(LintTest):
    def setUp(self):
        super().setUp()
        for name in ("base/bits.h", "span/span.h", "harden/harden.h", "huge/huge.h", "process/request.h"):
            self.plant(f"src/{name}", HEADER)
        self.plant("include/hakmem.h", HEADER)

    def test_allowed(self):
        self.plant("src/span/span.c", '#include "span/span.h"\n#include "base/bits.h"\n#include "hakmem.h"\n')
        self.plant("src/harden/harden.c", '#include "span/span.h"\n')
        self.plant("src/process/request.c", '#include "process/request.h"\n#include "huge/huge.h"\n#include <stdlib.h>\n')
        self.assert_finds(lint_layers)

    def test_upward(self):
        self.plant("src/base/bits.c", '#include "span/span.h"\n')
        self.assert_finds(lint_layers, "src/base/bits.c:1: includes \"span/span.h\": base/ lies below span/")

    def test_top(self):
        self.plant("src/huge/huge.c", '\n  #  include "process/request.h"\n')
        self.assert_finds(lint_layers, "src/huge/huge.c:2:")

    def test_kinds(self):
        self.plant("src/kinds/kind.h", '#include "process/request.h"\n')
        self.plant("src/entry/free.c", '#include "kinds/kind.h"\n')
        self.assert_finds(lint_layers)
        self.plant("src/entry/api.h", HEADER)
        self.plant("src/kinds/kind.c", '#include "entry/api.h"\n')
        self.plant("src/process/request.c", '#include "kinds/kind.h"\n')
        self.assert_finds(lint_layers, "kinds/ lies below entry/", "process/ lies below kinds/")

    def test_peers(self):
        self.plant("src/sample/guarded.c", '#include "harden/harden.h"\n')
        self.assert_finds(lint_layers, "are peers")

    def test_relative_to_file(self):
        self.plant("src/span/span.c", '#include "span.h"\n')
        self.assert_finds(lint_layers, "neither under src/")

    def test_unknown_folder(self):
        self.plant("src/misc/misc.c", HEADER)
        self.assert_finds(lint_layers, "misc/ is not in the order")

    def test_unity(self):
        self.plant("src/span/span.c", HEADER)
        self.plant("src/heap/heap.c", HEADER)
        self.plant("src/unity.c", '#include "span/span.c"\n')
        self.assert_finds(lint_layers, "src/unity.c: includes heap/heap.c 0 times")
        self.plant("src/unity.c", '#include "span/span.c"\n#include "heap/heap.c"\n')
        self.assert_finds(lint_layers)


class Circles(LintTest):
    def setUp(self):
        super().setUp()
        self.except_for()

    def except_for(self, *entries):
        patch = mock.patch.object(lint_circles, "EXCEPTIONS", entries)
        patch.start()
        self.addCleanup(patch.stop)

    def plant_calls(self, **calls):
        """span_a="span/b" plants src/span/a.c, with a function that calls the one of src/span/b.c."""
        for caller, called in calls.items():
            caller = caller.replace("_", "/")
            body = "".join(f"    hak__{name.replace('/', '_')}();\n" for name in called.split())
            self.plant(f"src/{caller}.c", f"void hak__{caller.replace('/', '_')}(void)\n{{\n{body}}}\n")

    def test_two_of_one_folder(self):
        self.plant_calls(span_a="span/b", span_b="span/a base/a", base_a="")
        self.assert_finds(lint_circles)

    def test_three_of_one_folder(self):
        self.plant_calls(span_a="span/b", span_b="span/c", span_c="span/a", span_d="span/a")
        self.assert_finds(lint_circles, "a circle: span/a span/b span/c")

    def test_two_folders(self):
        self.plant_calls(span_a="base/a", base_a="span/a")
        self.assert_finds(lint_circles, "a circle: base/a span/a")

    def test_outside_the_folders(self):
        self.plant_calls(a="b", b="a")
        self.assert_finds(lint_circles, "a circle: a b")

    def test_all_circles_are_found(self):
        self.plant_calls(a="b", b="a c", c="d", d="c")
        self.assert_finds(lint_circles, "circle: a b", "circle: c d")

    def plant_way_back(self, way, header=""):
        """base/a.c calls span/a.c by this way only, and that calls it plainly."""
        self.plant_calls(span_a="base/a")
        self.plant("src/span/a.h", header + "void hak__span_a(void);\n")
        self.plant("src/base/a.c", way)

    def test_by_macro_and_inline_function(self):
        self.plant_way_back("void hak__base_a(void)\n{\n    MACRO(1);\n}\n",
                            "#define MACRO(x) \\\n    inlined(x)\n"
                            "static inline void inlined(int x)\n{\n    hak__span_a();\n}\n")
        self.assert_finds(lint_circles, "a circle: base/a span/a")

    def test_by_private_function(self):
        self.plant_way_back("static void f(void)\n{\n    hak__span_a();\n}\nvoid hak__base_a(void)\n{\n    f();\n}\n")
        self.assert_finds(lint_circles, "a circle: base/a span/a")

    def test_by_table(self):
        self.plant_way_back("void hak__base_a(void)\n{\n}\nstatic void (*const table[])(void) = { hak__span_a };\n")
        self.assert_finds(lint_circles, "a circle: base/a span/a")

    def test_what_is_no_call(self):
        """A declaration, a comment, a string, a type, and an inline function that is not used."""
        self.plant_way_back("/* hak__span_a() */\nvoid hak__span_a(void);\n"
                            "void hak__base_a(void)\n{\n    enum hak__span_a x; say(\"hak__span_a()\");\n}\n",
                            "static inline void unused(void)\n{\n    hak__span_a();\n}\n")
        self.assert_finds(lint_circles)

    def test_private_functions_of_one_name(self):
        self.plant_calls(span_a="base/a", span_b="")
        self.plant("src/base/a.c", "void hak__base_a(void)\n{\n    hak__same();\n}\n")
        self.plant("src/span/a.c", "static void hak__same(void)\n{\n    hak__base_a();\n}\n")
        self.assert_finds(lint_circles)

    def test_by_header(self):
        """A header counts with its source: one calls, the other's header includes."""
        self.plant_calls(span_a="base/a", base_a="")
        self.plant("src/span/a.h", HEADER)
        self.plant("src/base/a.h", '#include "span/a.h"\n')
        self.assert_finds(lint_circles, "a circle: base/a span/a")

    def test_by_headers_alone(self):
        self.plant("src/span/a.h", '#include "span/b.h"\n')
        self.plant("src/span/b.h", '#include "span/c.h"\n')
        self.plant("src/span/c.h", '#include "span/a.h"\n')
        self.assert_finds(lint_circles, "a circle: span/a span/b span/c")

    def test_exceptions(self):
        self.except_for(("span/a", "span/b", "span/c"))
        self.plant_calls(span_a="span/b", span_b="span/c", span_c="span/a")
        self.assert_finds(lint_circles)
        self.plant_calls(span_c="span/a span/d", span_d="span/a")
        self.assert_finds(lint_circles, "a circle: span/a span/b span/c span/d", "no longer in a circle")

    def test_exceptions_that_are_not_needed(self):
        self.except_for(("span/a", "span/b", "span/c", "span/d"))
        self.plant_calls(span_a="span/b", span_b="span/c", span_c="span/a")
        self.assert_finds(lint_circles, "no longer in a circle: span/d")
        self.plant_calls(span_b="span/a")
        self.assert_finds(lint_circles, "no longer in a circle: span/a span/b span/c span/d")


class Contracts(LintTest):
    def setUp(self):
        super().setUp()
        for name, value in (("ASSERTS", {"": 100, "base": 200}), ("UNTESTED", 1)):
            patch = mock.patch.object(lint_contracts, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        self.plant("src/base/a.h", "#define hak_assert(c, what)\n\n\n\n")
        self.plant("src/base/a.c", "void f(void)\n{\n    hak_assert(1, \"\");\n    hak_assert(2, \"\");\n}\n\n")

    def test_figures_that_hold(self):
        self.assert_finds(lint_contracts)

    def test_asserts_fall(self):
        """A comment, a text and the macro itself are no asserts."""
        self.plant("src/base/a.c", "void f(void)\n{\n    hak_assert(1, \"hak_assert(\");   /* hak_assert( */\n}\n")
        self.assert_finds(lint_contracts, "src/base: 125.0 asserts in a thousand lines; at least 200")

    def test_asserts_of_all_fall(self):
        self.plant("src/b.h", "\n" * 20)
        self.assert_finds(lint_contracts, "src: 66.7 asserts in a thousand lines; at least 100")

    def test_folder_that_is_gone(self):
        lint_contracts.ASSERTS["os"] = 1
        self.assert_finds(lint_contracts, "there is no folder src/os")

    def test_modules_without_a_test(self):
        self.plant("src/base/b.c", "    hak_assert(1, \"\");\n")
        self.assert_finds(lint_contracts, "2 modules without a unit test of their name; at most 1: base/a.c base/b.c")
        self.plant("tests/unit/test_a.c", "int x;\n")
        self.assert_finds(lint_contracts)


class Shape(LintTest):
    def test_allowed(self):
        body = "    x++;\n" * 37
        self.plant("src/a.c", HEADER + "static void f(int x)\n{\n" + body + "}\n")
        self.plant("src/table.c", HEADER + "static const int table[] = {\n" + "    1,\n" * 100 + "};\n")
        self.plant("include/h.h", "// For all.\nextern \"C\" {\n" + "void g(void);\n" * 100 + "}\n")
        self.assert_finds(lint_shape)

    def test_long_file(self):
        self.plant("src/a.c", HEADER + "int x;\n" * 600)
        self.assert_finds(lint_shape, "601 lines")

    def test_no_header(self):
        self.plant("src/a.c", "#include <stdlib.h>\n")
        self.assert_finds(lint_shape, "does not begin with a comment")


@unittest.skipUnless(lint_tidy.installed(), "clang-tidy is not installed")
class Tidy(LintTest):
    def test_allowed(self):
        self.plant("src/a.c", HEADER + "int f(int x);\nint f(int x)\n{\n" + "    x++;\n" * 37 + "    return x;\n}\n")
        self.assert_finds(lint_tidy)

    def test_long_function(self):
        body = "    if (x) {\n        x++; /* } */\n    }\n" * 14
        self.plant("src/a.c", HEADER + "void f(int x);\nvoid f(int x)\n{\n" + body + "}\n")
        self.assert_finds(lint_tidy, "src/a.c:3: function 'f' exceeds")

    def test_long_function_in_a_header(self):
        self.plant("src/a.h", HEADER + "static inline void g(int x)\n{\n" + "    x++;\n" * 60 + "}\n")
        self.plant("src/unity.c", HEADER + '#include "a.h"\n')
        self.assert_finds(lint_tidy, "src/a.h:2: function 'g' exceeds")

    def test_name(self):
        self.plant("src/a.c", HEADER + "static int tooBig;\nint f(void);\nint f(void) { return tooBig; }\n")
        self.assert_finds(lint_tidy, "src/a.c:2: invalid case style for variable 'tooBig'")

    def test_mistake(self):
        self.plant("src/a.c", HEADER + "int f(int x);\nint f(int x)\n{\n    if (x);\n        x++;\n    return x;\n}\n")
        self.assert_finds(lint_tidy, "[bugprone-")

    def test_what_does_not_compile(self):
        self.plant("src/a.c", HEADER + "int f(void) { return x; }\n")
        self.assert_finds(lint_tidy, "src/a.c:2: use of undeclared identifier")


@unittest.skipUnless(lint_format.installed(), "clang-format is not installed")
class Format(LintTest):
    def test_allowed(self):
        self.plant("src/a.c", HEADER + "#define LIST(X) \\\n    X(a,  1) \\\n    X(bb, 2)\n\nint f(int x)\n{\n    x++;\n    return x;\n}\n")
        self.assert_finds(lint_format)

    def test_layout(self):
        self.plant("src/a.c", HEADER + "int f(int x) {\n  return x;\n}\n")
        self.assert_finds(lint_format, "src/a.c: python3 tools/lint_format.py --write src/a.c formats it")


class Idioms(LintTest):
    def test_allowed(self):
        self.plant("src/base/atomic.h", "#include <stdatomic.h>\n#define hak_load(p) atomic_load_explicit(p, 0)\n")
        self.plant("src/a.c", "#if X\nvoid f(void) { hak_load(p); } /* atomic_load(p) */\n#endif\n_Atomic int x;\n")
        self.plant("src/os/linux.c", "void f(void)\n{\n#if X\n    g();\n#endif\n}\n")
        self.assert_finds(lint_idioms)

    def test_atomics(self):
        self.plant("src/a.c", "#include <stdatomic.h>\nint f(void) { return __atomic_load_n(&x, 0); }\n"
                              "int g(void) { return atomic_fetch_add(&x, 1); }\nvoid h(void) { __sync_synchronize(); }\n")
        self.assert_finds(lint_idioms, "a.c:1:", "a.c:2: '__atomic_load_n(", "a.c:3: 'atomic_fetch_add(", "a.c:4:")

    def test_kinds(self):
        for where in ("src/kinds/sampled.c", "src/sample/guarded.c", "src/entry/realloc.c", "tests/unit/test_sample.c"):
            self.plant(where, "bool f(void *p) { return hak__sample_has(p); }\n")
        self.assert_finds(lint_idioms, "src/entry/realloc.c:1: hak__sample_has")

    def test_condition_in_function(self):
        self.plant("src/heap/heap.c", "void f(void)\n{\n    #ifdef X\n    g();\n    #endif\n}\n")
        self.assert_finds(lint_idioms, "src/heap/heap.c:3: conditional compilation inside f")


class Text(LintTest):
    def test_allowed(self):
        self.plant("src/a.c", "/* see /usr/include and src/" + "root/x and $" + "work/y, https://semver.org/ */\n")
        self.plant("a.md", "two blanks break a line  \n")
        self.plant("out/x", b"\0")
        self.assert_finds(lint_text)

    def test_paths_and_servers(self):
        self.plant("a.md", "in /" + "root/x and '/" + "home/me/x'\n")
        self.plant("b.sh", "curl https:/" + "/download.example/x\n")
        self.plant("c.sh", "curl https:/" + "/semver.org.example/x\n")
        self.assert_finds(lint_text, "a.md:1: a path", "a.md:1: a path", "b.sh:1: a server", "c.sh:1: a server")

    def test_not_text(self):
        self.plant("a.bin", b"ELF\0")
        self.plant("big.txt", "x\n" * (300 << 10))
        self.plant("a.c", "int x; \nint y;")
        self.assert_finds(lint_text, "a.bin: is not text", "big.txt: 600 KiB", "a.c:1: blanks", "a.c: no newline")

    def test_records(self):
        head = "# 0001: a title\n\n**Question.** Why?\n\n**Answer.** So.\n"
        self.plant("docs/decisions/0001-short.md", head + "| a | b |\n" * 100)
        self.plant("docs/decisions/README.md", "word " * 900 + "\n")
        self.plant("docs/decisions/0002-long.md", head + "word " * 250 + "\n")
        self.plant("docs/decisions/0003-without.md", "# 0003: a title\n")
        self.assert_finds(lint_text, "0002-long.md: 257 words", "0003-without.md: has no **Question.**", "has no **Answer.**")


class Generated(LintTest):
    def test_check(self):
        self.plant("tools/gen_good.py", "import sys\nsys.exit(sys.argv[1:] != ['--check'])\n")
        self.assert_finds(lint_generated)
        self.plant("tools/gen_stale.py", "import sys\nsys.exit('table.def is out of date')\n")
        self.assert_finds(lint_generated, "gen_stale.py --check: table.def is out of date")


class Scripts(LintTest):
    def test_python(self):
        self.plant("a.py", "print('fine')\n")
        self.assert_finds(lint_scripts)
        self.plant("b.py", "def f(:\n")
        self.assert_finds(lint_scripts, "b.py:1:")

    @unittest.skipUnless(lint_scripts.shellcheck_command(), "shellcheck is not installed")
    def test_shellcheck(self):
        self.plant("run", "#!/bin/sh\ncd $1 || exit\n")
        self.assert_finds(lint_scripts, "SC2086")


@unittest.skipUnless(lint_lab.installed("ruff") and lint_lab.installed("mypy"), "ruff and mypy are not installed")
class Python(LintTest):
    def test_allowed(self):
        self.plant("tools/a.py", "import b\n\nprint(b.half(2))\n")
        self.plant("tools/b.py", "def half(value):\n    return value / 2\n")
        self.assert_finds(lint_python)

    def test_ruff(self):
        self.plant("tools/a.py", "import os\n")
        self.assert_finds(lint_python, "tools/a.py:1:8: F401")

    def test_mypy(self):
        self.plant("bench/a.py", "import b\n\nprint(b.half(2, 3))\n")
        self.plant("bench/b.py", "def half(value):\n    return value / 2\n")
        self.assert_finds(lint_python, "bench/a.py:3: error: Too many arguments")


class Lab(LintTest):
    def setUp(self):
        super().setUp()
        rules = pathlib.Path(__file__).resolve().parent.parent / "lab" / "pyproject.toml"
        self.plant("lab/pyproject.toml", rules.read_text())
        self.plant("lab/tests/test_a.py", "def test_a() -> None:\n    assert 1 + 1 == 2\n")

    @unittest.skipUnless(lint_lab.installed("ruff"), "ruff is not installed")
    def test_ruff(self):
        self.plant("lab/src/a.py", "import os\n")
        self.assert_finds(lint_lab, "lab/src/a.py:1:8: F401")

    @unittest.skipUnless(lint_lab.installed("mypy"), "mypy is not installed")
    def test_mypy(self):
        self.plant("lab/src/a.py", "def half(value: int) -> int:\n    return value / 2\n")
        self.assert_finds(lint_lab, "lab/src/a.py:2: error: Incompatible return value")

    def plant_folders(self, **content):
        layers = ("terminal", "children", "target", "inspect", "profile", "measure", "decide", "experiment", "pages", "fleet", "commands",
                  "cli", "man", "__main__")
        self.plant("lab/src/hakmem_lab/__init__.py", "")
        for name in layers:
            self.plant(f"lab/src/hakmem_lab/{name}.py", content.get(name, ""))

    @unittest.skipUnless(lint_lab.installed("lint-imports"), "import-linter is not installed")
    def test_imports(self):
        self.plant_folders(decide="from hakmem_lab import target\n\n__all__ = [\"target\"]\n")
        self.assert_finds(lint_lab)
        self.plant_folders(target="from hakmem_lab import decide\n\n__all__ = [\"decide\"]\n")
        self.assert_finds(lint_lab, "lab/hakmem_lab.target -> hakmem_lab.decide (l.1)")

    def test_allowed(self):
        self.plant("lab/src/a.py", "def half(value: int) -> float:\n    return value / 2\n")
        self.assert_finds(lint_lab)


class Workflows(LintTest):
    FILE = ".github/workflows/a.yml"
    GOOD = "name: a\non:\n  push:\npermissions:\n  contents: read\njobs:\n  a:\n    runs-on: ubuntu-24.04\n    steps:\n      - run: ./dev lint\n"

    def test_allowed(self):
        self.plant(self.FILE, self.GOOD)
        self.assert_finds(lint_workflows)

    def test_another_command(self):
        self.plant(self.FILE, self.GOOD + "      - run: make\n")
        self.assert_finds(lint_workflows, "a.yml:11: runs 'make'")
        self.plant(self.FILE, self.GOOD + "      - name: a block\n        run: |\n          make\n")
        self.assert_finds(lint_workflows, "a.yml:12: runs 'make'")

    def test_no_permissions(self):
        self.plant(self.FILE, self.GOOD.replace("permissions", "permission"))
        self.assert_finds(lint_workflows, "has no 'permissions:'")

    @unittest.skipUnless(shutil.which("actionlint"), "actionlint is not installed")
    def test_actionlint(self):
        self.plant(self.FILE, self.GOOD.replace("    runs-on", "    runs-in"))
        self.assertTrue(self.findings(lint_workflows))


class Documented(LintTest):
    PAGE = "- `api.test_a` (checked): NULL\n- `unit.*` (checked): modules\n"
    NAMES = {"api.test_a", "unit.test_b"}

    def compare(self, page, names):
        return list(test_documented.compare(test_documented.documented(page), names, {"checked"}))

    def test_agreement(self):
        self.assertEqual(self.compare(self.PAGE, self.NAMES), [])

    def test_a_test_that_the_page_does_not_have(self):
        (finding,) = self.compare(self.PAGE, {*self.NAMES, "golden.test_new"})
        self.assertIn("golden.test_new is not in docs/tests.md", finding)

    def test_a_test_that_ctest_does_not_have(self):
        (finding,) = self.compare(self.PAGE + "- `race.*` (checked): schedules\n", self.NAMES)
        self.assertIn("race.* is in docs/tests.md, but ctest does not know it", finding)
        self.assertEqual(self.compare(self.PAGE + "- `misuse.*` (release): mistakes\n", self.NAMES), [])

    def test_a_figure_that_the_page_of_statistics_does_not_have(self):
        self.plant("src/diag/stats.def", 'HAK_STATS_FIGURE(calls, new, COUNTER)\nHAK_STATS_COLUMN(size, "size")\n')
        self.plant("docs/statistics.md", "| `size` | bytes of a block; newer |\n")
        (finding,) = test_documented.missing_figures(self.root)
        self.assertIn("the figure new of src/diag/stats.def is not in docs/statistics.md", finding)
        self.plant("docs/statistics.md", "| `size`, `new` | both |\n")
        self.assertEqual(list(test_documented.missing_figures(self.root)), [])


@mock.patch.object(lint_circles, "EXCEPTIONS", ())
@mock.patch.object(lint_contracts, "ASSERTS", {})
class Runner(LintTest):
    def run_all(self, *options):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            status = lint.main([*options, str(self.root)])
        return status, said.getvalue()

    def test_nothing_to_look_at(self):
        status, said = self.run_all()
        self.assertEqual(status, 1)
        self.assertEqual(said.count("looked at no file"), len(lint.LINTS))
        self.assertIn("lint: FAIL", said.splitlines()[-1])

    def test_sources_only(self):
        self.plant("src/a.c", HEADER)
        self.plant("tools/gen_a.py", "import os\n")
        self.plant("b.md", "blanks \n")
        self.assertEqual(self.run_all("--sources")[0], 0)
        self.plant("src/base/a.c", HEADER + '#include "a.c"\n')
        self.assertEqual(self.run_all("--sources")[0], 1)

    def test_clean_tree(self):
        self.plant("src/a.c", HEADER)
        self.plant("tools/gen_a.py", "")
        self.plant(Workflows.FILE, Workflows.GOOD)
        self.plant("lab/pyproject.toml", '[tool.mypy]\nfiles = ["src", "tests"]\n')
        for name in ("src", "tests"):
            self.plant(f"lab/{name}/{name}_a.py", "A = 1\n")
        status, said = self.run_all()
        self.assertEqual((status, said.splitlines()[-1]), (0, "lint: OK"))


if __name__ == "__main__":
    unittest.main()
