"""What is at the path after a SIGKILL during a save over a good checkpoint; run.sh calls it.

The old state is 1 everywhere, the new one 2. The saver is killed at a time drawn uniformly from the time that a save
takes. Then a new reader loads the checkpoint as Python does and looks at every value:

  old, new      as it was saved
  mixed         loads without an error and holds values of both
  unloadable    an error, or nothing there

Only the process dies, not the machine, so nothing that was written is lost: there is no milder crash.
"""

import collections
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import warnings


class Forked:
    """A peer: saves in a fork of this process."""

    def __init__(self, save, load):
        self._save, self._load = save, load

    def start(self, path, value):
        """Returns the process that saves and the time at which it began to."""
        state = make_state(value)
        beginning, tell = os.pipe()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                os.write(tell, b"x")
                self._save(state, path)
                code = 0
            finally:
                os._exit(code)
        os.close(tell)
        os.read(beginning, 1)
        os.close(beginning)
        return pid, time.perf_counter()

    def load(self, path):
        return self._load(path)


class Ours:
    """CheckpointManager, in a program of its own; a newer step each time."""

    def __init__(self, program):
        self._program, self._step = program, 0

    def start(self, path, value):
        self._step += 1
        process = subprocess.Popen([self._program, path, str(self._step), str(value), str(mib)], stdout=subprocess.PIPE)
        assert process.stdout.read(1) == b"x"
        return process.pid, time.perf_counter()

    def load(self, path):
        return torch.load(os.path.join(path, "latest", "state.pt"), weights_only=True)


def make_state(value):
    return {f"layer{i}.weight": torch.full((mib * 2**20 // 400,), float(value)) for i in range(100)}


def wait(pid):
    return os.waitpid(pid, 0)[1]


def save(peer, path, value):
    """A save that is left alone. Returns its seconds."""
    pid, begun = peer.start(path, value)
    assert wait(pid) == 0, "the save failed"
    return time.perf_counter() - begun


def remove(path):
    if os.path.isdir(path):
        shutil.rmtree(path)
    elif os.path.exists(path):
        os.remove(path)


def verdict(peer, path):
    try:
        seen = {float(end) for tensor in peer.load(path).values() for end in torch.aminmax(tensor)}
    except (Exception, dcp.api.CheckpointException):  # the latter is a BaseException
        return "unloadable"
    return {(1.0,): "old", (2.0,): "new"}.get(tuple(sorted(seen)), "mixed")


def crash(name, peer, directory, kills):
    path = os.path.join(directory, "checkpoint")
    chance = random.Random(7)
    seen = collections.Counter()
    save(peer, path, 1)
    span = statistics.median(save(peer, path, 2) for _ in range(3))
    assert verdict(peer, path) == "new"
    for _ in range(kills):
        if seen["unloadable"] or seen["mixed"]:
            remove(path)
        save(peer, path, 1)
        assert verdict(peer, path) == "old"
        pid, _ = peer.start(path, 2)
        time.sleep(chance.uniform(0, span))
        os.kill(pid, signal.SIGKILL)
        wait(pid)
        seen[verdict(peer, path)] += 1
    bad = seen["mixed"] + seen["unloadable"]
    counts = ", ".join(f"{kind} {seen[kind]}" for kind in ("old", "new", "mixed", "unloadable"))
    print(f"{name:44} lost {bad:2} of {kills}   ({counts}; a save takes {span:.3f} s)", flush=True)
    remove(path)


def main(program, directory, kills):
    def dcp_save(state, path):
        dcp.save(state, checkpoint_id=path, no_dist=True)

    def dcp_load(path):
        state = make_state(0)
        dcp.load(state, checkpoint_id=path, no_dist=True)
        return state

    peers = {
        "torch.save over the file": Forked(torch.save, lambda path: torch.load(path, weights_only=True)),
        "safetensors save_file over the file": Forked(safetensors.torch.save_file, safetensors.torch.load_file),
        "torch.distributed.checkpoint, same directory": Forked(dcp_save, dcp_load),
        "cohort CheckpointManager, keeping 1": Ours(program),
    }
    print(f"{kills} kills each, a state of {mib} MiB, {directory}")
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        for name, peer in peers.items():
            crash(name, peer, scratch, kills)


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])  # the package safetensors
    import safetensors.torch
    import torch
    import torch.distributed.checkpoint as dcp

    warnings.simplefilter("ignore")  # dcp warns of every save by one process, and over a checkpoint
    torch.set_num_threads(1)
    mib = int(sys.argv[5]) if len(sys.argv) > 5 else 256
    main(sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else "/tmp", int(sys.argv[4]) if len(sys.argv) > 4 else 30)
