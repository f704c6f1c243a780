"""DistributedSampler of //trainers/data uses the items that Python's torch.utils.data.DistributedSampler uses.

usage: sampler_test.py SAMPLER_TWIN
"""

import itertools
import json
import os
import subprocess
import sys
import unittest

import torch
from torch.utils.data import DataLoader, DistributedSampler

TWIN = None
UNEVEN, PAD, DROP = range(3)
SEEDS = [0, 1, 12345, 2**31, 2**32 - 1, 2**32 + 7, 2**63 + 5, 2**64 - 9]


class Case:
    """What one rank does in one epoch."""

    def __init__(self, items, ranks, rank, shuffle=True, seed=0, tail=PAD, epoch=0, step=None, saved_after=-1):
        self.items, self.ranks, self.rank, self.shuffle, self.seed = items, ranks, rank, shuffle, seed
        self.tail, self.epoch, self.saved_after = tail, epoch, saved_after
        self.step = step or items + ranks  # of all ranks together; by default the whole epoch

    def __repr__(self):
        return str(vars(self))

    def line(self):
        return (
            f"{self.items} {self.ranks} {self.rank} {int(self.shuffle)} {self.seed} {self.tail} {self.epoch} "
            f"{self.step} {self.saved_after}"
        )

    def python_sampler(self):
        sampler = DistributedSampler(
            range(self.items),
            num_replicas=self.ranks,
            rank=self.rank,
            shuffle=self.shuffle,
            seed=self.seed,
            drop_last=self.tail == DROP,
        )
        sampler.set_epoch(self.epoch)
        return sampler


def run(cases):
    """The items of each step, for each case."""
    lines = "".join(case.line() + "\n" for case in cases)
    result = subprocess.run([TWIN], input=lines, stdout=subprocess.PIPE, text=True, check=True)
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(answers) == len(cases), f"{len(answers)} answers to {len(cases)} cases"
    return zip(cases, answers)


def flat(steps):
    return [item for step in steps for item in step]


class SamplerTest(unittest.TestCase):
    def test_each_ranks_items_are_those_of_pythons_sampler(self):
        sizes = [(1, 1), (1, 3), (5, 3), (7, 8), (10, 2), (12, 4), (100, 7), (442, 4), (1797, 2)]
        cases = [
            Case(items, ranks, rank, shuffle, 3, tail, epoch)
            for (items, ranks), shuffle, tail, epoch in itertools.product(sizes, [True, False], [PAD, DROP], [0, 1, 17])
            for rank in range(ranks)
        ]
        seen = set()
        for case, steps in run(cases):
            self.assertEqual(flat(steps), list(case.python_sampler()), case)
            seen.add(tuple(flat(steps)))
        self.assertGreater(len(seen), 100)

    def test_seeds_as_large_as_python_takes_them(self):
        # Python adds the epoch without wrapping around, so the largest seed has no second epoch there.
        cases = [Case(50, 2, 1, seed=seed, epoch=epoch) for seed in SEEDS for epoch in (0, 3)]
        for case, steps in run(cases):
            self.assertEqual(flat(steps), list(case.python_sampler()), case)

    def test_steps_are_the_batches_of_a_loader(self):
        for ranks, batch_size in [(1, 32), (2, 16), (4, 8)]:
            cases = [Case(442, ranks, rank, seed=9, epoch=2, step=ranks * batch_size) for rank in range(ranks)]
            for case, steps in run(cases):
                loader = DataLoader(range(442), batch_size=batch_size, sampler=case.python_sampler())
                self.assertEqual(steps, [batch.tolist() for batch in loader], case)

    def test_going_on_from_a_position_is_going_on(self):
        for saved_after in range(5):
            case = Case(100, 3, 2, seed=1, epoch=4, step=24, saved_after=saved_after)
            (_, steps), = run([case])
            self.assertEqual(flat(steps), list(case.python_sampler()), saved_after)

    def test_an_uneven_epoch_is_pythons_order_without_padding(self):
        for items, ranks in [(5, 3), (442, 4), (2, 5)]:
            order = torch.randperm(items, generator=torch.Generator().manual_seed(6)).tolist()
            for case, steps in run([Case(items, ranks, rank, seed=6, tail=UNEVEN) for rank in range(ranks)]):
                self.assertEqual(flat(steps), order[case.rank :: ranks], case)

    def test_another_order_is_seen(self):
        (case, steps), = run([Case(100, 2, 0, seed=1)])
        case.seed = 2
        self.assertNotEqual(flat(steps), list(case.python_sampler()))


if __name__ == "__main__":
    TWIN = os.path.join(os.environ["TEST_SRCDIR"], sys.argv.pop(1))
    unittest.main()
