"""States go from C++ to Python and from Python to C++, in .pt and in safetensors files, bit for bit; or are refused.

usage: formats_test.py FORMATS_TWIN FORMATS_MD SAFETENSORS      (all below $TEST_SRCDIR)

What docs/formats.md says is taken at its word: its examples are run, and each row of its tables is tried.
Random states come from the seed that is printed; COHORT_TEST_SEED repeats one.
"""

import collections
import fractions
import json
import math
import os
import pathlib
import pickle
import random
import re
import struct
import subprocess
import sys
import unittest
import warnings

import numpy
import torch

FOLDER = pathlib.Path(os.environ["TEST_TMPDIR"])
SEED = int(os.environ.get("COHORT_TEST_SEED") or random.SystemRandom().randrange(2**32))
COUNT = 150
TWIN = DOCUMENT = None

DTYPES = sorted({d for d in vars(torch).values() if isinstance(d, torch.dtype)}, key=str)


# ---- What a state is, in the words of formats_twin.cc ----


def unmarked(tensor):
    tensor = tensor.detach()
    if tensor.is_conj():
        tensor = tensor.conj()
    return torch._neg_view(tensor) if tensor.is_neg() else tensor


def raw(tensor):
    """The bytes in memory, row-major."""
    plain = unmarked(tensor).contiguous()
    return plain.as_strided((plain.numel(),), (1,)).view(torch.uint8).numpy().tobytes() if plain.numel() else b""


def extent(tensor):
    begin = unmarked(tensor).data_ptr()
    if not tensor.numel():
        return begin, begin
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return begin, begin + (last + 1) * tensor.element_size()


def bits(number):
    return struct.pack(">d", number).hex()


def hexadecimal(text):
    return text.encode("utf-8").hex()


class Describer:
    def describe(self, state):
        self.tensors = []
        value = self.value(state)
        return {"value": value, "tensors": [self.tensor(i) for i in range(len(self.tensors))]}

    def value(self, value):
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int):
            return {"int": str(int(value))}
        if isinstance(value, float):
            return {"float": bits(value)}
        if isinstance(value, complex):
            return {"complex": [bits(value.real), bits(value.imag)]}
        if isinstance(value, (str, torch.device)):
            return {"str": hexadecimal(str(value))}
        if isinstance(value, torch.Tensor):
            assert value.device.type == "cpu"
            self.tensors.append(value)
            return {"tensor": len(self.tensors) - 1}
        if isinstance(value, tuple):
            return {"tuple": [self.value(item) for item in value]}
        if isinstance(value, list):
            return {"list": [self.value(item) for item in value]}
        assert isinstance(value, dict), type(value)
        return {"dict": [[self.value(key), self.value(item)] for key, item in value.items()]}

    def tensor(self, i):
        tensor = self.tensors[i]
        begin, end = extent(tensor)
        first = i
        for j in range(i):
            other_begin, other_end = extent(self.tensors[j])
            if self.tensors[j].dtype == tensor.dtype and begin < other_end and other_begin < end:
                first = j
                break
        return {
            "dtype": str(tensor.dtype).removeprefix("torch."),
            "shape": list(tensor.shape),
            "strides": list(tensor.stride()),
            "conj": int(tensor.is_conj()),
            "neg": int(tensor.is_neg()),
            "first": first,
            "distance": begin - extent(self.tensors[first])[0],
            "values": raw(tensor).hex(),
        }


def describe(state):
    return Describer().describe(state)


def row_major(shape):
    strides = [1] * len(shape)
    for i in range(len(shape) - 1, 0, -1):
        strides[i - 1] = strides[i] * max(shape[i], 1)
    return strides


def has_holes(tensor):
    """Whether a tensor of a description uses fewer elements than lie between its first and its last."""
    last = sum((size - 1) * stride for size, stride in zip(tensor["shape"], tensor["strides"]))
    return 0 < math.prod(tensor["shape"]) <= last


def same_tensors(description):
    """For each tensor, the first one that is the same memory seen in the same way."""
    seen = {}
    for i, tensor in enumerate(description["tensors"]):
        marks = (tensor[key] for key in ("first", "distance", "dtype", "conj", "neg"))
        yield seen.setdefault((*marks, *tensor["shape"], *tensor["strides"]), i) if tensor["values"] else i


