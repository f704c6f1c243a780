"""The oracle of our DistributedDataParallel is Python's: the same models and data, in jobs of either language and of both.

usage: data_parallel_test.py DATA_PARALLEL_TWIN DATA_PARALLEL_TWIN_PY        (below $TEST_SRCDIR)

A job is a word, with a letter for each rank:

  P  Python's DistributedDataParallel
  C  ours, in the group that Python's init_process_group makes
  G  ours, in a group of InitProcessGroup

All ranks meet at a store that this process serves, as torchrun's agent does. Of 20 steps of each case, each job must have the
gradients and losses, and at the end the parameters and buffers, of the job in Python alone: bit for bit, or within what
bound() says and why.
"""

import copy
import os
import pathlib
import subprocess
import sys
import unittest

import torch
import torch.distributed as dist

import data_parallel_twin

FOLDER = pathlib.Path(os.environ["TEST_TMPDIR"])
TWIN, PYTHON_TWIN = (os.path.join(os.environ["TEST_SRCDIR"], path) for path in sys.argv[1:3])
STEPS = 20
MAX_RANKS = 3

# Gradients of 2 and 3 ranks; both ways of having two languages in one group, and with the other language at both ends.
JOBS = {2: ["CC", "GG", "CP", "PC"], 3: ["CCC", "GGG", "CPC", "PCP"]}


def make_case(model, options=None, optimizer="sgd", micros=1, rows=(8, 8, 8), set_to_none=True):
    make_case.seed += 1
    generator = torch.Generator().manual_seed(make_case.seed)
    shape = STEPS, MAX_RANKS, micros, max(rows)
    x, y = torch.randn(*shape, 24, generator=generator), torch.randn(*shape, 3, generator=generator)
    if model == "lookup":
        x = torch.randint(0, 50, (*shape, 4), generator=generator)
    torch.manual_seed(make_case.seed)
    return {
        "model": model,
        "options": options or {},
        "optimizer": optimizer,
        "set_to_none": set_to_none,
        "rows": list(rows),
        "x": x,
        "y": y.double() if model == "two types" else y,
        "which": torch.randint(0, 3, shape[:3], generator=generator),  # each rank's own at each step
        "weights": dict(data_parallel_twin.make_model(model).state_dict()),
    }


make_case.seed = 0
SMALL = {"bucket_bytes": 4096}  # several buckets, some of them with several gradients


def make_cases():
    unused, view, static = ({key: True} for key in ("find_unused_parameters", "gradient_as_bucket_view", "static_graph"))
    cases = {
        "one bucket": make_case("mlp"),
        "several buckets": make_case("mlp", SMALL),
        "a bucket for each": make_case("mlp", {"bucket_bytes": 1}),
        "Adam": make_case("mlp", SMALL, "adam"),
        "buffers": make_case("norm"),
        "buffers of each rank": make_case("norm", {"forward_sync_buffers": False}),
        "buffers, accumulated": make_case("norm", SMALL, micros=3),
        "accumulated": make_case("mlp", SMALL, micros=4),
        "accumulated in views": make_case("mlp", {**SMALL, **view}, micros=3),
        "unequal batches": make_case("mlp", SMALL, rows=(8, 5, 1)),
        "two types": make_case("two types", {"bucket_bytes": 1000}),
        "unused looked for, none": make_case("mlp", {**SMALL, **unused}),
        "a branch for each rank": make_case("branches", unused),
        "a branch for each rank, small buckets": make_case("branches", {"bucket_bytes": 500, **unused}),
        "a branch for each rank, in views": make_case("branches", {"bucket_bytes": 500, **unused, **view}),
        "a branch for one rank": make_case("branches", unused),
        "two outputs": make_case("heads", unused),
        "views": make_case("mlp", {**SMALL, **view}),
        "views that are zeroed": make_case("mlp", {**SMALL, **view}, set_to_none=False),
        "static graph": make_case("mlp", {**SMALL, **static}),
        "static graph, unused": make_case("branches", {"bucket_bytes": 500, **static}),
        "static graph in views": make_case("mlp", {**SMALL, **static, **view}),
        "Half": make_case("mlp", {**SMALL, "compression": "half"}),
        "BFloat16": make_case("mlp", {**SMALL, "compression": "bfloat16"}),
        "BFloat16 in views": make_case("mlp", {**SMALL, **view, "compression": "bfloat16"}),
        "sparse": make_case("lookup"),
        "sparse, small buckets": make_case("lookup", {"bucket_bytes": 1}),
    }
    for name, case in cases.items():
        if "buffers" in name:  # not those that every rank begins with
            case["weights"]["1.running_mean"].fill_(0.25)
    cases["a branch for one rank"]["which"][:] = 0
    cases["a branch for one rank"]["which"][:, 1] = 2
    cases["static graph, unused"]["which"][:] = 1
    return cases


