"""unpack.py takes what matches, keeps the folders, and lets nothing out of the target folder."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import zipfile

UNPACK = pathlib.Path(__file__).with_name("unpack.py")


class UnpackTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=os.environ["TEST_TMPDIR"])
        self.addCleanup(folder.cleanup)
        self.wheels = pathlib.Path(folder.name, "wheels")
        self.tree = pathlib.Path(folder.name, "tree")
        self.wheels.mkdir()

    def wheel(self, name, members):
        with zipfile.ZipFile(self.wheels / name, "w") as archive:
            for path, text in members.items():
                archive.writestr(path, text)

    def unpack(self, *patterns):
        return subprocess.run([sys.executable, UNPACK, self.wheels, self.tree, *patterns], capture_output=True, text=True)

    def files(self):
        return sorted(str(f.relative_to(self.tree)) for f in self.tree.rglob("*") if f.is_file())

    def test_takes_what_matches_from_all_wheels_into_one_tree(self):
        self.wheel("a.whl", {"torch/lib/a.so": "a", "torch/other": "no"})
        self.wheel("b.whl", {"nvidia/cu13/lib/b.so.13": "b", "nvidia/cu13/include/b.h": "no"})
        result = self.unpack("torch/lib/*", "nvidia/*/lib/*.so*")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(self.files(), ["nvidia/cu13/lib/b.so.13", "torch/lib/a.so"])
        self.assertEqual((self.tree / "torch/lib/a.so").read_text(), "a")

    def test_lets_nothing_out(self):
        for member in "../evil", "/tmp/evil", "a/../../evil":
            self.wheel("a.whl", {member: "evil"})
            result = self.unpack("*")
            self.assertNotEqual(result.returncode, 0)
            self.assertIn("would leave the target folder", result.stderr)
            self.assertFalse((self.tree.parent / "evil").exists())

    def test_no_wheel_is_an_error(self):
        result = self.unpack("*")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("no wheel in", result.stderr)


if __name__ == "__main__":
    unittest.main()