def as_torch_file(description):
    """What is promised to come back from a .pt file: views with holes, alone in their memory, without these."""
    all_tensors, same = description["tensors"], list(same_tensors(description))
    firsts = collections.Counter(t["first"] for i, t in enumerate(all_tensors) if same[i] == i)
    tensors = []
    for tensor, i in zip(all_tensors, same):
        alone = all_tensors[i]["first"] == i and firsts[i] == 1
        tensors.append(dict(tensor, strides=row_major(tensor["shape"])) if alone and has_holes(tensor) else tensor)
    return dict(description, tensors=tensors)


def values_without_marks(tensor):
    if not (tensor["conj"] or tensor["neg"]) or not tensor["values"]:
        return tensor["values"]
    values = torch.frombuffer(bytearray.fromhex(tensor["values"]), dtype=getattr(torch, tensor["dtype"]))
    values = values.conj() if tensor["conj"] else values
    return raw((torch._neg_view(values) if tensor["neg"] else values).resolve_conj().resolve_neg()).hex()


def nans_alike(values, tensor):
    """The values (HEX) of a tensor that had a mark: which sign a NaN gets by it depends on how LibTorch goes over it."""
    if not tensor.get("had_mark") or not values:
        return values
    plain = torch.frombuffer(bytearray.fromhex(values), dtype=getattr(torch, tensor["dtype"]))
    plain = torch.view_as_real(plain) if plain.is_complex() else plain
    return raw(torch.where(plain.isnan(), torch.full_like(plain, math.nan), plain)).hex()


def as_safetensors_file(description):
    """From a safetensors file: row-major, without marks, and only what is the same tensor tied."""
    tensors = []
    for tensor, first in zip(description["tensors"], same_tensors(description)):
        changed = dict(conj=0, neg=0, first=first, distance=0, strides=row_major(tensor["shape"]))
        changed |= dict(values=values_without_marks(tensor), had_mark=bool(tensor["conj"] or tensor["neg"]))
        tensors.append(tensor | changed)
    return dict(description, tensors=tensors)


def places(description):
    """The keys on the way to each tensor."""

    def walk(value, path):
        kind, content = next(iter(value.items())) if isinstance(value, dict) else (None, None)
        if kind == "tensor":
            yield path
        elif kind in ("list", "tuple"):
            for i, item in enumerate(content):
                yield from walk(item, path + [str(i)])
        elif kind == "dict":
            for key, item in content:
                yield from walk(item, path + [key.get("int") or bytes.fromhex(key.get("str", "")).decode()])

    return list(walk(description["value"], []))


def names(description):
    return [".".join(path) for path in places(description)]


def own_names(description):
    """Those under which a safetensors file has them: the first name of each tensor."""
    return [name for i, (name, same) in enumerate(zip(names(description), same_tensors(description))) if same == i]


# ---- C++ ----


def run(*arguments):
    output = subprocess.run([TWIN, *map(str, arguments)], check=True, stdout=subprocess.PIPE).stdout
    return [json.loads(line) for line in output.splitlines()]


def text(hexadecimal):
    return bytes.fromhex(hexadecimal).decode("utf-8")


def found_by_cpp(paths):
    """What StateFile says of each file."""
    listing = FOLDER / "files"
    listing.write_text("".join(f"{path}\n" for path in paths), "utf-8")
    return run("read", listing)


# ---- docs/formats.md ----


def rows(title):
    """The table under a heading: the cells of each row, without those of its head."""
    section = DOCUMENT.split(f"\n## {title}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def example(name):
    """What a block of code that begins with `# NAME` defines."""
    blocks = re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL)
    (code,) = [block for block in blocks if block.startswith(f"# {name}\n")]
    defined = {}
    exec(compile(code, name, "exec"), defined)
    return defined


class Test(unittest.TestCase):
    maxDiff = 2000

    def same(self, found, expected):
        """Like assertEqual, with a message that shows where."""
        if found == expected:
            return
        if "error" in found:
            self.fail(text(found["error"]))
        self.assertEqual(found["value"], expected["value"])
        for i, (a, b) in enumerate(zip(found["tensors"], expected["tensors"])):
            plain = {key: item for key, item in b.items() if key != "had_mark"}
            a, plain = (t | dict(values=nans_alike(t["values"], b)) for t in (a, plain))
            self.assertEqual(a, plain, f"tensor {i}")
        self.assertEqual(len(found["tensors"]), len(expected["tensors"]))

    def same_as_cpp_found(self, found, expected):
        """`found` is what C++ said of a file: every way through it leads to the same."""
        if "error" in found:
            self.fail(text(found["error"]))
        self.same(found["read"], expected)
        self.same(found["map"], expected)
        tensors = expected["tensors"]
        self.assertEqual([name for name, _ in found["one_by_one"]], [hexadecimal(name) for name in names(expected)])
        for (_, values), tensor in zip(found["one_by_one"], tensors, strict=True):
            self.assertEqual(nans_alike(values, tensor), nans_alike(tensor["values"], tensor))
        self.assertEqual(text(found["verify"]), "OK")