def bound(name):
    """How far a number may be from Python's, relative to the largest of its tensor or to 1; 0: not one bit."""
    # LibTorch's formula of Adam is not Python's (multiplying and adding against lerp), so from the second step on the
    # gradients are of other parameters. Those of the first are equal bit for bit.
    return 1e-6 if name == "Adam" else 0.0


class Job:
    """Runs every case on all ranks of a job."""

    def __init__(self, word, cases, file="cases.pt"):
        path = FOLDER / file
        if not path.exists():
            torch.save(cases, path)
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        ranks = []
        for rank, letter in enumerate(word):
            out = FOLDER / f"{path.stem}_{word}_{rank}.pt"
            program = [sys.executable, PYTHON_TWIN] if letter == "P" else [TWIN, {"C": "c10d", "G": "cohort"}[letter]]
            environment = {
                **os.environ, "RANK": str(rank), "WORLD_SIZE": str(len(word)), "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RUN_ID": "oracle",
                "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR",
            }
            ranks.append((subprocess.Popen([*program, path, out], env=environment), out))
        try:
            codes = [process.wait(timeout=240) for process, _ in ranks]
        finally:
            for process, _ in ranks:
                process.kill()
        assert not any(codes), f"{word}: {codes}"
        self.results = [torch.load(out, weights_only=True) for _, out in ranks]


def flat(value):
    """All tensors and numbers in `value`, by the way to them. None stays."""
    if isinstance(value, dict):
        return {f"{key}.{name}": part for key, item in value.items() for name, part in flat(item).items()}
    if isinstance(value, (list, tuple)):
        return flat(dict(enumerate(value)))
    return {"": torch.tensor(value, dtype=torch.float64) if isinstance(value, float) else value}


def apart(ours, theirs):
    """The largest difference, relative to the largest number of the tensor or to 1. 0: not one bit, and the same ones are None."""
    a, b = flat(ours), flat(theirs)
    assert a.keys() == b.keys(), f"other values: {a.keys() ^ b.keys()}"
    worst = 0.0
    for name in a:
        assert (a[name] is None) == (b[name] is None), f"{name}: only one is None"
        if a[name] is None:
            continue
        assert a[name].dtype == b[name].dtype and a[name].shape == b[name].shape, name
        if not torch.equal(*(t.contiguous().reshape(-1).view(torch.uint8) for t in (a[name], b[name]))):
            difference = (a[name].double() - b[name].double()).abs().max() / max(1.0, b[name].abs().max().item())
            worst = max(worst, difference.item(), 1e-300)
    return worst


