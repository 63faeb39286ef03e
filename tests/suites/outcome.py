"""What became of the cases of a test program: reading the formats in which suites say it."""
import re
import xml.etree.ElementTree

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


class Skip(Exception):
    """A suite can't run here."""


class Cases(dict):
    """{case: outcome}; a name that comes again is another case."""

    def add(self, name, outcome):
        key, count = name, 1
        while key in self:
            count += 1
            key = f"{name} ({count})"
        self[key] = outcome


def from_tap(text):
    """Test Anything Protocol. Numbers are the names: descriptions may contain addresses or times."""
    cases = Cases()
    for match in re.finditer(r"(?m)^(not )?ok(?: (\d+))?([^\n]*)$", text):
        directive = re.search(r"#\s*(skip|todo)", match.group(3), re.I)
        if directive and directive.group(1).lower() == "skip":
            outcome = SKIPPED
        else:
            outcome = FAILED if match.group(1) and not directive else PASSED
        cases.add(match.group(2) or "ok", outcome)
    plan = re.search(r"(?m)^1\.\.(\d+)", text)
    if plan and plan.group(1) == "0":
        cases.add("all", SKIPPED)
    elif plan is None or int(plan.group(1)) != len(cases):
        cases.add("plan", FAILED)
    return cases


def from_junit(path):
    """JUnit's XML; a missing or empty report is a case of its own."""
    cases = Cases()
    if not path.exists() or path.stat().st_size == 0:
        cases.add("report", FAILED)
        return cases
    for case in xml.etree.ElementTree.parse(path).iter("testcase"):
        kinds = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
        outcome = PASSED if not kinds else SKIPPED if kinds[0] == "skipped" else FAILED
        cases.add(case.get("name"), outcome)
    return cases


def from_lines(text, kinds):
    """One case per line: {outcome: pattern with the case's name in group 1}."""
    cases = Cases()
    for line in text.splitlines():
        for outcome, pattern in kinds.items():
            match = re.match(pattern, line)
            if match:
                cases.add(match.group(1).strip(), outcome)
                break
    return cases