class FromCpp(Test):
    @classmethod
    def setUpClass(cls):
        cls.folder = FOLDER / "from_cpp"
        cls.folder.mkdir()
        cls.written = {text(w["name"]): w for w in run("write", SEED, COUNT, cls.folder)}

    def test_what_torch_load_returns_is_what_was_written(self):
        count = 0
        for name, written in self.written.items():
            if written["pt"]:
                self.assertTrue(name.startswith("refused"), text(written["pt"]))
                continue
            for mmap in False, True:
                with self.subTest(name=name, mmap=mmap, seed=SEED):
                    state = torch.load(self.folder / f"{name}.pt", weights_only=True, mmap=mmap)
                    self.same(describe(state), as_torch_file(written["state"]))
                    count += 1
        self.assertGreater(count, 2 * COUNT)

    def test_what_the_example_reads_of_a_safetensors_file_is_what_was_written(self):
        read = example("Reads a state")["read_state"]
        count = 0
        for name, written in self.written.items():
            if written["safetensors"]:
                continue
            with self.subTest(name=name, seed=SEED):
                path = self.folder / f"{name}.safetensors"
                state = read(path)
                with safetensors.safe_open(path, framework="pt") as file:
                    if "cohort.state" not in file.metadata():  # the library has an order of its own
                        state = {name: state[name] for name in names(written["state"])}
                self.same(describe(state), as_safetensors_file(written["state"]))
                count += 1
        self.assertGreater(count, COUNT / 4)

    def test_the_formats_own_library_finds_every_tensor_under_its_name(self):
        for name, written in self.written.items():
            if written["safetensors"]:
                continue
            with self.subTest(name=name, seed=SEED):
                path = self.folder / f"{name}.safetensors"
                state = as_safetensors_file(written["state"])
                tensors = dict(reversed(list(zip(names(state), state["tensors"]))))
                loaded = safetensors.torch.load_file(path)
                self.assertEqual(sorted(loaded), sorted(own_names(written["state"])))
                for n, tensor in loaded.items():
                    values = nans_alike(tensors[n]["values"], tensors[n])
                    self.assertEqual(nans_alike(raw(tensor).hex(), tensors[n]), values, n)
                with safetensors.safe_open(path, framework="pt") as file:
                    self.assertEqual(file.metadata()["made by"], "C++")
                    self.assertEqual(file.metadata()["\u00e4"], '\n"')

    def test_a_state_is_refused_as_safetensors_only_for_the_reasons_promised(self):
        seen = set()
        for name, written in self.written.items():
            if written["pt"]:
                continue
            with self.subTest(name=name, seed=SEED):
                own = own_names(written["state"])
                twice = sorted({n for n in own if own.count(n) > 1})
                lacking = {t["dtype"] for t in written["state"]["tensors"]} & {"complex32", "complex128"}
                reason = twice or lacking or "__metadata__" in own or name == "negative8"
                message = text(written["safetensors"])
                self.assertEqual(bool(reason), bool(message), f"{reason} {message}")
                if message:
                    seen.add("twice" if twice else "dtype" if lacking else name)
                    self.assertRegex(message, "^UNIMPLEMENTED: " if name == "negative8" else "^INVALID_ARGUMENT: ")
        self.assertEqual(seen, {"twice", "dtype", "metadata", "negative8"})

    def test_two_tensors_with_one_joined_name_are_refused_with_both_places(self):
        collision = self.written["collision"]
        self.assertEqual(collision["pt"], "")
        self.assertIn('"a.b.c"', text(collision["safetensors"]))
        self.assertRegex(text(collision["safetensors"]), r'\["a"\]\["b\.c"\].*\["a\.b"\]\["c"\]')
        self.assertIn("__metadata__", text(self.written["metadata"]["safetensors"]))
        self.assertFalse((self.folder / "collision.safetensors").exists())

    def test_of_a_large_table_only_the_rows_are_written(self):
        rows_bytes = 10 * 250 * 4
        for extension in "pt", "safetensors":
            size = (self.folder / f"slice.{extension}").stat().st_size
            self.assertTrue(rows_bytes <= size <= rows_bytes + 2**16, size)

    def test_tensors_that_no_file_holds_are_refused_by_name(self):
        reasons = dict(sparse="parse", sparse_csr="parse", quantized="uantized", nested="ested", meta="meta")
        for kind, reason in reasons.items():
            for extension in "pt", "safetensors":
                with self.subTest(kind=kind, extension=extension):
                    message = text(self.written[f"refused_{kind}"][extension])
                    self.assertIn(f'"part.{kind}"', message)
                    self.assertIn(reason, message)
                    self.assertFalse((self.folder / f"refused_{kind}.{extension}").exists())


