"""What Python's tools need for what cohort does; run.sh calls it.

The contenders take turns within each round; a ratio is the median of the rounds' ratios.
"""

import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROUNDS = 7


def seconds(action):
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def report(times, base):
    """Prints each contender's times and its ratio to `base`, round by round."""
    for name, values in times.items():
        ratios = [value / limit for value, limit in zip(values, times[base])]
        print(
            f"{name:34} {statistics.median(values):8.3f} s  ({min(values):.3f} to {max(values):.3f})"
            f"   {statistics.median(ratios):6.2f} x {base}  ({min(ratios):.2f} to {max(ratios):.2f})"
        )


def measure(contenders, base, rounds=ROUNDS, before=lambda: None):
    times = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, action in contenders.items():
            before()
            times[name].append(seconds(action))
    report(times, base)


def save(directory):
    import safetensors.torch
    import torch

    path = os.path.join(directory, "cohort-peer.pt")
    state = {f"layer{i}.weight": torch.full((2684354,), float(i)) for i in range(100)}

    def fsync():
        with open(path, "rb+") as file:
            os.fsync(file.fileno())

    def raw():
        with open(path, "wb", buffering=0) as file:
            for tensor in state.values():
                rest = memoryview(tensor.numpy()).cast("B")
                while rest:
                    rest = rest[file.write(rest) :]
        fsync()

    def torch_save():
        torch.save(state, path)
        fsync()

    def safetensors_save():
        safetensors.torch.save_file(state, path)
        fsync()

    def clean():
        if os.path.exists(path):
            os.remove(path)
        os.sync()

    try:
        measure(
            {"raw write + fsync": raw, "torch.save + fsync": torch_save, "safetensors + fsync": safetensors_save},
            "raw write + fsync",
            before=clean,
        )
    finally:
        clean()


def load(directory):
    import safetensors.torch
    import torch

    path = os.path.join(directory, "cohort-peer.pt")
    path_st = os.path.join(directory, "cohort-peer.safetensors")
    state = {f"layer{i}.weight": torch.full((2684354,), float(i)) for i in range(100)}
    module = torch.nn.ParameterDict({name.replace(".", "_"): torch.full_like(t, -1.0) for name, t in state.items()})
    torch.save({name.replace(".", "_"): t for name, t in state.items()}, path)
    safetensors.torch.save_file({name.replace(".", "_"): t for name, t in state.items()}, path_st)

    def raw():
        with open(path, "rb", buffering=0) as file:
            for tensor in state.values():
                rest = memoryview(tensor.numpy()).cast("B")
                while rest:
                    rest = rest[file.readinto(rest) :]

    def clone(tensors):
        return {name: tensor.clone() for name, tensor in tensors.items()}

    try:
        measure(
            {
                "raw read, touched memory": raw,
                "torch.load + load_state_dict": lambda: module.load_state_dict(torch.load(path, weights_only=True)),
                "the same, mmap=True": lambda: module.load_state_dict(torch.load(path, mmap=True, weights_only=True)),
                "safetensors load + load_state_dict": lambda: module.load_state_dict(safetensors.torch.load_file(path_st)),
                "torch.load": lambda: torch.load(path, weights_only=True),
                "safetensors load, mapped": lambda: safetensors.torch.load_file(path_st),
                "safetensors load, copied": lambda: clone(safetensors.torch.load_file(path_st)),
            },
            "raw read, touched memory",
        )
        print("100000 tensors of 10 floats")
        small = {f"layer{i}.weight": torch.full((10,), float(i)) for i in range(100000)}
        measure(
            {
                "torch.save": lambda: torch.save(small, path),
                "torch.load": lambda: torch.load(path, weights_only=True),
                "safetensors save": lambda: safetensors.torch.save_file(small, path_st),
                "safetensors load": lambda: safetensors.torch.load_file(path_st),
            },
            "torch.save",
            rounds=3,
        )
    finally:
        os.remove(path)
        os.remove(path_st)


def launch(launcher):
    true = shutil.which("true")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--master-addr=127.0.0.1", "--master-port=0"]
    mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe"] if shutil.which("mpirun") else None

    def run(*command, check=True):
        return lambda: subprocess.run(command, check=check, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    for ranks in (2, 8, 64):
        print(f"{ranks} x true")
        contenders = {
            "sh, fork and exec": run("sh", "-c", f"{true} & " * ranks + "wait"),
            "cohort launch": run(launcher, f"--nproc-per-node={ranks}", true),
        }
        if ranks < 64:  # it takes minutes
            contenders["torchrun"] = run(*torchrun, "--monitor-interval=0.01", f"--nproc-per-node={ranks}", "--no-python", true)
        if mpirun:
            contenders["mpirun"] = run(*mpirun, "-n", str(ranks), true)
        measure(contenders, "sh, fork and exec")

    # From the death of one of 8 ranks to the end of all and of their launcher.
    with tempfile.TemporaryDirectory() as folder:
        died = os.path.join(folder, "died")
        job = "sh", "-c", f'[ "${{RANK:-$OMPI_COMM_WORLD_RANK}}" = 3 ] && {{ sleep 0.3; date +%s.%N >{died}; exit 3; }}; exec sleep 1000'
        stoppers = {"cohort launch": run(launcher, "--nproc-per-node=8", *job, check=False)}
        if mpirun:
            stoppers["mpirun"] = run(*mpirun, "-n", "8", *job, check=False)
        for name, stopper in stoppers.items():
            times = []
            for _ in range(10):
                stopper()
                ended = time.time()
                times.append((ended - float(pathlib.Path(died).read_text())) * 1e3)
            print(f"{name}: a rank's death stops 8 in {statistics.median(times):.0f} ms ({min(times):.0f} to {max(times):.0f})")

    # The launcher's own processor time while 64 ranks do nothing.
    seconds = 10
    with subprocess.Popen([launcher, "--nproc-per-node=64", "sleep", str(seconds + 4)]) as job:
        time.sleep(2)

        def busy():
            children = pathlib.Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
            stats = [pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")")[-1].split() for pid in (job.pid, *children)]
            return sum(int(stat[11]) + int(stat[12]) for stat in stats) / os.sysconf("SC_CLK_TCK")

        before = busy()
        time.sleep(seconds)
        print(f"cohort launch: idle with 64 ranks, {(busy() - before) / seconds:.2%} of a core over {seconds} s")


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])  # the package safetensors
    {"save": save, "load": load, "launch": launch}[sys.argv[2]](*sys.argv[3:])
