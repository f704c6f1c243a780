"""A training step of ours and of Python's DistributedDataParallel, 2 ranks of one thread each on gloo; run.sh calls it.

usage: data_parallel.py PROGRAM [BLOCKS]        (PROGRAM: //runtime:distributed_data_parallel_benchmark)

The ranks of both languages wait at their standard input and take turns: in each block each way makes its steps. Ratios are
medians of the blocks' ratios. "exchange" is what gloo takes for the gradients alone, in one tensor: no step can be faster
than that and its local part, unless they overlap.
"""

import contextlib
import os
import statistics
import subprocess
import sys
import time

WAYS = "local", "all-reduce", "ddp", "ddp views", "ddp views static"
EXCHANGE = "Python", "exchange"


def make_model(name, rank):
    torch.manual_seed(0)
    if name == "linear":
        net, shape = nn.Sequential(nn.Linear(10, 2)), ((32, 10), (32, 2))
    else:
        layers = [layer for _ in range(4) for layer in (nn.ReLU(), nn.Linear(1024, 1024))][1:]
        net, shape = nn.Sequential(*layers), ((64, 1024), (64, 1024))
    torch.manual_seed(1 + rank)
    return net, *(torch.randn(*sizes) for sizes in shape)


def training(model, way):
    """A function that makes a step of so many micro-batches."""
    net, x, y = make_model(model, dist.get_rank())
    if way == "exchange":
        gradients = torch.zeros(sum(parameter.numel() for parameter in net.parameters()))
        return lambda micros: dist.all_reduce(gradients)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    ddp = net
    if way.startswith("ddp"):
        ddp = nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view="views" in way, static_graph="static" in way)

    def step(micros):
        optimizer.zero_grad()
        for micro in range(micros):
            with ddp.no_sync() if ddp is not net and micro + 1 < micros else contextlib.nullcontext():
                nn.functional.mse_loss(ddp(x), y).backward()
        if way == "all-reduce":
            for parameter in net.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad.div_(dist.get_world_size())
        optimizer.step()

    return step


def work():
    """A rank in Python: the same lines as the C++ one."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    trainings = {}
    for line in sys.stdin:
        model, way, micros, steps = line.rstrip("\n").split("\t")
        if (model, way) not in trainings:
            trainings[model, way] = training(model, way)
        dist.barrier()
        times = []
        for _ in range(int(steps)):
            start = time.perf_counter()
            trainings[model, way](int(micros))
            times.append((time.perf_counter() - start) * 1e3)
        print(*times, flush=True)
    dist.destroy_process_group()


class Job:
    """Two ranks that wait for what to measure."""

    def __init__(self, command):
        self.store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        environment = {
            **os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self.store.port),
            "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RUN_ID": "peers", "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1",
        }
        self.ranks = [
            subprocess.Popen(command, env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)}, text=True,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            for rank in range(2)
        ]

    def measure(self, *words):
        """The median step of rank 0."""
        for rank in self.ranks:
            print(*words, sep="\t", file=rank.stdin, flush=True)
        answers = [rank.stdout.readline() for rank in self.ranks]
        return statistics.median(float(word) for word in answers[0].split())

    def end(self):
        for rank in self.ranks:
            rank.stdin.close()
        assert not any(rank.wait() for rank in self.ranks)


def ratio(a, b):
    values = [x / y for x, y in zip(a, b)]
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def main(program, blocks=15):
    jobs = {"ours": Job([program, "--worker"]), "Python": Job([sys.executable, __file__])}
    for model, label in ("linear", "Linear(10, 2), batch 32"), ("mlp", "MLP 4 x 1024, batch 64"):
        for micros in 1, 4:
            steps = {"linear": 200, "mlp": 10}[model] // (1 if micros == 1 else 2)
            of = {**{(who, way): [] for way in WAYS for who in jobs}, EXCHANGE: []}
            for block in range(-1, blocks):
                for who, way in of:
                    value = jobs[who].measure(model, way, micros, steps)
                    if block >= 0:
                        of[who, way].append(value)
            print(f"\n{label}, {micros} micro-batches a step, {blocks} blocks of {steps}, ms; load {os.getloadavg()[0]:.1f}")
            for (who, way), values in of.items():
                print(f"  {who:6} {way:18} {statistics.median(values):8.3f} ({min(values):.3f} to {max(values):.3f})")
            best = min((way for way in WAYS if way.startswith("ddp")), key=lambda way: statistics.median(of["Python", way]))
            print(f"  Python's best is {best}")
            for way in WAYS:
                print(f"  ours, {way:18} of Python's: {ratio(of['ours', way], of['Python', way])},"
                      f" of its best: {ratio(of['ours', way], of['Python', best])}")
            floor = [x + y for x, y in zip(of["ours", "local"], of[EXCHANGE])]
            print(f"  our local step and the exchange, of Python's best: {ratio(floor, of['Python', best])}")
            for who in jobs:
                exposed = {way: [x - y for x, y in zip(of[who, way], of[who, "local"])] for way in WAYS}
                for way in WAYS[2:]:
                    print(f"  {who:6} exposed communication, {way}: {statistics.median(exposed[way]):.3f} ms,"
                          f" of all-reduce's: {ratio(exposed[way], exposed['all-reduce'])}", flush=True)
    for job in jobs.values():
        job.end()


if __name__ == "__main__":
    import torch
    import torch.distributed as dist
    from torch import nn

    if len(sys.argv) > 1:
        main(sys.argv[1], *map(int, sys.argv[2:3]))
    else:
        work()
