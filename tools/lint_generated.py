"""What tools/gen_*.py write is what they would write now."""
import subprocess
import sys

NAME = "generated"


def run(root):
    generators, findings = sorted((root / "tools").glob("gen_*.py")), []
    for generator in generators:
        done = subprocess.run([sys.executable, str(generator), "--check"], cwd=root, check=False,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            said = done.stdout.strip() or "its output is out of date"
            findings.append(f"{generator.relative_to(root)} --check: {said}")
    return len(generators), findings
