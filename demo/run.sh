#!/bin/sh
# The demo: a Python program, SQLite and a threaded C++ program on the system's malloc and on HAKMEM.
#
# usage: demo/run.sh [--rounds N]      after `./dev build`; `./dev demo` does both
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
library=${HAK_TEST_LIB:-$root/out/release/libhakmem.so}

fail() {
  printf 'demo: %s\n' "$*" >&2
  exit 1
}

for program in python3 sqlite3; do
  command -v "$program" >/dev/null 2>&1 || fail "$program is missing: please install the package $program"
done
[ -f "$library" ] || fail "$library is missing: please run ./dev build"
[ -x "$(dirname "$library")/demo_server" ] || fail "demo_server is missing beside the library: please run ./dev build"

cd "$root"
exec python3 -B demo/compare.py "$library" "$@"