# ---- Random states of Python's ----

NAMES = ["", "weight", "layer.0.weight", ".", "..", "../../etc/passwd", " ", "a b", "a/b", "\"quote'", "a:b", "a\nb"]
NAMES += ["\u00e4\u20ac\U0001f600", "metrics", "$float", "__class__", "data.pkl", "0", "back\\lash", "\x7f\x01"]
NAMES += ["n" * 10000]
INTS = [0, 1, -1, 255, 256, 65535, 65536, -129, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**53 + 1]
INTS += [2**63 - 1, -(2**63)]
FLOATS = [0.0, -0.0, math.inf, -math.inf, 5e-324, -2.5e-310, 0.1, 1e16, 1e300, 1 / 3]
NANS = "7ff8000000000001", "fff8000000000000", "7ff0000000000001"
FLOATS += [struct.unpack(">d", bytes.fromhex(nan))[0] for nan in NANS]
SHAPES = [(), (0,), (3, 0, 2), (1,) * 10, (1,), (5,), (3, 4), (2, 3, 4), (1, 7), (300,)]


class RandomState:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.tensors = []
        self.containers = []

    def tensor(self, dtypes):
        r = self.random
        if self.tensors and r.random() < 0.3:
            tensor = r.choice(self.tensors)
            view = r.choice(["same", "flat", "rest", "wide"])
            if view == "flat" and tensor.dim() > 1:
                tensor = tensor.transpose(0, 1)
            elif view == "rest" and tensor.dim() and tensor.shape[0] > 1:
                tensor = tensor[1:]
            elif view == "wide":
                tensor = tensor.unsqueeze(-1)
        else:
            shape = r.choice(SHAPES)
            tensor = filled(r, shape, r.choice(dtypes))
            layouts = "plain", "plain", "transposed", "step", "part", "expanded", "conj", "neg", "grad", "parameter"
            layout = r.choice(layouts)
            dtype_size = tensor.dtype.itemsize  # float8 has no negative in LibTorch
            real = tensor.dtype.is_floating_point or tensor.dtype.is_complex
            if layout == "transposed" and tensor.dim() > 1:
                tensor = tensor.transpose(0, -1)
            elif layout == "step" and tensor.dim():
                tensor = tensor[..., ::2]
            elif layout == "part" and tensor.dim():
                tensor = tensor[..., 1:3]
            elif layout == "expanded":
                tensor = tensor.unsqueeze(0).expand(3, *shape)
            elif layout == "conj" and tensor.dtype.is_complex:
                tensor = tensor.conj()
            elif layout == "neg" and real and dtype_size > 1:
                tensor = torch._neg_view(tensor)
            elif layout == "grad" and real:
                tensor = tensor.requires_grad_()
            elif layout == "parameter" and real:
                tensor = torch.nn.Parameter(tensor)
        self.tensors.append(tensor.detach() if tensor.requires_grad else tensor)
        return tensor

    def value(self, dtypes, depth=0):
        r = self.random
        kind = r.randrange(4) if depth == 0 else r.randrange(14)
        if depth > 4:
            kind = r.randrange(5, 14)
        if kind < 4:
            items = [self.value(dtypes, depth + 1) for _ in range(r.randrange(6))]
            if kind == 2:
                return self.shared(items)
            if kind == 3:
                return tuple(items)
            keys = r.sample([*NAMES, *INTS], len(items))
            return collections.OrderedDict(zip(keys, items)) if kind else self.shared(dict(zip(keys, items)))
        if kind == 4 and self.containers:
            return r.choice(self.containers)
        return [
            lambda: None,
            lambda: r.random() < 0.5,
            lambda: r.choice(INTS),
            lambda: r.getrandbits(63) >> r.randrange(63),
            lambda: r.choice(FLOATS),
            lambda: complex(r.choice(FLOATS), r.choice(FLOATS)),
            lambda: r.choice(NAMES),
            lambda: torch.Size([r.randrange(10), 2]),
            lambda: torch.device("cpu") if r.random() < 0.5 else torch.device("cuda", 3),
        ][r.randrange(9)]() if kind < 8 else self.tensor(dtypes)

    def shared(self, container):
        self.containers.append(container)
        return container


