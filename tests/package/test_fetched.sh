#!/bin/sh
# A user's project in C++ that brings the source with it (FetchContent) and is optimised at link time: with
# the shared library and fully static.
# test: timeout=240 cost=12
set -eu

here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

build() {
  "$CMAKE" -S "$here/fetched" -B "$work/build" -DCMAKE_BUILD_TYPE=Release -DHAKMEM_SOURCE="$here/../.." \
    -DCMAKE_C_COMPILER="$CC" -DCMAKE_CXX_COMPILER="$CXX" && "$CMAKE" --build "$work/build"
}
build >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
for program in fetched_shared fetched_static; do
  output=$("$work/build/$program") || { echo "$program: exit status $?"; exit 1; }
  [ "$output" = "hakmem $HAK_TEST_VERSION" ] || { echo "$program: printed '$output'"; exit 1; }
  echo "$program: ok"
done
if ! command -v readelf >/dev/null; then
  exit 0
fi
if readelf -d "$work/build/fetched_static" | grep -q NEEDED; then
  echo "fetched_static needs a library"
  exit 1
fi
