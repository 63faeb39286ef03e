#!/bin/sh
# hakmem.hpp, installed, under gcc and clang with their libraries, from C++17 to C++23, with and without exceptions and RTTI; then
# the example of docs/api.md.
# test: timeout=300 cost=25
set -eu

here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$CMAKE" --install "$HAK_TEST_OUT" --prefix "$work/installed" >"$work/log"
libdir=$(dirname "$(find "$work/installed" -name libhakmem.so)")
include=$work/installed/include
LD_LIBRARY_PATH=$libdir
export LD_LIBRARY_PATH

# has COMPILER OPTION...: whether a program can be made so.
has() {
  command -v "$1" >/dev/null && echo '#include <map>' | "$@" -x c++ -fsyntax-only - >/dev/null 2>&1
}

# build PROGRAM SOURCE COMPILER OPTION...: with all warnings as errors.
build() {
  program=$1 source=$2
  shift 2
  "$@" -O1 -Wall -Wextra -Wshadow -Wpedantic -Werror -I"$include" "$source" -o "$program" -L"$libdir" -lhakmem
}

# check COMPILER OPTION...: builds and runs it; it must also end when there is no memory.
check() {
  build "$work/program" "$here/cpp/main.cpp" "$@"
  said=$("$work/program") || { echo "$*: $said"; exit 1; }
  status=0
  "$work/program" fail >/dev/null 2>&1 || status=$?
  [ "$status" = 134 ] || { echo "$*: exit status $status without memory"; exit 1; }
  echo "$*: $said"
}

done=0
for options in "g++ -std=c++17" "g++ -std=c++20" "g++ -std=c++2b" "g++ -std=c++17 -fno-exceptions -fno-rtti" \
  "clang++ -std=c++17" "clang++ -std=c++2b" "clang++ -std=c++20 -fno-exceptions -fno-rtti" \
  "clang++ -std=c++17 -stdlib=libc++" "clang++ -std=c++2b -stdlib=libc++"; do
  # Options are meant to be split into words.
  # shellcheck disable=SC2086
  if has $options; then
    check $options
    done=$((done + 1))
  else
    echo "$options: not here"
  fi
done
[ "$done" -ge 4 ]

# The example: the lines between ```cpp and ``` of the page, and what it says it prints, in the block behind it.
page=$here/../../docs/api.md
awk '/^```cpp$/ { inside = 1; next } /^```/ { inside = 0 } inside' <"$page" >"$work/example.cpp"
awk '/^```cpp$/ { seen = 1; next } seen && /^## / { exit } seen == 1 && /^prints$/ { seen = 2; next }
  seen == 2 && /^```/ { if (inside++) exit; next } inside' <"$page" >"$work/expected"
build "$work/example" "$work/example.cpp" g++ -std=c++17
"$work/example" >"$work/printed"
[ -s "$work/expected" ]
diff "$work/expected" "$work/printed"
echo "the example of docs/api.md: ok"