def filled(r, shape, dtype):
    """Any bits are some value, but for bool."""
    count = math.prod(shape)
    if dtype == torch.bool:
        return torch.tensor([r.random() < 0.5 for _ in range(count)], dtype=dtype).reshape(shape)
    if not count:
        return torch.empty(shape, dtype=dtype)
    data = bytearray(r.choice([r.randbytes(1), b"\0", b"\xff", b"\x80"])[0] for _ in range(count * dtype.itemsize))
    return torch.frombuffer(data, dtype=torch.uint8).clone().view(dtype).reshape(shape)


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Sequential(torch.nn.Conv2d(2, 3, 2), torch.nn.BatchNorm2d(3))
        self.embedding = torch.nn.Embedding(5, 4)
        self.out = torch.nn.Linear(4, 5, bias=False)
        self.out.weight = self.embedding.weight
        self.register_buffer("mask", torch.tensor([True, False]))


def trained(make_optimizer):
    module = Network()
    optimizer = make_optimizer(module.parameters())
    for parameter in module.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    return module, optimizer


class Evil:
    """Its pickle calls a function."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


class FromPython(Test):
    @classmethod
    def setUpClass(cls):
        cls.folder = FOLDER / "from_python"
        cls.folder.mkdir()
        cls.dtypes = [getattr(torch, dtype.strip("`")) for dtype, in_torch, *_ in rows("Dtypes") if in_torch == "yes"]

    def cpp_finds(self, states):
        """C++ reads each file as the state; states: {path: state}"""
        for (path, state), found in zip(states.items(), found_by_cpp(states), strict=True):
            with self.subTest(path=path.name, seed=SEED):
                self.same_as_cpp_found(found, describe(state))

    def refused(self, paths, *parts):
        """C++ refuses each file, in a message that has the file's name and all of `parts`."""
        for path, found in zip(paths, found_by_cpp(paths), strict=True):
            with self.subTest(path=path.name):
                self.assertIn("error", found, f"{path} was read")
                message = text(found["error"])
                self.assertRegex(message, "^INVALID_ARGUMENT: ")
                for part in (str(path), *parts):
                    self.assertIn(part, message)

    def test_random_states(self):
        states = {}
        for i in range(COUNT):
            state = RandomState(f"{SEED} {i}").value(self.dtypes)
            path = self.folder / f"random{i}.pt"
            torch.save(state, path, pickle_protocol=2 + i % 4)
            states[path] = state
        self.cpp_finds(states)

    def test_modules_and_optimizers(self):
        states = {}
        makers = {
            "sgd": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
            "adam": lambda p: torch.optim.Adam(p, amsgrad=True),
            "adamw": lambda p: torch.optim.AdamW(p),
            "rmsprop": lambda p: torch.optim.RMSprop(p, centered=True),
            "adagrad": lambda p: torch.optim.Adagrad(p),
        }
        for name, make in makers.items():
            module, optimizer = trained(make)
            self.assertTrue(hasattr(module.state_dict(), "_metadata"))
            state = {"model": module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3, "best": None}
            state["parameters"] = list(module.parameters())
            state["rng"] = torch.get_rng_state()
            for protocol in range(2, 6):
                path = self.folder / f"{name}{protocol}.pt"
                torch.save(state, path, pickle_protocol=protocol)
                states[path] = state
        self.cpp_finds(states)

    def test_paths_and_names_in_any_script(self):
        state = {name: torch.ones(2) for name in NAMES}
        path = self.folder / "Zustände" / "模型 \U0001f600.pt"
        path.parent.mkdir()
        torch.save(state, path)
        safetensors.torch.save_file(state, path.with_suffix(".safetensors"))
        self.cpp_finds({path: state})
        (found,) = found_by_cpp([path.with_suffix(".safetensors")])
        self.assertEqual({text(n): v for n, v in found["one_by_one"]}, {n: raw(t).hex() for n, t in state.items()})

    def test_files_without_checksums(self):
        state = {"a": torch.arange(5.0), "b": [torch.ones(3), 1]}
        paths = [self.folder / "with.pt", self.folder / "without.pt"]
        torch.save(state, paths[0])
        before = torch.serialization.get_crc32_options()
        torch.serialization.set_crc32_options(False)
        torch.save(state, paths[1])
        torch.serialization.set_crc32_options(before)
        found = found_by_cpp(paths)
        self.assertEqual([f["has_checksums"] for f in found], [1, 0])
        for f in found:
            self.same_as_cpp_found(f, describe(state))

    def test_what_the_formats_own_library_writes(self):
        r = random.Random(SEED)
        dtypes = [getattr(torch, d.strip("`")) for d, _, _, library in rows("Dtypes") if library == "yes"]
        states = {}
        for i in range(20):
            state = {name: filled(r, r.choice(SHAPES), r.choice(dtypes)) for name in r.sample(NAMES, 6)}
            path = self.folder / f"library{i}.safetensors"
            metadata = {"format": "pt", "\u00e4 \n": '"'} if i % 2 else None
            safetensors.torch.save_file(state, path, metadata)
            states[path] = state, metadata
        for (path, (state, metadata)), found in zip(states.items(), found_by_cpp(states), strict=True):
            with self.subTest(path=path.name, seed=SEED):
                # The library puts them in an order of its own.
                ordered = {text(name): state[text(name)] for name, _ in found["one_by_one"]}
                self.assertEqual(len(ordered), len(state))
                self.same_as_cpp_found(found, describe(ordered))
                self.assertEqual({text(k): text(v) for k, v in found["metadata"]}, metadata or {})
                self.assertEqual(found["has_checksums"], 0)

    def test_what_the_example_writes_as_safetensors(self):
        write, read = example("Writes a state")["write_state"], example("Reads a state")["read_state"]
        dtypes = [getattr(torch, d.strip("`")) for d, _, _, library in rows("Dtypes") if library == "yes"]
        states = {}
        for i in range(COUNT):
            state = RandomState(f"{SEED} {i}").value(dtypes)
            if len(set(own := names(describe(state)))) < len(own):
                continue  # two tensors of one name
            path = self.folder / f"example{i}.safetensors"
            write(state, path)
            states[path] = state
        self.assertGreater(len(states), COUNT / 3)
        for (path, state), found in zip(states.items(), found_by_cpp(states), strict=True):
            with self.subTest(path=path.name, seed=SEED):
                expected = as_safetensors_file(describe(state))
                # The example ties what is the same object.
                for description in expected, found["read"], found["map"]:
                    for tensor in description["tensors"]:
                        tensor.update(first=0, distance=0)
                self.same_as_cpp_found(found, expected)
                again = describe(read(path))
                for tensor in again["tensors"]:
                    tensor.update(first=0, distance=0)
                self.same(again, expected)

    # ---- Refusals ----

    def test_files_of_other_kinds(self):
        module = torch.nn.Linear(1, 1)
        legacy = [self.folder / f"legacy{protocol}.pt" for protocol in (2, 3, 4, 5)]
        for protocol, path in zip((2, 3, 4, 5), legacy):
            torch.save({"a": torch.ones(2)}, path, pickle_protocol=protocol, _use_new_zipfile_serialization=False)
        self.refused(legacy, "before PyTorch 1.6", "torch.save(torch.load(OLD, weights_only=True), NEW)")

        whole = [self.folder / f"whole{protocol}.pt" for protocol in range(2, 6)]
        for protocol, path in zip(range(2, 6), whole):
            torch.save(module, path, pickle_protocol=protocol)
        self.refused(whole, "torch.nn.modules.linear.Linear", "state_dict()")

        script = self.folder / "script.pt"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.jit.save(torch.jit.trace(module, torch.ones(1, 1)), script)
        self.refused([script], "TorchScript", "torch.save(torch.jit.load(OLD).state_dict(), NEW)")

        bare = self.folder / "bare.pkl"
        bare.write_bytes(pickle.dumps({"a": 1}))
        self.refused([bare], "a bare pickle")

        arrays = self.folder / "arrays.npz"
        numpy.savez(arrays, a=numpy.ones(2))
        self.refused([arrays], "a zip archive of another kind")

    def test_nothing_in_a_file_is_ever_run(self):
        marker = self.folder / "marker"
        touch = f"touch '{marker}'"
        calls = {
            "posix.system": Evil(os.system, touch),
            "builtins.eval": Evil(eval, f"__import__('pathlib').Path({str(marker)!r}).touch()"),
            "builtins.exec": Evil(exec, f"open({str(marker)!r}, 'w')"),
            "subprocess.Popen": Evil(subprocess.Popen, ["touch", str(marker)]),
            "subprocess.run": Evil(subprocess.run, ["touch", str(marker)]),
            "pathlib.Path.touch": Evil(pathlib.Path.touch, marker),
        }
        self.assertFalse(marker.exists())
        pickle.loads(pickle.dumps(calls["posix.system"]))
        self.assertTrue(marker.exists(), "the marker shows no call")
        marker.unlink()

        def model(evil):
            state = torch.nn.Linear(1, 1).state_dict()
            state._metadata = evil
            return state

        wraps = {
            "alone": lambda evil: evil,
            "model": lambda evil: {"model": {"weight": torch.ones(1), "bias": evil}},
            "metadata": lambda evil: {"model": model(evil)},
            "state": lambda evil: {"optimizer": {"state": {0: {"step": evil}}, "param_groups": []}},
            "group": lambda evil: {"optimizer": {"state": {}, "param_groups": [{"lr": evil, "params": [0]}]}},
            "key": lambda evil: [{(evil,): 1}],
        }
        for symbol, evil in calls.items():
            for protocol in range(2, 6):
                paths = []
                for place, wrap in wraps.items():
                    paths.append(self.folder / f"evil-{symbol}-{place}-{protocol}.pt")
                    torch.save(wrap(evil), paths[-1], pickle_protocol=protocol)
                in_file = symbol
                if protocol < 4 and symbol == "pathlib.Path.touch":
                    in_file = "builtins.getattr"  # which gets the method
                if protocol < 3:
                    in_file = in_file.replace("subprocess.", "commands.")  # as Python 2 called it
                self.refused(paths, f'it holds "{in_file}", which is not data; nothing of it is run')
                self.assertFalse(marker.exists(), symbol)


