#!/bin/sh
# packaging/systemd/hakmem.conf: systemd accepts a service with it, a mistake in it is found, and the environment that it gives
# puts a program on HAKMEM. No service manager is started.
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
cp "$root/packaging/systemd/hakmem.conf" "$work/example.service.d/"
# Units of the system itself may be complained of; only what is said of ours counts.
complaints() { systemd-analyze --man=no verify "$work/example.service" 2>&1 | grep -F "$work" || true; }

said=$(complaints)
[ -z "$said" ] || { echo "$said"; exit 1; }
echo 'Environnment=A=1' >>"$work/example.service.d/hakmem.conf"
[ -n "$(complaints)" ] || { echo "a mistake in the drop-in is not found: it was not read"; exit 1; }

variable=$(sed -n 's/^Environment=//p' "$root/packaging/systemd/hakmem.conf")
said=$(env LD_LIBRARY_PATH="$HAK_TEST_OUT" "$variable" HAKMEM_STATS=1 perl -e 1 2>&1)
case $said in
  *hakmem*) echo "the drop-in puts a program on HAKMEM: $variable" ;;
  *) echo "no statistics with $variable: $said"; exit 1 ;;
esac
