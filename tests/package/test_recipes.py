#!/usr/bin/env python3
"""The recipes in packaging/recipes, for package managers that cannot be had here: their version is the project's, CMakeLists.txt
has the options that they set, and their languages' parsers take them, where there are any."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tools"))
import release

RECIPES = ROOT / "packaging/recipes"
PARSERS = {"APKBUILD": ["sh", "-n"], "default.nix": ["nix-instantiate", "--parse"], "hakmem.rb": ["ruby", "-c"]}
VERSIONED = ("APKBUILD", "default.nix", "vcpkg.json", "hakmem.rb")


class Recipes(unittest.TestCase):
    def test_versions(self):
        for name in VERSIONED:
            versions = set(re.findall(r"\d+\.\d+\.\d+", (RECIPES / name).read_text(encoding="utf-8")))
            self.assertEqual(versions, {os.environ["HAK_TEST_VERSION"]}, name)

    def test_source_is_that_of_the_release(self):
        for name in ("APKBUILD", "hakmem.rb"):
            text = (RECIPES / name).read_text(encoding="utf-8").replace("$pkgver", os.environ["HAK_TEST_VERSION"])
            self.assertEqual(set(re.findall(r"hakmem-[\w.-]+\.tar\.gz", text)), {release.SOURCE.format(os.environ["HAK_TEST_VERSION"])}, name)

    def test_options_exist(self):
        known = set(re.findall(r"option\((HAKMEM_\w+)", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")))
        for path in RECIPES.iterdir():
            self.assertLessEqual(set(re.findall(r"-D(HAKMEM_\w+)", path.read_text(encoding="utf-8"))), known, path.name)

    def test_they_parse(self):
        json.loads((RECIPES / "vcpkg.json").read_text(encoding="utf-8"))
        for name, command in PARSERS.items():
            if shutil.which(command[0]):
                subprocess.run([*command, RECIPES / name], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    unittest.main()
