#!/usr/bin/env python3
"""Makes a release in out/release-VERSION: the source, the packages, checksums, a bill of materials (SPDX 2.3) and the changelog's
section. It refuses, and says every reason at once, when

  - a file is changed or not tracked,
  - no tag vVERSION stands at this commit, or CHANGELOG.md dates no section of this version,
  - the tests of this very commit did not pass: it runs .ci/run unless out/tested names the commit,
  - the binary interface is not the one that packaging/abi keeps.

  release.py [--rehearse | --publish]

  --rehearse   makes everything into out/rehearsal all the same, and says what would be refused
  --publish    gives it out as a release of the tag, by GitHub's command gh"""
import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
import time

import package_common as common
from package_common import OUT, ROOT, Failed, fresh, git, project_files, run, stage, tarball, version

SOURCE = "hakmem-{}-source.tar.gz"   # recipes name it
TESTED = ROOT / "out" / "tested"
PACKAGES = ("wheel", "deb", "rpm", "crates", "conan", "tarball")


def section(text, number):
    """(date or None, text) of a version's section of the changelog."""
    found = re.search(rf"^## \[{re.escape(number)}\] - (\S+)\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    if found is None:
        return None, ""
    dated = re.fullmatch(r"\d{4}-\d\d-\d\d", found.group(1)) is not None
    return (found.group(1) if dated else None), found.group(2).strip() + "\n"


def unversioned(number):
    """Reasons for which this commit is not the version."""
    tags = git("tag", "--points-at", "HEAD").split()
    if f"v{number}" not in tags:
        yield f"no tag v{number} stands at this commit"
    date, text = section((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), number)
    if not text:
        yield f"CHANGELOG.md has no section of {number}"
    elif date is None:
        yield f"CHANGELOG.md does not date {number}: '## [{number}] - YYYY-MM-DD'"


def untested(commit, run_them):
    """The reason for which the commit counts as untested; tests it first where that is wanted."""
    if TESTED.is_file() and TESTED.read_text(encoding="utf-8").strip() == commit:
        return
    if run_them and subprocess.run([str(ROOT / ".ci" / "run")], cwd=ROOT, check=False).returncode == 0:
        TESTED.write_text(commit + "\n", encoding="utf-8")
        return
    yield "the tests of this commit have not passed (.ci/run)"


def broken_interface():
    library = ROOT / "out" / "release" / "libhakmem.so.0"
    if not library.exists():
        run([ROOT / "dev", "build"])
    done = subprocess.run([sys.executable, "-B", str(ROOT / "tools" / "abi.py"), str(library)], check=False,
                          stdout=subprocess.PIPE, text=True)
    if done.returncode:
        yield from done.stdout.splitlines()


def reasons(number, rehearsal):
    """Everything for which the release is refused, the quick ones first; the tests run only when nothing else is in the way."""
    found = [f"changed or not tracked: {line[3:]}" for line in git("status", "--porcelain").splitlines()]
    found += unversioned(number)
    found += broken_interface()
    return found + list(untested(git("rev-parse", "HEAD").strip(), not found and not rehearsal))


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def bill(files, number):
    """The bill of materials: every file of the release; the library itself needs nothing but the C library."""
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(int(common.epoch())))
    source = {"SPDXID": "SPDXRef-hakmem", "name": "hakmem", "versionInfo": number, "downloadLocation": "NOASSERTION",
              "filesAnalyzed": False, "licenseConcluded": "MIT", "licenseDeclared": "MIT", "copyrightText": "HAKMEM contributors",
              "primaryPackagePurpose": "LIBRARY"}
    needs = {"SPDXID": "SPDXRef-libc", "name": "glibc", "downloadLocation": "NOASSERTION", "filesAnalyzed": False,
             "licenseConcluded": "LGPL-2.1-or-later", "licenseDeclared": "LGPL-2.1-or-later", "copyrightText": "NOASSERTION"}
    listed = [{"SPDXID": f"SPDXRef-File-{n}", "fileName": f"./{path.name}", "licenseConcluded": "MIT",
               "copyrightText": "HAKMEM contributors",
               "checksums": [{"algorithm": "SHA1", "checksumValue": hashlib.sha1(path.read_bytes()).hexdigest()},
                             {"algorithm": "SHA256", "checksumValue": digest(path)}]} for n, path in enumerate(files)]
    relations = [("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-hakmem"), ("SPDXRef-hakmem", "DYNAMIC_LINK", "SPDXRef-libc")]
    relations += [("SPDXRef-hakmem", "CONTAINS", each["SPDXID"]) for each in listed]
    return {"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": f"hakmem-{number}",
            "documentNamespace": f"urn:hakmem:{number}:{git('rev-parse', 'HEAD').strip()}",
            "creationInfo": {"created": when, "creators": ["Organization: HAKMEM", "Tool: tools/release.py"]},
            "packages": [source, needs], "files": listed,
            "relationships": [{"spdxElementId": a, "relationshipType": kind, "relatedSpdxElement": b} for a, kind, b in relations]}


def make(folder, number):
    """Everything that is given out."""
    tree = fresh(OUT / "source") / f"hakmem-{number}"
    stage(tree, project_files())
    tarball(tree, folder / SOURCE.format(number))
    shutil.rmtree(OUT / "dist", ignore_errors=True)
    run([sys.executable, "-B", ROOT / "tools" / "package.py", *PACKAGES])
    for path in sorted((OUT / "dist").iterdir()):
        shutil.copy2(path, folder)
    _, text = section((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), number)
    (folder / "CHANGES.md").write_text(f"# HAKMEM {number}\n\n{text}", encoding="utf-8")
    files = sorted(folder.iterdir())
    (folder / f"hakmem-{number}.spdx.json").write_text(json.dumps(bill(files, number), indent=1) + "\n", encoding="utf-8")
    files = sorted(folder.iterdir())
    (folder / "SHA256SUMS").write_text("".join(f"{digest(path)}  {path.name}\n" for path in files), encoding="utf-8")
    return sorted(folder.iterdir())


def main():
    parser = argparse.ArgumentParser(prog="./dev release", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--rehearse", action="store_true")
    kind.add_argument("--publish", action="store_true")
    chosen, number = parser.parse_args(), version()
    rehearsal = chosen.rehearse
    against = reasons(number, rehearsal)
    for each in against:
        print(f"{'would be ' if rehearsal else ''}refused: {each}")
    if against and not rehearsal:
        return 1
    folder = fresh(ROOT / "out" / ("rehearsal" if rehearsal else f"release-{number}"))
    files = make(folder, number)
    for path in files:
        print(f"{path.stat().st_size:>12,}  {path.relative_to(ROOT)}")
    if chosen.publish:
        run(["gh", "release", "create", f"v{number}", "--verify-tag", "--title", f"HAKMEM {number}", "--notes-file", folder / "CHANGES.md", *files])
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as error:
        sys.exit(f"./dev release: {error}")
