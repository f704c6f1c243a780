"""//trainers:linear on one rank, in plain PyTorch: goes on from a state file of the trainer, and writes one that it goes on from."""

import math

import torch

OPTIMIZERS = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "rmsprop": torch.optim.RMSprop,
    "adagrad": torch.optim.Adagrad,
}


def add(values):
    """In this order, and rounded each time, as the trainer adds; sum() is another one since Python 3.12."""
    total = 0.0
    for value in values:
        total += value
    return total


def read_data(csv):
    """The features, standardized, and the target in the last column, as the trainer has them."""
    columns = list(zip(*([float(field) for field in line.split(",")] for line in csv.read_text().splitlines()[1:])))
    features = []
    for column in columns[:-1]:
        mean = add(column) / len(column)
        deviation = math.sqrt(add((x - mean) * (x - mean) for x in column) / len(column))
        features.append([(x - mean) / deviation for x in column])
    return torch.tensor(features, dtype=torch.float64).t().float(), torch.tensor(columns[-1:], dtype=torch.float64).t().float()


def order_of(seed, epoch, rows):
    """The rows as an epoch uses them: as torch.utils.data.DistributedSampler orders them."""
    return torch.randperm(rows, generator=torch.Generator().manual_seed(seed + epoch))


def seed_of_rank(seed, rank):
    """What a rank's random numbers begin with: SplitMix64's low 32 bits, and the rank."""
    mask = 2**64 - 1
    mixed = (seed + 0x9e3779b97f4a7c15) & mask
    mixed = ((mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9) & mask
    mixed = ((mixed ^ (mixed >> 27)) * 0x94d049bb133111eb) & mask
    return ((mixed ^ (mixed >> 31)) + rank) & 0xffffffff


def train(path, out, features, targets, epochs, order=order_of):
    """Goes on from the file `path`, saved at the end of an epoch or within one, until `epochs` are done, and saves to `out`."""
    state = torch.load(path, weights_only=True)
    settings = state["data"][0]
    sampler = settings["sampler"]
    model = torch.nn.Linear(settings["features"], settings["targets"])
    model.load_state_dict(state["model"])
    optimizer = OPTIMIZERS[settings["optimizer"]](model.named_parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1) if settings["lr_step_size"] else None
    optimizer.load_state_dict(state["optimizer"])
    if scheduler:
        scheduler.load_state_dict(state["lr_scheduler"])
    torch.set_rng_state(state["rng"][0]["cpu"])

    step, rows_done = state["step"], sampler["items_done"]
    for epoch in range(state["epoch"], epochs):
        for rows in order(int(sampler["seed"]), epoch, len(features))[rows_done:].split(settings["batch_size"]):
            optimizer.zero_grad()
            squared_error = (model(features[rows]) - targets[rows]).double().square().sum()
            (squared_error * (1.0 / targets[rows].numel())).backward()
            optimizer.step()
            step += 1
        rows_done = 0
        if scheduler:
            scheduler.step()

    torch.save({
        "version": 1,
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "lr_scheduler": scheduler.state_dict() if scheduler else None,
        "step": step,
        "epoch": epochs,
        "rng": [{"cpu": torch.get_rng_state()}],
        "data": [{**settings, "sampler": {**sampler, "epoch": epochs, "items_done": 0}, "loss_sums": []}],
    }, out)
