"""Unpacks the members of wheels that match a pattern.

usage: unpack.py WHEEL_FOLDER TARGET_FOLDER PATTERN...

All wheels go into one tree, as pip would install them: LibTorch finds its CUDA libraries relative to its own place.
"""

import concurrent.futures
import fnmatch
import os
import pathlib
import shutil
import sys
import zipfile


def unpack(wheel, target, patterns):
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            if member.is_dir() or not any(fnmatch.fnmatch(member.filename, p) for p in patterns):
                continue
            path = (target / member.filename).resolve()
            if not path.is_relative_to(target):
                raise ValueError(f"{wheel.name}: member {member.filename!r} would leave the target folder")
            path.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(member) as source, open(path, "wb") as sink:
                shutil.copyfileobj(source, sink, 1 << 20)


def main():
    wheels = sorted(pathlib.Path(sys.argv[1]).glob("*.whl"))
    target = pathlib.Path(sys.argv[2]).resolve()
    if not wheels:
        sys.exit(f"no wheel in {sys.argv[1]}")
    target.mkdir(parents=True, exist_ok=True)
    with concurrent.futures.ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        list(pool.map(lambda wheel: unpack(wheel, target, sys.argv[3:]), wheels))


if __name__ == "__main__":
    main()