class Detector(Test):
    """The comparison sees what it is for."""

    def test_every_difference_is_seen(self):
        weight = torch.arange(6.0).reshape(2, 3)
        state = {"a": weight, "b": [weight, 1, 0.0, (None, True)], "c": weight[1:]}
        good = describe(state)
        self.same(describe(dict(state)), good)
        bad = [
            {"c": state["c"], "a": weight, "b": state["b"]},
            state | {"a": weight.clone()},
            state | {"a": weight.double()},
            state | {"a": weight.reshape(3, 2)},
            state | {"a": weight.t().contiguous().t()},
            state | {"a": torch._neg_view(weight)},
            state | {"c": weight[:1]},
            state | {"c": weight[1:].clone()},
            state | {"b": (weight, 1, 0.0, (None, True))},
            state | {"b": [weight, 1, -0.0, (None, True)]},
            state | {"b": [weight, 1.0, 0.0, (None, True)]},
            state | {"b": [weight, True, 0.0, (None, True)]},
            state | {"b": [weight, 1, 0.0, (None, 1)]},
            state | {"d": None},
        ]
        for i, other in enumerate(bad):
            with self.subTest(i), self.assertRaises(AssertionError):
                self.same(describe(other), good)

    def test_a_row_that_lies_is_seen(self):
        global DOCUMENT
        truth = DOCUMENT
        for row, lie, test in (
            ("| `float16` | yes | yes | yes |", "| `float16` | yes | no | yes |", "test_its_dtypes"),
            ("| `qint8` | no | no | no |", "| `qint8` | yes | no | no |", "test_its_dtypes"),
            ("| `{1, 2}` | refused: a set |", "| `{1, 2}` | list |", "test_its_kinds_of_values"),
            ("| `(1, 2)` | tuple |", "| `(1, 2)` | list |", "test_its_kinds_of_values"),
        ):
            self.assertIn(row, truth)
            DOCUMENT = truth.replace(row, lie)
            result = Document(test).run()
            DOCUMENT = truth
            self.assertEqual(len(result.failures), 1, lie)


