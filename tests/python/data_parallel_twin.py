"""A rank of a job of data_parallel_test.py, with Python's DistributedDataParallel. What the cases are stands there.

usage: data_parallel_twin.py CASES OUT        (with torchrun's environment)
"""

import contextlib
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Linear(24, 16)
        self.left = nn.Linear(16, 3)
        self.right = nn.Linear(16, 3)
        self.never = nn.Linear(16, 3)

    def forward(self, x, which):
        h = torch.tanh(self.trunk(x))
        return {0: lambda: self.left(h), 1: lambda: self.right(h), 2: lambda: self.left(h) + self.right(h)}[which]()


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Linear(24, 16)
        self.first = nn.Linear(16, 3)
        self.second = nn.Linear(16, 3)

    def forward(self, x):
        h = torch.tanh(self.trunk(x))
        return self.first(h), self.second(h)


class Lookup(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 8, sparse=True)
        self.last = nn.Linear(8, 3)

    def forward(self, rows):
        return self.last(self.table(rows).mean(1))


class TwoTypes(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(24, 16)
        self.last = nn.Linear(16, 3).double()

    def forward(self, x):
        return self.last(torch.tanh(self.first(x)).double())


def make_model(name):
    if name == "mlp":
        return nn.Sequential(nn.Linear(24, 40), nn.Tanh(), nn.Linear(40, 56), nn.ReLU(), nn.Linear(56, 3))
    if name == "norm":
        return nn.Sequential(nn.Linear(24, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 3))
    return {"branches": Branches, "heads": Heads, "lookup": Lookup, "two types": TwoTypes}[name]()


def loss_of(name, model, x, y, which):
    if name == "branches":
        return nn.functional.mse_loss(model(x, which), y)
    if name == "heads":
        first, second = model(x)
        return nn.functional.mse_loss((first, second, first + second)[which], y)
    return nn.functional.mse_loss(model(x), y)


def bf16_hook(state, bucket):
    """LibTorch's hook under another name: by its own it is refused where NCCL is not, though gloo can."""
    return default_hooks.bf16_compress_hook(state, bucket)


def wrap(model, options):
    limit = {"bucket_cap_mb": options["bucket_bytes"] / 2**20} if "bucket_bytes" in options else {}
    names = "forward_sync_buffers", "find_unused_parameters", "gradient_as_bucket_view", "static_graph"
    ddp = DistributedDataParallel(model, **limit, **{key: options[key] for key in names if key in options})
    hook = {"half": default_hooks.fp16_compress_hook, "bfloat16": bf16_hook}.get(options.get("compression"))
    if hook:
        ddp.register_comm_hook(None, hook)
    return ddp


def saved(gradient):
    if gradient is None:
        return None
    if gradient.is_sparse:
        gradient = gradient.coalesce()
        return {"indices": gradient.indices().clone(), "values": gradient.values().clone()}
    return gradient.detach().clone()


def train(case):
    torch.manual_seed(1000 + dist.get_rank())
    model = make_model(case["model"])
    if dist.get_rank() == 0:
        model.load_state_dict(case["weights"])
    ddp = wrap(model, case["options"])
    if case["optimizer"] == "sgd":
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    else:
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    gradients, losses = [], []
    rows = case["rows"][dist.get_rank()]
    for x, y, which in zip(*(case[key][:, dist.get_rank()] for key in ("x", "y", "which"))):
        optimizer.zero_grad(set_to_none=case["set_to_none"])
        for micro in range(len(x)):
            with contextlib.nullcontext() if micro + 1 == len(x) else ddp.no_sync():
                loss = loss_of(case["model"], ddp, x[micro][:rows], y[micro][:rows], int(which[micro]))
                loss.backward()
            losses.append(loss.item())
        gradients.append([saved(parameter.grad) for parameter in model.parameters()])
        optimizer.step()
    return {"gradients": gradients, "losses": losses, "state": dict(model.state_dict())}


def main(cases, out):
    dist.init_process_group("gloo")
    torch.save({name: train(case) for name, case in torch.load(cases, weights_only=True).items()}, out)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
