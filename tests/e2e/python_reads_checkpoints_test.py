"""The main job's checkpoints in real Python torch: they load, they fit as printed, and Python's own training makes the same.

usage: python_reads_checkpoints_test.py LAUNCHER TRAINER DIABETES_CSV      (below $TEST_SRCDIR)
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import torch

SOURCES = pathlib.Path(os.environ["TEST_SRCDIR"])
LAUNCHER, TRAINER, CSV = (SOURCES / path for path in sys.argv[1:4])


def train(*flags):
    """Runs the trainer on two ranks; returns its folder of checkpoints and what it printed."""
    folder = pathlib.Path(tempfile.mkdtemp(dir=os.environ["TEST_TMPDIR"]))
    run = subprocess.run([LAUNCHER, "--nproc-per-node=2", TRAINER, *flags], cwd=folder, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    return folder / "checkpoints", run.stdout


def read_data():
    rows = [[float(field) for field in line.split(",")] for line in CSV.read_text().splitlines()[1:]]
    table = torch.tensor(rows, dtype=torch.float64)
    features, target = table[:, :-1], table[:, -1:]
    return (features - features.mean(0)) / features.std(0, correction=0), target


def load(path):
    state = torch.load(path, weights_only=True)
    model = torch.nn.Linear(10, 1)
    model.load_state_dict(state, strict=True)
    return state, model.double()


def r2(model):
    features, target = read_data()
    with torch.no_grad():
        return 1 - ((model(features) - target) ** 2).sum().item() / ((target - target.mean()) ** 2).sum().item()


class MainJobTest(unittest.TestCase):
    def test_checkpoints_are_state_dicts_of_linear_and_fit_as_printed(self):
        folder, out = train()
        self.assertEqual(sorted(p.name for p in folder.glob("model_*")), [f"model_epoch_{e}.pth" for e in (0, 5, 9)])
        for epoch in (0, 5, 9):
            state, model = load(folder / f"model_epoch_{epoch}.pth")
            self.assertIsInstance(state, dict)
            self.assertEqual(list(state), ["weight", "bias"])
            self.assertEqual([(type(t), t.dtype, tuple(t.shape)) for t in state.values()],
                             [(torch.Tensor, torch.float32, (1, 10)), (torch.Tensor, torch.float32, (1,))])
            printed = re.search(rf"epoch {epoch} .*R2 (\S+)", out)
            self.assertAlmostEqual(r2(model), float(printed[1]), delta=1e-5)

    def test_pythons_own_training_makes_the_same(self):
        features, target = read_data()
        for name, make in (("sgd", torch.optim.SGD), ("adam", torch.optim.Adam)):
            folder, _ = train("--batch_size=442", f"--optimizer={name}", "--learning_rate=0.2", "--epochs=20", "--seed=3")
            torch.manual_seed(3)
            model = torch.nn.Linear(10, 1)
            optimizer = make(model.parameters(), lr=0.2)
            for _ in range(20):
                optimizer.zero_grad()
                torch.nn.functional.mse_loss(model(features.float()), target.float()).backward()
                optimizer.step()
            state, _ = load(folder / "model_epoch_19.pth")
            for key, expected in model.state_dict().items():
                # Not bit for bit: two ranks add up in another order.
                torch.testing.assert_close(state[key], expected, rtol=1e-5, atol=1e-4, msg=lambda m: f"{name}: {key}: {m}")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
