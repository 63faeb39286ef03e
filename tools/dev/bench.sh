# shellcheck shell=sh
# ./dev bench: each kind of measurement has its program in bench/.

# bench_suite [ARGUMENT...]: the suite, on the lab's libraries; bench_scaling: threads, in the same way.
bench_suite() {
  lab_environment || exit 1
  exec "$LAB/bin/python" bench/suite/suite.py "$@"
}

bench_scaling() {
  lab_environment || exit 1
  exec "$LAB/bin/python" bench/suite/scaling.py "$@"
}

# bench_lines [ARGUMENT...]: what moves between cores; the tool is built from valgrind's own libraries.
bench_lines() {
  case " $* " in
    *" --help "* | *" --show "* | *" --publish "*) exec python3 -B bench/lines/lines.py "$@" ;;
  esac
  ensure build
  ensure programs || complain "going on with what is installed"
  case " $* " in
    *" --guard "*) ;;
    *) ensure peers || say "going on with the allocators that are installed" ;;
  esac
  build_preset release
  exec python3 -B bench/lines/lines.py "$@"
}

cmd_bench() {
  case ${1:-} in
    --recipes)
      shift
      case " $* " in
        *" --help "* | *" --list "*) lab_tool bench/recipes/recipes.py "$@" ;;
      esac
      ensure build
      build_preset release
      lab_tool bench/recipes/recipes.py "$@"
      ;;
    --error-rates)
      shift
      case " $* " in
        *" --help "*) lab_tool bench/error_rates.py "$@" ;;
      esac
      ensure build
      build_preset release
      lab_tool bench/error_rates.py "$@"
      ;;
    --heaps)
      shift
      case " $* " in
        *" --help "*) exec python3 -B bench/heaps/heaps.py "$@" ;;
      esac
      ensure build
      ensure peers || say "going on with the allocators that are installed"
      build_preset release
      exec python3 -B bench/heaps/heaps.py "$@"
      ;;
    --publish) bench_suite "$@" ;;
    --suite)
      shift
      case " $* " in
        *" --help "* | *" --list "* | *" --show "* | *" --publish "*) bench_suite "$@" ;;
      esac
      ensure build
      build_preset release
      bench_suite "$@"
      ;;
    --scaling)
      shift
      case " $* " in
        *" --help "* | *" --list "* | *" --show "* | *" --publish "*) bench_scaling "$@" ;;
      esac
      ensure build
      build_preset release
      bench_scaling "$@"
      ;;
    --lines) shift; bench_lines "$@" ;;
    --memory | --drift)
      kind=$1
      shift
      [ "$kind" = --memory ] || set -- --only '^drift$' "$@"
      case " $* " in
        *" --help "*) exec python3 -B bench/memory/memory.py "$@" ;;
      esac
      ensure build
      ensure peers || say "going on with the allocators that are installed"
      build_preset release
      exec python3 -B bench/memory/memory.py "$@"
      ;;
    --tail)
      shift
      case " $* " in
        *" --help "*) exec python3 -B bench/tail.py "$@" ;;
      esac
      ensure build
      ensure peers || say "going on with the allocators that are installed"
      build_preset release
      exec python3 -B bench/tail.py "$@"
      ;;
    --guard)
      shift
      ensure build
      build_preset release
      exec python3 bench/guard/guard.py "$@"
      ;;
  esac
  ensure build
  ensure peers || say "going on with the allocators that are installed"
  build_preset release
  exec python3 bench/run.py "$@"
}
