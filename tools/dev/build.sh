# shellcheck shell=sh
# ./dev build, demo, path, generate: builds, and what is made from sources.

cmd_build() {
  preset=${1:-release}
  check_preset "$preset"
  case $preset in
    release) ensure build ;;
    aarch64 | musl | riscv64) ensure build test "$preset" ;;
    *) ensure build test ;;
  esac
  build_preset "$preset"
  say "built out/$preset"
}

cmd_demo() {
  ensure build demo
  build_preset release
  exec sh demo/run.sh "$@"
}

cmd_path() {
  ensure build
  exec python3 -B tools/path.py "$@"
}

cmd_generate() {
  ensure build || has_python || return 1
  for generator in tools/gen_*.py; do
    python3 "$generator" || return 1
  done
}
