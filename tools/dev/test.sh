# shellcheck shell=sh disable=SC2154   # assigned in common.sh, install.sh and dev
# ./dev test, check, lint, soak.
TEST_JOBS=2

# attribute NAME FILE: a number from the first element of a JUnit report.
attribute() {
  sed -n "/<testsuite /,/>/s/.*[[:space:]]$1=\"\([0-9]*\)\".*/\1/p" "$2" | head -n 1
}

# test_lab [PYTEST OPTION...]: the lab's tests, on the release build; adds to passed, failed and skipped.
test_lab() {
  say "== lab"
  if ! build_preset release; then
    failed=$((failed + 1))
    return 0
  fi
  if ! lab_test_environment; then
    say "the lab's tests were skipped"
    skipped=$((skipped + 1))
    return 0
  fi
  ensure browser || say "the lab's pages are not opened in a browser"
  find_manager
  without_services ensure promtool || say "the lab's metrics are not checked by promtool"
  report=$root/$LOGS/test-lab.xml
  rm -f "$report"
  # Each test has a limit of its own (lab/pyproject.toml); this one is for what hangs between them.
  (cd lab && timeout -k 60 3600 "../$LAB/bin/python" -m pytest -n "$TEST_JOBS" --dist loadfile --junit-xml="$report" "$@" </dev/null) || true
  if [ ! -f "$report" ]; then
    say "lab: pytest left no report"
    failed=$((failed + 1))
    return 0
  fi
  counts=$("$LAB/bin/python" - "$report" <<'PYTHON'
import sys
from xml.etree import ElementTree
suites = list(ElementTree.parse(sys.argv[1]).iter("testsuite"))
count = lambda name: sum(int(suite.get(name, "0")) for suite in suites)
bad = count("failures") + count("errors")
print(max(0, count("tests") - bad - count("skipped")), bad, count("skipped"))
PYTHON
  ) || counts="0 1 0"
  # Three numbers, meant to be split.
  # shellcheck disable=SC2086
  set -- $counts
  if [ "$1 $2 $3" = "0 0 0" ]; then
    say "the lab has no such tests"
    set -- 0 1 0
  fi
  passed=$((passed + $1))
  failed=$((failed + $2))
  skipped=$((skipped + $3))
}

