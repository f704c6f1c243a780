"""Tensors beyond 2 and 4 GiB, below a folder with letters beyond ASCII: written in C++, read in C++ and in Python.

usage: formats_large_test.py FORMATS_LARGE SAFETENSORS      (both below $TEST_SRCDIR)

Needs 7 GB of disk under TEST_TMPDIR and 8 GB of memory, and takes minutes.
"""

import os
import pathlib
import subprocess
import sys
import time
import unittest

import torch

FOLDER = pathlib.Path(os.environ["TEST_TMPDIR"]) / "Ablage \u00fc \u6a21\u578b"
SIZES = {"2 GiB": 2**31 + 17, "4 GiB": 2**32 + 17}
PAYLOAD = sum(SIZES.values())
PROGRAM = None


def marks(size):
    """Where the tensors are not zero, as in formats_large.cc."""
    marks = [0, size // 2, size - 1, 2**31 - 1, 2**31]
    return marks + [2**32 - 1, 2**32] if size > 2**32 else marks


class Large(unittest.TestCase):
    def setUp(self):
        FOLDER.mkdir(exist_ok=True)

    def tearDown(self):
        for path in FOLDER.iterdir():
            path.unlink()

    def cpp(self, mode, path):
        """Runs the program; it may have the payload and a fifth in memory."""
        start = time.monotonic()
        peak = int(subprocess.run([PROGRAM, mode, path], check=True, stdout=subprocess.PIPE).stdout)
        seconds = time.monotonic() - start
        print(f"{mode} {path.name}: {seconds:.0f} s, at most {peak / PAYLOAD:.3f} of the payload in memory")
        self.assertGreater(peak, PAYLOAD)  # it was measured
        self.assertLess(peak, 1.2 * PAYLOAD)
        self.assertGreaterEqual(path.stat().st_size, PAYLOAD)

    def check(self, elements, size):
        for mark in marks(size):
            self.assertEqual(elements(mark), 1 + mark % 251, mark)
        self.assertEqual(elements(1), 0)

    def test_pt(self):
        path = FOLDER / "large.pt"
        self.cpp("write", path)
        self.cpp("read", path)
        for mmap in True, False:
            state = torch.load(path, weights_only=True, mmap=mmap)
            self.assertEqual(list(state), list(SIZES))
            for name, size in SIZES.items():
                self.assertEqual(state[name].shape, (size,))
                self.check(lambda mark: state[name][mark].item(), size)
        path.unlink()
        torch.save(state, path)
        del state
        self.cpp("read", path)

    def test_safetensors(self):
        path = FOLDER / "large.safetensors"
        self.cpp("write", path)
        self.cpp("read", path)
        with safetensors.safe_open(path, framework="pt") as file:
            for name, size in SIZES.items():
                part = file.get_slice(name)
                self.assertEqual(part.get_shape(), [size])
                self.check(lambda mark: part[mark : mark + 1].item(), size)
            state = {name: file.get_tensor(name) for name in SIZES}
        for name, size in SIZES.items():
            self.check(lambda mark: state[name][mark].item(), size)


if __name__ == "__main__":
    PROGRAM, library = (os.path.join(os.environ["TEST_SRCDIR"], sys.argv.pop(1)) for _ in range(2))
    sys.path.append(library)
    import safetensors

    unittest.main()
