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

# bench_musl [ARGUMENT...]: the suite on musl, with programs and peers that are built for it.
bench_musl() {
  case " $* " in
    *" --help "* | *" --list "* | *" --show "* | *" --publish "*) bench_suite "$@" ;;
  esac
  ensure build musl
  build_preset musl-release
  python3 -B bench/suite/musl.py
  lab_environment || exit 1
  built=$PWD/out/musl-release
  PATH=$built:$PATH HAKMEM_PEERS=$built/peers exec "$LAB/bin/python" bench/suite/suite.py --build "$built" --only '^(real|written)$' \
    --alloc hakmem,system,mimalloc3,mimalloc2,rpmalloc,jemalloc5 "$@"
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

# bench_beside_peers PROGRAM [ARGUMENT...]: a program of bench/ that needs the release build and, as far as they can be had, the peers.
bench_beside_peers() {
  program=$1
  shift
  case " $* " in
    *" --help "*) exec python3 -B "$program" "$@" ;;
  esac
  ensure build
  ensure peers || say "going on with the allocators that are installed"
  build_preset release
  exec python3 -B "$program" "$@"
}

# bench_of_lab NEEDED PROGRAM [ARGUMENT...]: the same for a program that is written on the lab; NEEDED: build; peers: them too.
bench_of_lab() {
  needed=$1
  shift
  case " $* " in
    *" --help "* | *" --list "*) lab_tool "$@" ;;
  esac
  ensure build
  [ "$needed" = build ] || ensure peers || say "going on with the allocators that are installed"
  build_preset release
  lab_tool "$@"
}

cmd_bench() {
  case ${1:-} in
    --recipes) shift; bench_of_lab build bench/recipes/recipes.py "$@" ;;
    --error-rates) shift; bench_of_lab build bench/error_rates.py "$@" ;;
    --worth-bound) shift; bench_of_lab peers bench/worth_bound.py "$@" ;;
    --heaps) shift; bench_beside_peers bench/heaps/heaps.py "$@" ;;
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
    --musl) shift; bench_musl "$@" ;;
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
    --memory) shift; bench_beside_peers bench/memory/memory.py "$@" ;;
    --drift) shift; bench_beside_peers bench/memory/memory.py --only '^drift$' "$@" ;;
    --tail) shift; bench_beside_peers bench/tail.py "$@" ;;
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
