"""Real torch reads what we wrote: the oracle of the .pt writer.

usage: oracle_test.py WRITE_SAMPLES

Every sample is loaded with weights_only=True and compared bit for bit with what the C++ side says is in it. Then the
comparison itself is tested: a file that was damaged on purpose, or is not what was promised, must not get through.
"""

import collections
import os
import pathlib
import subprocess
import sys
import unittest
import zipfile

import torch

SAMPLES = pathlib.Path(os.environ["TEST_TMPDIR"]) / "samples"
WRITER = None

Expected = collections.namedtuple("Expected", "name dtype shape strides memory values")


def numbers(text):
    return () if text == "-" else tuple(int(n) for n in text.split(","))


def read_expected(path):
    for line in path.read_text("ascii").splitlines():
        name, dtype, shape, strides, memory, values = line.split("\t")
        yield Expected(
            bytes.fromhex(name).decode("utf-8"),
            getattr(torch, dtype),
            numbers(shape),
            None if strides == "*" else numbers(strides),
            int(memory),
            bytes.fromhex(values),
        )


def values_of(tensor):
    tensor = tensor.resolve_conj().resolve_neg().contiguous()
    return tensor.reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def compare(path, expected):
    """Raises AssertionError, or whatever torch.load raises, unless `path` holds exactly `expected`."""
    expected = list(expected)
    state = torch.load(path, weights_only=True)
    assert isinstance(state, dict), f"{path}: a {type(state)}, not a dict"
    assert list(state) == [e.name for e in expected], f"{path}: other names, or in another order"
    memories = {}
    for e in expected:
        tensor = state[e.name]
        assert type(tensor) is torch.Tensor, f"{e.name!r}: a {type(tensor)}"
        assert tensor.dtype == e.dtype, f"{e.name!r}: {tensor.dtype}, not {e.dtype}"
        assert tuple(tensor.shape) == e.shape, f"{e.name!r}: shape {tuple(tensor.shape)}, not {e.shape}"
        assert e.strides in (None, tensor.stride()), f"{e.name!r}: strides {tensor.stride()}, not {e.strides}"
        assert tensor.device.type == "cpu" and not tensor.requires_grad, f"{e.name!r}: not a plain CPU tensor"
        assert values_of(tensor) == e.values, f"{e.name!r}: other values"
        if tensor.numel():
            memories.setdefault(e.memory, set()).add(tensor.untyped_storage().data_ptr())
    for memory, addresses in memories.items():
        assert len(addresses) == 1, f"memory {memory} was shared and no longer is"
    assert len(set.union(set(), *memories.values())) == len(memories), "tensors share memory that did not"


class Oracle(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        SAMPLES.mkdir()
        subprocess.run([WRITER, SAMPLES], check=True)

    def test_every_sample_is_equal_bit_for_bit(self):
        names = sorted(path.stem for path in SAMPLES.glob("*.expected"))
        self.assertEqual(names, ["dtypes", "large", "layouts", "many", "names", "nothing", "tied"])
        for name in names:
            with self.subTest(name):
                compare(SAMPLES / f"{name}.pt", read_expected(SAMPLES / f"{name}.expected"))

    def test_a_file_that_torch_saved_passes(self):
        # The comparison does not ask for more than torch's own files give.
        for name in "layouts", "names", "tied":
            path = SAMPLES / f"{name}_by_torch.pt"
            torch.save(torch.load(SAMPLES / f"{name}.pt", weights_only=True), path)
            compare(path, read_expected(SAMPLES / f"{name}.expected"))

    def test_zip_structure_is_whole(self):
        # torch does not look at the checksums; Python's zipfile does.
        for path in SAMPLES.glob("*.pt"):
            with zipfile.ZipFile(path) as archive:
                self.assertIsNone(archive.testzip(), path)

    # ---- Known-bad files ----

    def refuses(self, path, expected, *errors):
        with self.assertRaises(errors or (AssertionError,)):
            compare(path, expected)

    def damaged(self, name, change):
        data = bytearray((SAMPLES / "tied.pt").read_bytes())
        path = SAMPLES / f"{name}.pt.bad"
        path.write_bytes(change(data))
        return path

    def test_a_flipped_bit_in_a_value_is_seen(self):
        expected = list(read_expected(SAMPLES / "tied.expected"))

        def flip(data):
            at = data.index(expected[0].values)
            data[at + 5] ^= 1
            return data

        self.refuses(self.damaged("flipped", flip), expected)

    def test_a_cut_file_is_seen(self):
        expected = list(read_expected(SAMPLES / "tied.expected"))
        self.refuses(self.damaged("cut", lambda data: data[: len(data) // 2]), expected, RuntimeError)

    def test_another_name_dtype_shape_or_order_is_seen(self):
        good = list(read_expected(SAMPLES / "tied.expected"))
        for bad in [
            [good[0]._replace(name="encoder.weighs")] + good[1:],
            [good[0]._replace(dtype=torch.int32)] + good[1:],
            [good[0]._replace(shape=(4, 8), strides=(8, 1))] + good[1:],
            good[1:] + good[:1],
            good[1:],
        ]:
            self.refuses(SAMPLES / "tied.pt", bad)

    def test_weights_that_are_tied_no_more_are_seen(self):
        state = torch.load(SAMPLES / "tied.pt", weights_only=True)
        path = SAMPLES / "untied.pt.bad"
        torch.save({name: tensor.clone() for name, tensor in state.items()}, path)
        self.refuses(path, list(read_expected(SAMPLES / "tied.expected")))


if __name__ == "__main__":
    WRITER = os.path.join(os.environ["TEST_SRCDIR"], sys.argv.pop(1))
    unittest.main()