# test_preset PRESET [CTEST OPTION...]: builds what of it $target names, all without, tests, adds to passed, failed and skipped.
target=
test_preset() {
  preset=$1
  shift
  say "== $preset"
  report=$root/$LOGS/test-$preset.xml
  rm -f "$report"
  if ! build_preset "$preset" "$target"; then
    say "$preset does not build"
    failed=$((failed + 1))
    return 0
  fi
  ctest --test-dir "out/$preset" --output-on-failure -j "$TEST_JOBS" --output-junit "$report" "$@" </dev/null || true
  if [ ! -f "$report" ]; then
    say "$preset: ctest left no report"
    failed=$((failed + 1))
    return 0
  fi
  all=$(attribute tests "$report")
  bad=$(attribute failures "$report")
  unrun=$(attribute skipped "$report")
  off=$(attribute disabled "$report")
  if [ "$all" = 0 ] && [ $# = 0 ]; then
    say "$preset has no tests"
    failed=$((failed + 1))
  fi
  passed=$((passed + all - bad - unrun - off))
  failed=$((failed + bad))
  skipped=$((skipped + unrun))
}

# test_system NAME PRESET [CTEST OPTION...]: the same for docs/compatibility.md, unless only a part of the list is asked for.
test_system() {
  system=$1
  shift
  test_preset "$@"
  [ -n "$some" ] || [ ! -f "$report" ] || python3 -B tools/systems.py note "$system" "$report"
}

# test_musl_brief: the short list of musl, where its tools can be had.
test_musl_brief() {
  if ensure musl && quietly cross python3 -B tools/cross.py --tests x86_64-linux-musl; then
    target=brief_programs
    test_preset musl -L '^brief$' "$@"
    target=
  else
    say "the tests on musl were skipped"
    skipped=$((skipped + 1))
  fi
}

# test_mutants [ARGUMENT...]: changes the lab's code in small ways and runs the tests of what was changed.
test_mutants() {
  ensure build test
  build_preset release && lab_test_environment || exit 1
  quietly mutants "$LAB/bin/python" -m pip install --disable-pip-version-check 'cosmic-ray>=8' 'coverage>=7.10' || exit 1
  lab_tool tools/mutants.py "$@"
}

cmd_test() {
  if [ "${1:-} ${2:-}" = "lab --mutants" ]; then
    shift 2
    test_mutants "$@"
  fi
  if wants_help "$@"; then
    usage
    return 0
  fi
  if [ "${1:-}" = root ]; then
    shift
    ensure build package_test
    case ${1:-} in
      bullseye) build_preset release hakmem && build_preset release hakmem_region || exit 1 ;;
      *) build_preset release && build_preset debug check_programs || exit 1 ;;
    esac
    exec python3 -B tools/systems.py root "$@"
  fi
  if [ "${1:-}" = compiler ]; then
    shift
    ensure build package_test
    build_preset release || exit 1
    exec python3 -B tools/systems.py compiler "$@"
  fi
  chosen=
  while [ $# -gt 0 ]; do
    case $1 in
      -*) break ;;
      lab) ;;
      *) check_preset "$1" ;;
    esac
    chosen="$chosen $1"
    shift
  done
  # Options are those of ctest, or of pytest when only the lab is tested.
  if [ $# -gt 0 ] && [ "$chosen" != " lab" ]; then
    case "$chosen " in
      *" lab "*) die "options go to ctest or to pytest: test the lab by itself, ./dev test lab $*" ;;
    esac
    chosen=${chosen:-$PRESETS}
  fi
  ensure build test
  ensure programs lint || say "some tests will be skipped"
  mkdir -p "$LOGS"
  passed=0 failed=0 skipped=0 some=$*
  for one in ${chosen:-$PRESETS musl-brief lab}; do
    case $one in
      lab) test_lab "$@" ;;
      musl-brief) test_musl_brief "$@" ;;
      aarch64)
        ensure aarch64
        test_system "64-bit Arm, 4 KiB" aarch64 "$@"
        QEMU_PAGESIZE=16384 test_system "64-bit Arm, 16 KiB" aarch64 -L 'unit|api' "$@"
        QEMU_PAGESIZE=65536 test_system "64-bit Arm, 64 KiB" aarch64 -L 'unit|api' "$@"
        ;;
      riscv64)
        ensure riscv64
        test_system "RISC-V" riscv64 "$@"
        ;;
      musl)
        ensure musl
        test_system "musl" musl "$@"
        ;;
      *) test_preset "$one" "$@" ;;
    esac
  done
  say
  [ "$skipped" = 0 ] || say "$skipped skipped"
  say "$passed passed, $failed failed"
  [ "$failed" = 0 ] && [ "$passed" -gt 0 ]
}

# The lints run beside the tests, which leave a processor now and then.
cmd_check() {
  if wants_help "$@"; then
    usage
    return 0
  fi
  ensure build test
  build_preset debug check_programs || die "it does not build"
  mkdir -p "$LOGS"
  python3 -B tools/lint.py --sources >"$LOGS/check-lint.log" 2>&1 &
  lint=$!
  status=0
  ctest --test-dir out/debug --output-on-failure --no-tests=error -j "$TEST_JOBS" -L '^check$' "$@" </dev/null ||
    status=1
  wait "$lint" || status=1
  cat "$LOGS/check-lint.log"
  [ "$status" = 0 ] || die "check failed"
  say "check passed; before it is handed on: ./dev test and ./dev lint"
}

cmd_lint() {
  ensure build lint || has_python || return 1   # generators ask a compiler
  lab_test_environment || say "going on without ruff and mypy"
  exec python3 tools/lint.py
}

cmd_soak() {
  case " $* " in
    *" --help "* | *" -h "*) exec python3 -B tools/soak.py --help ;;
    *" --list "* | *" --report "*) exec python3 -B tools/soak.py "$@" ;;   # nothing is run
  esac
  ensure build test
  ensure programs suites || say "going on; what is missing is reported as skipped"
  soak_builds=$(python3 -B tools/soak.py --builds "$@") || exit 2
  for preset in $soak_builds; do
    build_preset "$preset"
  done
  exec python3 -B tools/soak.py "$@"
}
