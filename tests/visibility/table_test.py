"""The table in docs/architecture.md and the probes in layers.bzl say the same.

usage: table_test.py ARCHITECTURE PROBES      (PROBES: lines "target package", one a probe)

Of a row `target | who may | who must not`, every target must be probed from exactly the packages of its last column.
`:*` stands for the targets of that package that are probed at all. "everybody else" and "every package" mean all
packages but those that may.
"""

import re
import sys

# One package stands for its top folder.
PACKAGES = {
    "checkpoint": "checkpoint",
    "models": "models",
    "runtime": "runtime",
    "runtime/internal": "runtime/internal",
    "tests": "tests/visibility",
    "tools": "tools/launch",
    "tools/ckpt": "tools/ckpt",
    "trainers": "trainers",
}


def shorten(label):
    """//a/b:b is //a/b."""
    package, _, name = label.partition(":")
    return package if name == package.rsplit("/", 1)[-1] else label


def rows(text):
    """Yields (targets, folders that may, folders that must not) of the one table that begins with `| target |`."""
    in_table = False
    for line in text.splitlines():
        if not line.startswith("|"):
            in_table = False
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0] == "target":
            in_table = True
        elif in_table and not cells[0].startswith("--"):
            yield re.findall(r"`([^`]*)`", cells[0]), cells[1], cells[2]


def folders(cell):
    return {word.strip().removeprefix("and ") for word in re.split("[,;]", cell) if word.strip()}


def promised(text, probed_targets):
    pairs = set()
    for targets, may, must_not in rows(text):
        names = folders(must_not)
        if names & {"everybody else", "every package"}:
            names = set(PACKAGES) - folders(may)
        unknown = names - set(PACKAGES)
        if unknown:
            raise ValueError(f"the row of {targets} names {sorted(unknown)}; known are {sorted(PACKAGES)}, everybody else")
        for target in targets:
            matching = [target]
            if target.endswith(":*"):
                matching = [t for t in probed_targets if t.partition(":")[0] == target[:-2]]
                if not matching and names:
                    raise ValueError(f"no target of {target} is probed at all")
            pairs |= {(t, PACKAGES[name]) for t in matching for name in names}
    return pairs


def check(text, probes):
    """Returns what is wrong, a line each."""
    probes = {(shorten(target), package) for target, package in probes}
    wanted = {(shorten(t), p) for t, p in promised(text, {t for t, _ in probes})}
    if not wanted:
        return ["there is no table that begins with '| target |', or it keeps nothing from anybody"]
    problems = [f"{t} from //{p}: in the table, but no probe proves it" for t, p in sorted(wanted - probes)]
    return problems + [f"{t} from //{p}: probed, but not in the table" for t, p in sorted(probes - wanted)]


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        text = file.read()
    with open(sys.argv[2], encoding="utf-8") as file:
        probes = [line.split() for line in file if line.strip()]
    problems = check(text, probes)
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
