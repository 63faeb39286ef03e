#!/bin/sh
# The crates' own tests: the global allocator under collections and threads, options with types, statistics, and each example of
# the documentation.
# test: timeout=300 cost=20
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
if ! command -v cargo >/dev/null; then
  echo "cargo is not installed; ./dev setup --packages brings it"
  exit 77
fi
cd "$root/rust"
CARGO_TARGET_DIR=$HAK_TEST_OUT/rust
export CARGO_TARGET_DIR
if ! cargo fetch >/dev/null 2>&1 && ! cargo fetch --offline >/dev/null 2>&1; then
  echo "the crate cc is neither here nor within reach"
  exit 77
fi
output=$(cargo test --offline --package hakmem --features pprof 2>&1) || { echo "$output"; exit 1; }
# Two groups at least: the collections and the documentation.
passed=$(echo "$output" | grep -c '^test .* ok$')
[ "$passed" -ge 9 ] || { echo "$output"; exit 1; }
echo "$passed tests"
