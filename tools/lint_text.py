"""Nothing in the tree belongs to one machine, points to a server that is no reference, or is not text; and decision records
are short: question, answer, table, command."""
import re

from lint_common import all_files, read

NAME = "text"
MAX_BYTES = 512 << 10
TRIMMED = {".c", ".h", ".def", ".cpp", ".hpp", ".py", ".sh", ".cmake", ".json"}

# Written in pieces, so that this file holds none of what it looks for.
HOMES = ("root", "home/[a-z]+", "Users", "mnt", "work", "workspace")
# Where readers are sent, and the peers' repositories; nothing else is downloaded from an address that stands in the tree.
REFERENCES = ("github.com", "www.w3.org", "semver.org", "keepachangelog.com", "optuna.org", "127.0.0.1",
              "www.speedscope.app")
PATHS = re.compile(r"(?<![\w./$}>-])/(?:" + "|".join(HOMES) + r")\b")
SERVERS = re.compile(r"\b[a-z][a-z+]*://(?!(?:" + "|".join(map(re.escape, REFERENCES)) + r")(?![\w.-]))[\w-]+(?:\.[\w-]+)+")
RECORD = re.compile(r"docs/decisions/\d{4}-[^/]+\.md")
RECORD_WORDS = 250
TRAILING = re.compile(r"[ \t]+$", re.M)


def check_text(where, text, trimmed):
    rules = [(PATHS, "a path of one machine"), (SERVERS, "a server that is no reference")]
    if trimmed:
        rules.append((TRAILING, "blanks at the end of the line"))
    if where.endswith("/Cargo.lock"):  # cargo names its registry in it by an address
        rules.remove((SERVERS, "a server that is no reference"))
    findings = [f"{where}:{text.count(chr(10), 0, match.start()) + 1}: {what} {match.group().strip()}".rstrip()
                for pattern, what in rules for match in pattern.finditer(text)]
    if text and not text.endswith("\n"):
        findings.append(f"{where}: no newline at the end")
    return findings


def check_record(where, text):
    """A record's words, those of its tables included; the bars between a table's cells are none."""
    words = sum(1 for word in text.split() if re.search(r"\w", word))
    if words > RECORD_WORDS:
        yield f"{where}: {words} words; a record has at most {RECORD_WORDS}, the rest belongs into the commit's message"
    for part in ("**Question.**", "**Answer.**"):
        if part not in text:
            yield f"{where}: has no {part}"


def run(root):
    files, findings = all_files(root), []
    for path in files:
        where = path.relative_to(root).as_posix()
        if path.stat().st_size > MAX_BYTES:
            findings.append(f"{where}: {path.stat().st_size >> 10} KiB; at most {MAX_BYTES >> 10}")
        elif b"\0" in path.read_bytes():
            findings.append(f"{where}: is not text")
        else:
            findings += check_text(where, read(path), path.suffix in TRIMMED)
            if RECORD.fullmatch(where):
                findings += check_record(where, read(path))
    return len(files), findings
