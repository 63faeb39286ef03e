# shellcheck shell=sh
# The lab's environment in out/lab, and what runs in it. Its libraries are installed on first use, what its tests need besides when a
# command asks for that.
LAB=out/lab

# The first Python that is new enough for the lab.
lab_python() {
  for candidate in python3 python3.14 python3.13 python3.12 python3.11 python3.10; do
    if has "$candidate" && "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
      say "$candidate"
      return 0
    fi
  done
  return 1
}

# fill_lab EXTRAS: makes the environment, or installs more into it.
fill_lab() {
  python=$(lab_python) || { say "the lab needs Python 3.10 or newer"; return 1; }
  [ "$1" = test ] || "$python" -m venv --clear "$LAB" || return 1
  "$LAB/bin/python" -m pip install --disable-pip-version-check -e "./lab[$1]"
}

# lab_part EXTRAS MARK: installs these unless the mark says that they are those of today's list.
lab_part() {
  if [ -x "$LAB/bin/hakmem" ] && cmp -s lab/pyproject.toml "$LAB/$2"; then
    return 0
  fi
  ensure lab || return 1
  complain "installing the lab's libraries ($1) in $LAB; this takes a minute"
  if quietly lab fill_lab "$1"; then
    cp lab/pyproject.toml "$LAB/$2"
    return 0
  fi
  complain "the lab's libraries could not be installed: the first time needs a network, or a package index that pip"
  complain "can reach (PIP_INDEX_URL), or a folder of wheels (PIP_NO_INDEX=1 PIP_FIND_LINKS=FOLDER). Then try again."
  return 1
}

# Made on first use, and again when its list of libraries changes; the second with what tests and lints need besides.
lab_environment() { lab_part compare,tune,pages,fleet made-from.toml; }
lab_test_environment() { lab_environment && lab_part test tests-made-from.toml; }

# lab_tool FILE [ARGUMENT...]: a program of tools/ that needs the lab's libraries.
lab_tool() {
  lab_environment || exit 1
  file=$1
  shift
  exec "$LAB/bin/python" -B "$file" "$@"
}

cmd_lab() {
  lab_environment || exit 1
  exec "$LAB/bin/hakmem" "$@"
}
