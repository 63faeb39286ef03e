# shellcheck shell=sh
# What every command of ./dev uses: words for a person, logs, installing what is missing, builds.
PRESETS="release debug asan tsan"
EXTRA_PRESETS="aarch64 musl musl-brief riscv64"   # only by name, but musl-brief
JOBS=$(nproc 2>/dev/null || echo 2)
LOGS=out/log
DEV_COMPILER=${DEV_COMPILER:-}   # gcc-13 or clang-17, and g++-13 or clang++-17 with it, in place of the presets' compilers

usage() { cat tools/dev/help.txt; }
say() { printf '%s\n' "$*"; }
complain() { printf '%s\n' "./dev: $*" >&2; }
die() { complain "$@"; exit 1; }
has() { command -v "$1" >/dev/null 2>&1; }

# quietly NAME COMMAND...: runs it with its output in a log, which is shown when it fails.
quietly() {
  log=$LOGS/$1.log
  shift
  mkdir -p "$LOGS"
  if "$@" >"$log" 2>&1 </dev/null; then
    return 0
  fi
  complain "failed: $*"
  cat "$log" >&2
  return 1
}

# wants_help ARGUMENT...
wants_help() {
  case " $* " in
    *" --help "* | *" -h "*) return 0 ;;
  esac
  return 1
}

check_preset() {
  case " $PRESETS $EXTRA_PRESETS " in
    *" $1 "*) ;;
    *) die "no preset '$1'; there are: $PRESETS $EXTRA_PRESETS" ;;
  esac
}

compiler_in_cxx() {
  case $DEV_COMPILER in
    gcc*) say "g++${DEV_COMPILER#gcc}" ;;
    clang*) say "clang++${DEV_COMPILER#clang}" ;;
    *) die "DEV_COMPILER is '$DEV_COMPILER'; it may be gcc or clang, with a number" ;;
  esac
}

compiler_options() {
  [ -z "$DEV_COMPILER" ] || printf '%s\n' "-DCMAKE_C_COMPILER=$DEV_COMPILER" "-DCMAKE_CXX_COMPILER=$(compiler_in_cxx)"
}

# build_preset PRESET [TARGET]: everything, or one target.
build_preset() {
  if [ "$(cat "out/$1/dev-compiler" 2>/dev/null)" != "$DEV_COMPILER" ]; then
    rm -rf "out/$1"
  fi
  case $1 in
    musl*) quietly cross python3 -B tools/cross.py --tests x86_64-linux-musl || return 1 ;;
    riscv64) quietly cross python3 -B tools/cross.py --tests riscv64-linux-gnu.2.36 || return 1 ;;
  esac
  if [ ! -f "out/$1/build.ninja" ] || [ -n "$(find CMakePresets.json -newer "out/$1/build.ninja")" ]; then
    # Without this file there may be the cache of another generator, which cmake refuses.
    [ -f "out/$1/build.ninja" ] || rm -rf "out/$1/CMakeCache.txt" "out/$1/CMakeFiles"
    # shellcheck disable=SC2046
    quietly "configure-$1" cmake --preset "$1" $(compiler_options) || return 1
    [ -z "$DEV_COMPILER" ] || printf '%s\n' "$DEV_COMPILER" >"out/$1/dev-compiler"
  fi
  quietly "build-$1" cmake --build "out/$1" --parallel "$JOBS" --target "${2:-all}" -- -k 0
}
