# shellcheck shell=sh
# Installing what a command needs: packages.txt says what that is.

has_library() { { ldconfig -p || /sbin/ldconfig -p; } 2>/dev/null | grep -q "$1"; }
has_cmocka() { echo '#include <cmocka.h>' | gcc -E -include stdarg.h -include stddef.h -include setjmp.h -include stdint.h -; }
has_static_libc() { echo 'int main(void) { return 0; }' | gcc -static -x c -o /dev/null -; }
has_python() { python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))'; }
has_pip() { python3 -m pip --version; }
has_venv() { python=$(lab_python) && "$python" -c 'import ensurepip, venv'; }
has_python_tests() { runs_python_tests python3 || runs_python_tests /usr/bin/python3; }
has_prometheus() { python3 -c 'import prometheus_client' || /usr/bin/python3 -c 'import prometheus_client'; }
runs_python_tests() { "$1" -c 'import test.libregrtest, test.test_multiprocessing_fork, test.test_ctypes'; }
has_php() { php -m | grep -qi '^dom$'; }

# Links a program per sanitizer: the compiler may be there without its runtimes.
has_sanitizers() {
  for sanitizer in address,undefined thread; do
    echo 'int main(void) { return 0; }' | clang "-fsanitize=$sanitizer" -x c -o /dev/null - || return 1
  done
}

has_fuzzer() {
  echo 'int LLVMFuzzerTestOneInput(const unsigned char *p, unsigned long n) { return !p && n; }' |
    clang -fsanitize=fuzzer -x c -o /dev/null -
}

# libFuzzer lies with the sanitizers' runtimes, in a package with the compiler's number.
fuzzer_package() {
  if version=$(clang -dumpversion 2>/dev/null); then
    say "libclang-rt-${version%%.*}-dev"
  else
    say libclang-rt-dev
  fi
}

# Scudo is in the runtimes of every clang; the newest there is.
scudo_package() { apt-cache pkgnames libclang-rt- | grep -E '^libclang-rt-[0-9]+-dev$' | sort -V | tail -n 1; }
has_newest_scudo() { has apt-cache && dpkg-query -W "$(scudo_package)"; }

# The package of the system's own Python, whichever else comes first in PATH.
python_tests_package() {
  /usr/bin/python3 -c 'import sys; print("libpython%d.%d-testsuite" % sys.version_info[:2])' 2>/dev/null ||
    echo libpython3-testsuite
}

# need GROUP TEST APT DNF APK: unless TEST succeeds, remembers the package that brings it.
missing=
need() {
  if eval "$2" </dev/null >/dev/null 2>&1; then
    return 0
  fi
  case $manager in
    dnf) package=$4 ;;
    apk) package=$5 ;;
    *) package=$3 ;;
  esac
  eval "package=\"$package\""
  case " $missing " in
    *" $package "*) ;;
    *) missing="$missing $package" ;;
  esac
}

# need_group GROUP: its rows of packages.txt. The soak's programs say themselves which packages they need.
need_group() {
  if [ "$1" = soak_programs ]; then
    for package in $(python3 -B tests/programs/soak/run.py --missing); do
      need soak_programs false "$package" "$package" "$package"
    done
    return 0
  fi
  if [ "$1" = build ] && [ -n "$DEV_COMPILER" ]; then
    cxx=$(compiler_in_cxx) || exit 1
    package=$cxx
    case $DEV_COMPILER in clang*) package=$DEV_COMPILER ;; esac
    need build "has $DEV_COMPILER && has $cxx" "$package" "$package" "$package"
  fi
  known=0
  while IFS=';' read -r group test apt dnf apk; do
    [ "${group% }" = "$1" ] || continue
    known=1
    apt=${apt# } dnf=${dnf# }
    need "$1" "$test" "${apt% }" "${dnf% }" "${apk# }"
  done <tools/dev/packages.txt
  [ "$known" = 1 ] || die "tools/dev/packages.txt has no group $1"
}

find_manager() {
  manager=
  for candidate in apt-get dnf apk; do
    if has "$candidate"; then
      manager=$candidate
      return 0
    fi
  done
}

# as_root COMMAND...: directly, or through sudo.
as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  else
    sudo "$@"
  fi
}

# Root, or sudo that asks no password or can ask somebody.
can_be_root() { [ "$(id -u)" = 0 ] || { has sudo && { sudo -n true 2>/dev/null || [ -t 0 ]; }; }; }

apt_install() {
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 \
    install -y --no-install-recommends "$@"
}

apt_update() { as_root apt-get -o DPkg::Lock::Timeout=300 update; }

# The package lists of a fresh or old system are missing or out of date: they are fetched when they fail us.
# After that, one package that this release does not have must not keep the others away.
apt_install_all() {
  if apt_install "$@" || { apt_update && apt_install "$@"; }; then
    return 0
  fi
  for one; do
    apt_install "$one" || true
  done
}

install_packages() {
  case "$manager $*" in
    "apt-get "*:arm64*) as_root dpkg --add-architecture arm64 && apt_update ;;
  esac
  case $manager in
    apt-get) apt_install_all "$@" ;;
    dnf) as_root dnf install -y "$@" ;;
    apk) as_root apk add "$@" ;;
  esac
}

# What a person types to install packages.
install_command() {
  case $manager in
    apt-get | dnf) say "$manager install $*" ;;
    apk) say "apk add $*" ;;
    *) say "(with this system's package manager; Debian's names) $*" ;;
  esac
}

# without_services COMMAND...: while it runs, Debian does not start the servers that it installs.
without_services() {
  policy=/usr/sbin/policy-rc.d
  if [ -e "$policy" ] || [ "$manager" != apt-get ] || ! can_be_root; then
    "$@"
    return
  fi
  trap 'as_root rm -f "$policy"' EXIT
  trap 'exit 130' INT TERM
  printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
  as_root chmod 755 "$policy"
  status=0
  "$@" || status=$?
  as_root rm -f "$policy"
  trap - EXIT INT TERM
  return "$status"
}

find_missing() {
  missing=
  for each_group; do
    need_group "$each_group"
  done
  [ -n "$missing" ]
}

# ensure GROUP...: installs what these groups miss; says what to install when it cannot.
# The lists of packages are meant to be split into words.
# shellcheck disable=SC2086
ensure() {
  find_manager
  find_missing "$@" || return 0
  if [ -n "$manager" ] && can_be_root; then
    say "installing:$missing"
    if quietly setup install_packages $missing; then
      find_missing "$@" || return 0
      complain "still missing after installation:$missing"
      return 1
    fi
  fi
  complain "please install, as root: $(install_command $missing)"
  return 1
}
