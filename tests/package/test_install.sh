#!/bin/sh
# Installs the library to a fresh prefix, moves the prefix, and builds and runs the consumer against it
# in each way that a user's project can find it: CMake (shared, static), pkg-config (shared, static).
# test: timeout=240
set -eu

here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/moved

"$CMAKE" --install "$HAK_TEST_OUT" --prefix "$work/installed" >"$work/log"
mv "$work/installed" "$prefix"
libdir=$(dirname "$(find "$prefix" -name libhakmem.so)")
PKG_CONFIG_PATH=$libdir/pkgconfig
export PKG_CONFIG_PATH

check() {
  name=$1
  shift
  output=$("$@") || { echo "$name: exit status $?"; exit 1; }
  [ "$output" = "hakmem $HAK_TEST_VERSION" ] || { echo "$name: printed '$output'"; exit 1; }
  echo "$name: ok"
}

build_with_cmake() {
  "$CMAKE" -S "$here/consumer" -B "$work/build" -DCMAKE_PREFIX_PATH="$prefix" \
    -DWANTED_VERSION="$HAK_TEST_VERSION" -DCMAKE_C_COMPILER="$CC" && "$CMAKE" --build "$work/build"
}
build_with_cmake >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
check "CMake, shared" "$work/build/consumer_shared"
check "CMake, static" "$work/build/consumer_static"
check "CMake, region, shared" "$work/build/region_shared"
check "CMake, region, static" "$work/build/region_static"

if ! command -v pkg-config >/dev/null; then
  echo "pkg-config is not installed"
  exit 77
fi
[ "$(pkg-config --modversion hakmem)" = "$HAK_TEST_VERSION" ]
# Flags are meant to be split into words.
# shellcheck disable=SC2046
"$CC" "$here/consumer/main.c" -o "$work/pc_shared" $(pkg-config --cflags --libs hakmem)
check "pkg-config, shared" env LD_LIBRARY_PATH="$libdir" "$work/pc_shared"
# shellcheck disable=SC2046
"$CC" -static "$here/consumer/main.c" -o "$work/pc_static" $(pkg-config --static --cflags --libs hakmem)
check "pkg-config, static" "$work/pc_static"
# shellcheck disable=SC2046
"$CC" "$here/consumer/region.c" -o "$work/pc_region" -Wl,--as-needed $(pkg-config --cflags --libs hakmem-region)
check "pkg-config, region, shared" env LD_LIBRARY_PATH="$libdir" "$work/pc_region"
# shellcheck disable=SC2046
"$CC" -static "$here/consumer/region.c" -o "$work/pc_region_static" $(pkg-config --static --cflags --libs hakmem-region)
check "pkg-config, region, static" "$work/pc_region_static"