class Document(Test):
    """docs/formats.md says what is so."""

    def test_its_dtypes(self):
        folder = FOLDER / "dtypes"
        folder.mkdir(exist_ok=True)
        written = {text(w["name"]): w for w in run("dtypes", folder)}
        table = {dtype.strip("`"): cells for dtype, *cells in rows("Dtypes")}
        self.assertEqual(sorted(table), [str(dtype).removeprefix("torch.") for dtype in DTYPES])
        self.assertEqual(set(written) - set(table), set())
        for name, said in table.items():
            with self.subTest(name):
                seen = [self.torch_file(folder, name, written), *self.safetensors_file(folder, name, written)]
                self.assertEqual(said, seen)

    def torch_file(self, folder, name, written):
        """Whether a tensor of the dtype goes there and back in a .pt file."""
        cpp = written.get(name, {"unmakeable": ""})
        crosses = "unmakeable" not in cpp and not cpp["pt"]
        if crosses:
            self.same(describe(torch.load(folder / f"{name}.pt", weights_only=True)), cpp["state"])
        path = folder / f"{name}_of_python.pt"
        try:
            state = {"x": self.some_tensor(name)}
            torch.save(state, path)
        except (RuntimeError, NotImplementedError, KeyError):
            self.assertFalse(crosses)
            return "no"
        (found,) = found_by_cpp([path])
        self.assertEqual("error" not in found, crosses, text(found.get("error", "")))
        if crosses:
            self.same_as_cpp_found(found, describe(state))
        else:
            self.assertIn(str(path), text(found["error"]))
        return "yes" if crosses else "no"

    def safetensors_file(self, folder, name, written):
        """The same for safetensors files of ours, and then for those between us and the format's own library."""
        cpp = written.get(name, {"unmakeable": ""})
        if "unmakeable" in cpp or cpp["safetensors"]:
            return "no", "no"
        path = folder / f"{name}.safetensors"
        self.same_as_cpp_found(found_by_cpp([path])[0], cpp["state"])
        try:
            library_reads = describe(safetensors.torch.load_file(path)) == cpp["state"]
        except (KeyError, safetensors.SafetensorError):
            library_reads = False
        state = {"x": self.some_tensor(name)}
        path = folder / f"{name}_of_python.safetensors"
        try:
            safetensors.torch.save_file(state, path)
        except (KeyError, ValueError, safetensors.SafetensorError):
            return "yes", "reads it" if library_reads else "no"
        self.same_as_cpp_found(found_by_cpp([path])[0], describe(state))
        return "yes", "yes" if library_reads else "writes it"

    def some_tensor(self, name):
        if name.startswith("q"):
            scalar = {"quint4x2": "quint8", "quint2x4": "quint8"}.get(name, name)
            return torch.quantize_per_tensor(torch.ones(3, 4), 0.1, 0, getattr(torch, scalar))
        return filled(random.Random(1), (3, 4), getattr(torch, name))

    def test_its_kinds_of_values(self):
        table = rows("Values")
        self.assertGreater(len(table), 30)
        paths, states = [], []
        for i, (expression, *_) in enumerate(table):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                state = {"here": eval(expression.strip("`"), {**globals()})}
            paths.append(FOLDER / f"value{i}.pt")
            torch.save(state, paths[-1])
            states.append(state)
        for (expression, said), state, path, found in zip(table, states, paths, found_by_cpp(paths), strict=True):
            with self.subTest(expression):
                reason = said.removeprefix("refused: ")
                if reason != said:
                    self.assertIn("error", found)
                    self.assertIn(reason, text(found["error"]).replace('"', "`"))
                    self.assertIn(str(path), text(found["error"]))
                    continue
                self.same_as_cpp_found(found, describe(state))
                ((_, value),) = found["read"]["value"]["dict"]
                kind = "None" if value is None else "bool" if isinstance(value, bool) else next(iter(value))
                self.assertEqual(said, kind)


if __name__ == "__main__":
    TWIN, DOCUMENT, library = (os.path.join(os.environ["TEST_SRCDIR"], sys.argv.pop(1)) for _ in range(3))
    DOCUMENT = pathlib.Path(DOCUMENT).read_text("utf-8")
    sys.path.append(library)
    import safetensors
    import safetensors.torch

    print(f"seed {SEED}")
    unittest.main()