class DataParallel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cases = make_cases()
        cls.python = {size: Job("P" * size, cls.cases).results for size in JOBS}

    def check(self, word, name, result, rank):
        expected = self.python[len(word)][rank][name]
        distance = apart(result, expected)
        if distance:
            print(f"  {word} rank {rank}  {distance:.2g}  {name}")
        self.assertLessEqual(distance, bound(name))
        self.assertEqual(apart(result["gradients"][0], expected["gradients"][0]), 0)

    def test_every_job_is_what_it_is_in_python_alone(self):
        print("\nApart from the job in Python alone:")
        for size, words in JOBS.items():
            for word in words:
                job = Job(word, self.cases)
                for rank, results in enumerate(job.results):
                    self.assertEqual(results.keys(), self.cases.keys())
                    for name, result in results.items():
                        with self.subTest(job=word, rank=rank, case=name):
                            self.check(word, name, result, rank)

    def test_buckets_that_stay_change_nothing_for_two_ranks(self):
        # Of two numbers the sum is the same in every order; only ours has the option.
        cases = copy.deepcopy({name: case for name, case in self.cases.items() if name != "Adam"})
        for case in cases.values():
            case["options"]["rebuild_buckets"] = False
        for rank, results in enumerate(Job("GG", cases, "staying.pt").results):
            for name, result in results.items():
                with self.subTest(rank=rank, case=name):
                    self.check("GG", name, result, rank)

    # ---- The oracle is one ----

    def test_ranks_are_equal_in_python_where_they_must_be(self):
        for size, ranks in self.python.items():
            for name in self.cases:
                with self.subTest(size=size, case=name):
                    for rank in ranks[1:]:
                        self.assertEqual(apart(rank[name]["gradients"], ranks[0][name]["gradients"]), 0)
                        # The last forward has left each rank its own running means.
                        self.assertEqual(apart(rank[name]["state"], ranks[0][name]["state"]) == 0, "buffers" not in name)
                    self.assertGreater(apart(ranks[1][name]["losses"], ranks[0][name]["losses"]), 0)  # its own data
                    self.assertGreater(apart(ranks[0][name]["state"], self.cases[name]["weights"]), 1e-3)  # it has learnt

    def test_gradients_are_there_and_absent(self):
        of = lambda name, step: self.python[2][0][name]["gradients"][step]
        absent = lambda name: [[g is None for g in of(name, step)] for step in range(STEPS)]
        self.assertTrue(all(row == [False] * 6 + [True] * 2 for row in absent("a branch for one rank")))
        self.assertIn([False, False, True, True, False, False, True, True], absent("a branch for each rank"))
        self.assertIn("indices", of("sparse", 0)[0])

    # ---- Known bad ----

    def test_a_difference_is_seen(self):
        good = self.python[2][0]["several buckets"]
        unused = self.python[2][0]["a branch for one rank"]
        self.assertEqual(apart(copy.deepcopy(good), good), 0)
        self.assertEqual(apart(copy.deepcopy(unused), unused), 0)
        for change in [
            lambda r: r["gradients"][19][3].view(torch.int32)[:1].bitwise_xor_(1),
            lambda r: r["state"]["0.weight"].view(torch.int32)[:1, :1].bitwise_xor_(1),
            lambda r: r["losses"].__setitem__(5, r["losses"][5] * (1 + 1e-15)),
        ]:
            bad = copy.deepcopy(good)
            change(bad)
            self.assertGreater(apart(bad, good), 0)
        for change in [
            lambda r: r["gradients"][3].__setitem__(0, None),
            lambda r: r["gradients"][3].__setitem__(7, torch.zeros(3)),
            lambda r: r["gradients"].pop(),
            lambda r: r["state"].pop("left.bias"),
        ]:
            bad = copy.deepcopy(unused)
            change(bad)
            with self.assertRaises(AssertionError):
                apart(bad, unused)

    def test_another_rank_with_other_data_is_seen(self):
        # One number in the last step of the other rank.
        cases = {name: copy.deepcopy(self.cases[name]) for name in ("several buckets", "BFloat16", "sparse, small buckets")}
        for case in cases.values():
            case["y"][-1, 1] += 0.5
        results = Job("CC", cases, "changed.pt").results[0]
        for name in cases:
            with self.subTest(name):
                expected = self.python[2][0][name]
                self.assertEqual(apart(results[name]["gradients"][:-1], expected["gradients"][:-1]), 0)
                self.assertGreater(apart(results[name]["gradients"][-1], expected["gradients"][-1]), 1e-4)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
