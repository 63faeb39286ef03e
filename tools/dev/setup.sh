# shellcheck shell=sh
# ./dev setup: installs what is missing.

# The newest releases of the peers, from their repositories, or from sources that cargo fetches.
build_peers() {
  ensure build || return 1
  ensure peer_sources || complain "not every peer can be built"
  python3 tools/build_peers.py
}

cmd_setup() {
  groups="build test lint lab browser promtool"
  for argument; do
    case $argument in
      --build) groups="build demo" ;;
      --programs) groups="$groups programs" ;;
      --suites) groups="$groups suites" ;;
      --soak-programs) groups="$groups soak_programs" ;;
      --peers) groups="$groups peers built_peers" ;;
      --hardened-peers) groups="$groups hardened_peers" ;;
      --suite) groups="$groups suite" ;;
      --aarch64) groups="$groups aarch64" ;;
      --packages) groups="$groups package_deb package_rpm package_crates package_test pages" ;;
      --all) groups="build test lint lab browser promtool programs suites peers built_peers suite" ;;
      *) die "setup knows --build, --programs, --suites, --soak-programs, --peers, --hardened-peers, --suite, --aarch64, --packages and --all, not '$argument'" ;;
    esac
  done
  # One after the other: which Python's tests to install is known when there is a Python.
  for each in $groups; do
    case $each in
      browser) ensure browser || complain "going on; the lab's pages will not be opened in tests" ;;
      promtool)
        find_manager
        without_services ensure promtool || complain "going on; the lab's metrics will not be checked by promtool"
        ;;
      soak_programs)
        find_manager
        without_services ensure soak_programs || complain "going on; the soak skips what is missing"
        ;;
      suite) without_services ensure suite || complain "going on; the suite leaves out what is missing" ;;
      peers) ensure peers || complain "going on with the allocators that are installed" ;;
      hardened_peers)
        ensure hardened_peers || complain "going on; without Scudo, or without those that cargo brings"
        python3 tools/build_peers.py --hardened || complain "going on with the allocators that are there"
        ;;
      built_peers) build_peers || complain "going on with the allocators that are installed" ;;
      *) ensure "$each" ;;
    esac
  done
  case " $groups " in
    *" test "*) lab_test_environment || complain "going on; the lab's tests will be skipped" ;;
  esac
  say "everything needed is installed ($groups)"
}
