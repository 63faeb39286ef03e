#!/usr/bin/env python3
"""Runs one fuzz target on its corpus, and says how much it did.

    run.py [--runs N] [--work FOLDER] [--planted] CORPUS.txt PROGRAM [ARGUMENT...]

The corpus is a text: one input per line, as pieces separated by blanks, each two hexadecimal digits per byte, or a
"quoted text" as in Python; '#' begins a comment. It is expanded into WORK/corpus-NAME, and what libFuzzer finds worth
keeping goes to WORK/found-NAME, from where it is merged into the text by hand (--show FOLDER prints files as such lines).

HAK_FUZZ_RUNS      inputs to run instead of N
HAK_FUZZ_SECONDS   seconds to run for, however many inputs that makes
HAK_FUZZ_SEED      default 1

The last line is `fuzz NAME runs=N seconds=S`. The exit status is 0, or 1 when an input fails; that input is kept in WORK.
With --planted the program carries a bug, and only a failed input is a success.
"""
import argparse
import ast
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import time

PIECE = re.compile(r"""\s*(?:(?P<hex>(?:[0-9a-fA-F]{2})+)|(?P<text>"(?:[^"\\]|\\.)*"))(?=\s|$)""")
DONE = re.compile(r"Done (\d+) runs")
LONGEST = 512  # bytes of an input


def parse_line(line, where):
    """The bytes that a line stands for; None for an empty one."""
    at, data = 0, b""
    rest = re.sub(r"""("(?:[^"\\]|\\.)*")|#.*""", lambda match: match.group(1) or "", line).rstrip()
    if not rest.strip():
        return None
    while at < len(rest):
        match = PIECE.match(rest, at)
        if match is None:
            raise SystemExit(f"{where}: '{rest[at:].strip()}' is neither pairs of hexadecimal digits nor a quoted text")
        if match.group("hex"):
            data += bytes.fromhex(match.group("hex"))
        else:
            data += ast.literal_eval("b" + match.group("text"))
        at = match.end()
    return data


def expand(corpus, folder):
    """Write the inputs of the text as files of their own, named by their lines; how many there are."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    count = 0
    for number, line in enumerate(corpus.read_text(encoding="ascii").splitlines(), 1):
        data = parse_line(line, f"{corpus}:{number}")
        if data is not None:
            (folder / f"line-{number:04}").write_bytes(data)
            count += 1
    if count == 0:
        raise SystemExit(f"{corpus}: has no inputs")
    return count


def show(folder):
    for path in sorted(folder.iterdir()):
        digits = path.read_bytes().hex()
        print(" ".join(digits[i:i + 32] for i in range(0, len(digits), 32)))


def number_from(name, otherwise):
    text = os.environ.get(name, "")
    if not text:
        return otherwise
    try:
        return max(0, int(float(text)))
    except ValueError:
        raise SystemExit(f"{name}={text}: not a number") from None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("out/fuzz"))
    parser.add_argument("--planted", action="store_true")
    parser.add_argument("--show", type=pathlib.Path, help="print the files of a folder as lines of a corpus, and end")
    parser.add_argument("corpus", type=pathlib.Path, nargs="?")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if options.show:
        show(options.show)
        return 0
    if options.corpus is None or not options.command:
        parser.error("a corpus and a program are needed")
    seconds = 0 if options.planted else number_from("HAK_FUZZ_SECONDS", 0)
    name = pathlib.Path(options.command[-1]).name.replace("fuzz_", "")
    count = expand(options.corpus, options.work / f"corpus-{name}")
    runs = max(number_from("HAK_FUZZ_RUNS", options.runs), count + 1)
    found = options.work / f"found-{name}"
    found.mkdir(parents=True, exist_ok=True)
    limit = [f"-max_total_time={seconds}"] if seconds else [f"-runs={runs}"]
    if not seconds:  # the same course every time: nothing from former runs
        shutil.rmtree(found)
        found.mkdir()
    command = [str(pathlib.Path(word).resolve()) if pathlib.Path(word).exists() else word for word in options.command]
    command += [*limit, f"-seed={number_from('HAK_FUZZ_SEED', 1)}", f"-max_len={LONGEST}", "-detect_leaks=0",
                "-timeout=120", "-rss_limit_mb=0", f"-artifact_prefix={name}-",
                str(found.resolve()), str((options.work / f"corpus-{name}").resolve())]
    start = time.monotonic()
    done = subprocess.run(command, cwd=options.work, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
    made = DONE.search(done.stdout)
    if options.planted:
        found = "fuzz: the input of" in done.stdout
        print(f"fuzz {name}: the planted bug was {'found' if found else 'not found: ' + done.stdout[-2000:]}")
        return 0 if found and done.returncode != 0 else 1
    if done.returncode != 0 or made is None:
        print(done.stdout[-8000:])
        print(f"fuzz {name}: FAILED with {done.returncode}: {shlex.join(command)}")
        return 1  # libFuzzer's own status for a failure is 77, which ctest takes for "skipped"
    print(f"fuzz {name} runs={made.group(1)} seconds={time.monotonic() - start:.1f} corpus={count}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
