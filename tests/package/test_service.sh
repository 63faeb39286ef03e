#!/bin/sh
# packaging/systemd/*.conf: systemd accepts a service with each, a mistake is found, and the environment that they give puts a program
# on HAKMEM. No service manager is started.
# test: timeout=60
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
if ! command -v systemd-analyze >/dev/null; then
  echo "systemd-analyze is not installed"
  exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/example.service.d"
printf '[Unit]\nDescription=An example\n[Service]\nExecStart=/bin/true\n' >"$work/example.service"
# Units of the system itself may be complained of; only what is said of ours counts.
complaints() { systemd-analyze --man=no verify "$work/example.service" 2>&1 | grep -F "$work" || true; }

for drop_in in hakmem.conf hakmem-trial.conf; do
  cp "$root/packaging/systemd/$drop_in" "$work/example.service.d/hakmem.conf"
  said=$(complaints)
  [ -z "$said" ] || { echo "$said"; exit 1; }
done
echo 'Environnment=A=1' >>"$work/example.service.d/hakmem.conf"
[ -n "$(complaints)" ] || { echo "a mistake in the drop-in is not found: it was not read"; exit 1; }

for drop_in in hakmem.conf hakmem-trial.conf; do
  variables=$(sed -n "s|%S/hakmem/%N|$work|; s/^Environment=//p" "$root/packaging/systemd/$drop_in")
  # One word each.
  # shellcheck disable=SC2086
  said=$(env LD_LIBRARY_PATH="$HAK_TEST_OUT" $variables HAKMEM_STATS=1 perl -e 'print glob(shift . "/*.hakbox")' "$work" 2>&1)
  case $drop_in$said in
    hakmem.conf*hakmem:* | hakmem-trial.conf*.hakbox*hakmem:*) echo "$drop_in puts a program on HAKMEM" ;;
    *) echo "no statistics, or no black box, with $variables: $said"; exit 1 ;;
  esac
done
