"""Optimizers, schedules and random numbers go from Python to C++ and back: the states bit for bit, the training as far as LibTorch's
formulas are Python's.

usage: optimizer_test.py OPTIMIZER_TWIN

For each optimizer and set of options, Python makes a state at steps 0 and 10; C++ and Python go on from both, in files
between the two. How far the parameters are apart after 10 steps is printed, and bounded by bound().
"""

import copy
import itertools
import os
import pathlib
import struct
import subprocess
import sys
import unittest

import torch

FOLDER = pathlib.Path(os.environ["TEST_TMPDIR"])
TWIN = None
STEPS = 10

OPTIMIZERS = {
    "SGD": [
        dict(lr=0.1),
        dict(lr=0.1, momentum=0.9),
        dict(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
        dict(lr=0.1, momentum=0.9, dampening=0.5, foreach=True),
    ],
    "Adam": [
        dict(),
        dict(lr=0.01, betas=(0.8, 0.99), weight_decay=0.1),
        dict(amsgrad=True, eps=1e-6, foreach=False),
        dict(fused=True),
    ],
    "AdamW": [dict(), dict(lr=0.01, amsgrad=True, weight_decay=0.3)],
    "RMSprop": [
        dict(),
        dict(momentum=0.5),
        dict(centered=True, momentum=0.9, weight_decay=0.01, alpha=0.9),
    ],
    "Adagrad": [
        dict(),
        dict(lr=0.1, lr_decay=0.1, weight_decay=0.01, initial_accumulator_value=0.5),
    ],
}

# Where LibTorch's formula is not Python's (multiplying and adding against lerp).
ANOTHER_FORMULA = 1e-4  # of the way that a parameter went in 10 steps; 7e-6 was the most seen


def bound(name, options):
    """How far a parameter may be apart after 10 steps in each language, relative to its way. 0: not one bit."""
    return ANOTHER_FORMULA if name in ("Adam", "AdamW") or options.get("centered") else 0.0


SCHEDULERS = {
    "StepLR": [dict(step_size=7), dict(step_size=3, gamma=0.9)],
    "CosineAnnealingLR": [dict(T_max=20), dict(T_max=7, eta_min=0.003)],
    "LinearLR": [dict(), dict(start_factor=0.01, total_iters=30), dict(start_factor=1.0, end_factor=0.1, total_iters=40)],
    "ReduceLROnPlateau": [
        dict(),
        dict(patience=2, factor=0.7, cooldown=1, min_lr=[0.01, 0.001]),
        dict(mode="max", patience=0, factor=0.9, threshold_mode="abs", threshold=0.1),
    ],
}


def bits(value):
    """A value that is the same if, and only if, type and bits of all of `value` are.

    But for the order of keys: in Python that of a group depends on what the caller put there first.
    """
    if isinstance(value, torch.Tensor):
        assert value.device.type == "cpu"
        plain = value.detach().contiguous().reshape(-1).view(torch.uint8)
        return value.dtype, tuple(value.shape), plain.numpy().tobytes()
    if isinstance(value, float):
        return float, struct.pack("<d", value)
    if isinstance(value, dict):
        return dict, {bits(key): bits(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value), [bits(item) for item in value]
    assert value is None or type(value) in (bool, int, str), type(value)
    return type(value), value


def numbers(value):
    """`value` with every int that is no bool as a float: LibTorch has numbers where Python's defaults are ints."""
    if type(value) is int:
        return float(value)
    if isinstance(value, dict):
        return {key: numbers(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(numbers(item) for item in value)
    return value


def make_parameters():
    generator = torch.Generator().manual_seed(20)
    parameters = [
        torch.randn(33, 5, generator=generator),
        torch.randn(64, generator=generator),
        torch.randn(3, 4, 2, generator=generator, dtype=torch.float64),
    ]
    parameters[1] = parameters[1].reshape(8, 8).t()  # dense, and not contiguous
    return parameters


def make_noise(seed):
    generator = torch.Generator().manual_seed(seed)
    return [[torch.randn(p.shape, generator=generator, dtype=p.dtype) for p in make_parameters()] for _ in range(STEPS)]


class Run:
    """Training in Python."""

    def __init__(self, name, options, named=False, parameters=None):
        self.parameters = [p.clone().requires_grad_() for p in parameters or make_parameters()]
        named_parameters = list(zip(["fc.weight", "fc.bias", "scale"], self.parameters))
        members = named_parameters if named else self.parameters
        groups = [{"params": members[:2]}, {"params": members[2:], "lr": 0.05}]
        self.optimizer = getattr(torch.optim, name)(groups, **options)

    def train(self, noise):
        for step in noise:
            for parameter, part in zip(self.parameters, step):
                parameter.grad = parameter.detach() / 4 + part
            self.optimizer.step()
        return self

    def state(self):
        """A copy: training goes on in the tensors of state_dict()."""
        return copy.deepcopy(
            {"parameters": [p.detach() for p in self.parameters], "optimizer": self.optimizer.state_dict()}
        )



class Jobs:
    """Jobs for the C++ side, done by one process."""

    def __init__(self):
        self.lines = []
        self.files = itertools.count()

    def file(self):
        return FOLDER / f"{id(self)}_{next(self.files)}.pt"

    def add(self, kind, name, steps, state):
        """The path of what is there after run(). `state` is a state, or the path of one that a job before writes."""
        begin = state
        if isinstance(state, dict):
            begin = self.file()
            torch.save(state, begin)
        end = self.file()
        self.lines.append(f"{kind}\t{name}\t{steps}\t{begin}\t{end}\n")
        return end

    def run(self):
        path = FOLDER / "jobs"
        path.write_text("".join(self.lines))
        self.lines = []
        subprocess.run([TWIN, path], check=True)


def load(path):
    return torch.load(path, weights_only=True)


def cases():
    for name, sets in OPTIMIZERS.items():
        for options in sets:
            for named in False, True:
                yield name, options, named


def apart(ours, theirs, begin):
    """How far two runs are apart, relative to the way that they went. 0: not one bit."""
    worst = 0.0
    for a, b, start in zip(ours["parameters"], theirs["parameters"], begin["parameters"]):
        if bits(a) != bits(b):
            worst = max(worst, ((a - b).abs().max() / (b - start).abs().max()).item())
    return worst


class Optimizers(unittest.TestCase):
    def test_states_cross_bit_for_bit(self):
        jobs = Jobs()
        there = []
        for name, options, named in cases():
            for steps in 0, STEPS:
                run = Run(name, options, named).train(make_noise(1)[:steps])
                begin = {**run.state(), "noise": make_noise(2)}
                there.append((name, options, begin, jobs.add("train", name, 0, begin), jobs.add("train", name, STEPS, begin)))
        jobs.run()
        for name, options, begin, same, later in there:
            with self.subTest(name, options=options):
                # Python to C++ and back, without a step between.
                self.assertEqual(bits(load(same)["optimizer"]), bits(begin["optimizer"]))
                self.assertEqual(bits(load(same)["parameters"]), bits(begin["parameters"]))
                # C++ to Python.
                state = load(later)["optimizer"]
                run = Run(name, {})
                run.optimizer.load_state_dict(state)
                self.assertEqual(bits(run.optimizer.state_dict()), bits(state))
                self.assertNotEqual(bits(load(later)), bits({**load(later), **begin}))

    def test_cpp_continues_cpp_bit_for_bit(self):
        jobs = Jobs()
        runs = []
        for name, options, named in cases():
            begin = Run(name, options, named).state()
            straight = jobs.add("train", name, 2 * STEPS, {**begin, "noise": make_noise(1) + make_noise(2)})
            half = jobs.add("train", name, STEPS, {**begin, "noise": make_noise(1)})
            runs.append((name, options, straight, half))
        jobs.run()
        ends = [jobs.add("train", name, STEPS, {**load(half), "noise": make_noise(2)}) for name, _, _, half in runs]
        jobs.run()
        for (name, options, straight, _), end in zip(runs, ends):
            with self.subTest(name, options=options):
                self.assertEqual(bits(load(end)), bits(load(straight)))

    def test_the_languages_train_alike(self):
        jobs = Jobs()
        runs = []
        for name, options, named in cases():
            if named:
                continue
            for steps in 0, STEPS:
                run = Run(name, options).train(make_noise(1)[:steps])
                begin = {**run.state(), "noise": make_noise(2)}
                theirs = run.train(make_noise(2)).state()
                runs.append((name, options, steps, begin, theirs, jobs.add("train", name, STEPS, begin)))
        jobs.run()
        print("\nApart after 10 steps in each language, relative to the way of the parameters:")
        for name, options, steps, begin, theirs, end in runs:
            distance = apart(load(end), theirs, begin)
            print(f"  {name:8} from step {steps:2}  {f'{distance:.2g}' if distance else 'not a bit':9}  {options}")
            with self.subTest(name, options=options, steps=steps):
                self.assertLessEqual(distance, bound(name, options))

    def test_steps_go_on_beyond_what_a_float32_counts(self):
        jobs = Jobs()
        ends = {}
        for name in "Adam", "AdamW", "RMSprop", "Adagrad":
            run = Run(name, {}).train(make_noise(1))
            begin = {**run.state(), "noise": make_noise(2)}
            for entry in begin["optimizer"]["state"].values():
                entry["step"] = torch.tensor(2.0**24 - 2)
            ends[name] = jobs.add("train", name, 3, begin)
        jobs.run()
        for name, end in ends.items():
            with self.subTest(name):
                run = Run(name, {})
                run.optimizer.load_state_dict(load(end)["optimizer"])
                run.train(make_noise(3)[:1])
                for entry in run.optimizer.state_dict()["state"].values():
                    self.assertEqual(entry["step"].item(), 2**24 + 2)

    # ---- Known bad ----

    def test_a_difference_is_seen(self):
        state = Run("Adam", {}).train(make_noise(1)).state()
        for change in [
            lambda s: s["optimizer"]["state"][1]["exp_avg"][:1].mul_(1 + 1e-6),
            lambda s: s["optimizer"]["state"][2].update(step=torch.tensor(10.0, dtype=torch.float64)),
            lambda s: s["optimizer"]["param_groups"][0].update(weight_decay=0.0),
            lambda s: s["optimizer"]["param_groups"][0].update(lr=0.001 + 1e-18),
            lambda s: s["optimizer"]["state"].pop(2),
            lambda s: s["parameters"][0].add_(1e-6),
        ]:
            path = FOLDER / "changed.pt"
            torch.save(state, path)
            other = load(path)
            self.assertEqual(bits(other), bits(state))
            change(other)
            self.assertNotEqual(bits(other), bits(state))
        self.assertGreater(apart(other, state, {"parameters": make_parameters()}), 0)


class Schedulers(unittest.TestCase):
    def test_go_on_in_the_other_language_bit_for_bit(self):
        jobs = Jobs()
        runs = []
        for name, sets in SCHEDULERS.items():
            for options in sets:
                for steps in 0, 13:
                    run = Run("SGD", dict(lr=0.3))
                    scheduler = getattr(torch.optim.lr_scheduler, name)(run.optimizer, **options)
                    metrics = [3 + 2 * ((i * 37) % 11) / (i + 1) for i in range(50 + steps)]

                    def step(metric):
                        scheduler.step(*[metric] * (name == "ReduceLROnPlateau"))
                        return scheduler.get_last_lr()

                    run.optimizer.step()
                    for metric in metrics[:steps]:
                        step(metric)
                    begin = {
                        "optimizer": run.state()["optimizer"],
                        "scheduler": copy.deepcopy(scheduler.state_dict()),
                        "metrics": metrics[steps:],
                    }
                    same, half = (jobs.add("schedule", name, n, begin) for n in (0, 25))
                    end = jobs.add("schedule", name, 50, begin)
                    rates = [step(metric) for metric in metrics[steps:]]
                    runs.append((name, options, begin, same, half, end, rates, scheduler))
        jobs.run()
        for name, options, begin, same, half, end, rates, scheduler in runs:
            with self.subTest(name, options=options):
                self.assertEqual(bits(numbers(load(same)["scheduler"])), bits(numbers(begin["scheduler"])))
                self.assertEqual(bits(load(end)["rates"]), bits(numbers(rates)))
                self.assertEqual(bits(numbers(load(end)["scheduler"])), bits(numbers(scheduler.state_dict())))
                if begin["scheduler"]["last_epoch"] == 0:
                    self.assertGreater(len({tuple(lr) for lr in rates}), 1)
                # Half of the way in C++, the other half in Python.
                run = Run("SGD", dict(lr=0.3))
                other = getattr(torch.optim.lr_scheduler, name)(run.optimizer, **options)
                other.load_state_dict(load(half)["scheduler"])
                for group, lr in zip(run.optimizer.param_groups, load(half)["rates"][-1]):
                    group["lr"] = lr
                run.optimizer.step()
                for metric, expected in zip(begin["metrics"][25:], rates[25:]):
                    other.step(*[metric] * (name == "ReduceLROnPlateau"))
                    self.assertEqual(bits(numbers(other.get_last_lr())), bits(numbers(expected)))


class RandomNumbers(unittest.TestCase):
    def test_go_on_in_the_other_language_bit_for_bit(self):
        torch.manual_seed(5)
        torch.rand(1000)
        torch.randn(3)  # leaves a spare sample in the generator
        begin = {"random": {"cpu": torch.get_rng_state()}}
        jobs = Jobs()
        same, later = (jobs.add("random", "cpu", n, begin) for n in (0, 1000))
        jobs.run()
        self.assertEqual(bits(load(same)["random"]), bits(begin["random"]))

        def draw():
            return [torch.rand(1000), torch.randn(1000), torch.randn(5, dtype=torch.float64), torch.randperm(1000)]

        self.assertEqual(bits(load(later)["numbers"]), bits(draw()))
        self.assertEqual(bits(load(later)["random"]["cpu"]), bits(torch.get_rng_state()))
        expected = draw()
        torch.set_rng_state(load(later)["random"]["cpu"])
        self.assertEqual(bits(draw()), bits(expected))


if __name__ == "__main__":
    TWIN = os.path.join(os.environ["TEST_SRCDIR"], sys.argv.pop(1))
    unittest.main()
