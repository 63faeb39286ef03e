# shellcheck shell=sh disable=SC2154   # assigned in common.sh, install.sh and dev
# ./dev package, release, docs, bare: what goes to others.

# package_needs ARGUMENT...: sets `groups` to what building these packages needs, all of them without a name; `wheel` to yes or no.
package_needs() {
  groups=build kinds=
  for argument; do
    case $argument in
      --test) groups="$groups package_test" ;;
      -*) ;;
      *) kinds="$kinds $argument" ;;
    esac
  done
  wheel=no
  for kind in ${kinds:-wheel deb rpm crates tarball}; do
    case $kind in
      wheel) wheel=yes ;;
      tarball) groups="$groups musl" ;;
      deb | rpm | crates) groups="$groups package_$kind" ;;
    esac
  done
}

cmd_package() {
  if ! wants_help "$@"; then
    package_needs "$@"
    # The groups are words.
    # shellcheck disable=SC2086
    ensure $groups || say "going on; a package whose tools are missing says so"
    [ "$wheel" = no ] || lab_environment || say "going on without the wheel, whose manual page the lab writes"
  fi
  exec python3 -B tools/package.py "$@"
}

cmd_release() {
  if ! wants_help "$@"; then
    ensure build package_deb package_rpm package_crates package_test
    lab_environment
  fi
  exec python3 -B tools/release.py "$@"
}

cmd_docs() {
  wants_help "$@" || ensure pages
  lab_tool tools/site.py "$@"
}

# Where nothing can be installed, tools/bare.py says what is missing.
cmd_bare() {
  find_manager
  if [ "$(id -u)" = 0 ] && [ "$manager" = apt-get ]; then
    ensure bare || :
  fi
  has_python || { say "bare: no bare root here: Python is missing"; exit 77; }
  exec python3 -B tools/bare.py "$@"
}
