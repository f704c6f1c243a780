"""What the documents promise exists: tests, files, targets, configurations.

usage: docs_check.py FILE...      (FILE: a document of the checkout, as a runfile; it leads to the checkout)

Checked:
  - docs/guarantees.md: each row `promise | stated in | proved by` names files that exist, and tests
    `//package:target` or `//package:target:Suite.Name` whose target and TEST exist
  - docs/launching.md: each row of the table of launchers names a test in the same way
  - README.md: it has the two commands, and each `./bazelw` line names targets and configurations that exist
  - every document: each link to a file leads somewhere
"""

import os
import pathlib
import re
import sys

# What the README must say, letter for letter.
COMMANDS = ["./bazelw run --config=launch //trainers:linear", "./bazelw test //..."]

BUILD = "BUILD.bazel"


def code(cell):
    return re.findall(r"`([^`]+)`", cell)


class Checkout:
    """The files of a checkout, and questions about them."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        self._sources = None

    def read(self, path):
        return (self.root / path).read_text(encoding="utf-8")

    def exists(self, path):
        return (self.root / path).exists()

    def has_target(self, label):
        """True if the BUILD file of the label's package has a rule or macro of that name, or //x/... has a package."""
        package, colon, name = label.removeprefix("//").partition(":")
        if package.endswith("..."):
            return any((self.root / package[:-3]).rglob(BUILD))
        if not self.exists(f"{package}/{BUILD}"):
            return False
        name = name if colon else package.rsplit("/", 1)[-1]
        # The tests that multiprocess_test and benchmark_test make of one name.
        names = {name, re.sub(r"_\d+_ranks?$", "", name), re.sub("_smoke_test$", "", name)}
        text = self.read(f"{package}/{BUILD}")
        return any(f'name = "{n}"' in text for n in names)

    def has_test(self, suite, name):
        """True if some source declares TEST(suite, name), or a Python class `suite` with a method `name`."""
        if self._sources is None:
            folders = [p for p in self.root.iterdir() if p.is_dir() and not p.name.startswith((".", "bazel-"))]
            files = [f for folder in folders for kind in ("*.cc", "*.py") for f in folder.rglob(kind)]
            self._sources = [f.read_text(encoding="utf-8") for f in files if f.is_file()]
        cc = re.compile(rf"\b(?:TYPED_)?TEST(?:_F|_P)?\(\s*{re.escape(suite)}\s*,\s*{re.escape(name)}\s*\)")
        py = re.compile(rf"^class {re.escape(suite)}\b(?:.|\n)*?^    def {re.escape(name)}\(", re.MULTILINE)
        return any(cc.search(text) or py.search(text) for text in self._sources)


def table_rows(text, header):
    """Yields the cells of each row of the tables whose first column is called `header`."""
    in_table = False
    for line in text.splitlines():
        if not line.startswith("|"):
            in_table = False
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if cells[0] == header:
            in_table = True
        elif in_table and not re.fullmatch(r":?-+:?", cells[0]):
            yield cells


def check_proof(checkout, proof):
    """Returns what is wrong with one cited test, or None."""
    if re.fullmatch(r"tests/import/\w+\.sh|tests/import/\w+/check\.sh", proof):
        return None if checkout.exists(proof) else f"there is no {proof}"
    match = re.fullmatch(r"(//[\w/.-]*:[\w.-]+)(?::([\w/]+)\.(\w+))?", proof)
    if not match:
        return f"'{proof}' is not //package:target, //package:target:Suite.Name or a script of tests/import"
    label, suite, name = match.groups()
    if not checkout.has_target(label):
        return f"there is no target {label}"
    if suite and not checkout.has_test(suite, name):
        return f"there is no test {suite}.{name}"
    return None


def check_guarantees(checkout, text):
    """Returns what is wrong, a line each."""
    problems = []
    rows = list(table_rows(text, "promise"))
    if not rows:
        return ["there is no table whose first column is 'promise'"]
    for row in rows:
        where = f"'{row[0][:60]}'"
        if len(row) != 3:
            problems.append(f"{where}: {len(row)} columns; wanted promise | stated in | proved by")
            continue
        for column, cell in zip(("stated in", "proved by"), row[1:]):
            if not code(cell):
                problems.append(f"{where}: nothing in `...` under '{column}'")
        problems += [f"{where}: there is no file {f}" for f in code(row[1]) if not checkout.exists(f)]
        problems += [f"{where}: {found}" for proof in code(row[2]) if (found := check_proof(checkout, proof))]
    return problems


def check_launchers(checkout, text):
    """Returns what is wrong with the table of launchers, whose last column names a test of each row, a line each."""
    rows = list(table_rows(text, "started by"))
    if not rows:
        return ["there is no table whose first column is 'started by'"]
    problems = []
    for row in rows:
        where = f"'{row[0][:60]}'"
        if not code(row[-1]):
            problems.append(f"{where}: nothing in `...` under 'proved by'")
        problems += [f"{where}: {found}" for proof in code(row[-1]) if (found := check_proof(checkout, proof))]
    return problems


def check_commands(checkout, text):
    """Returns what is wrong with the `./bazelw` lines of the README, a line each."""
    problems = [f"the README does not say: {command}" for command in COMMANDS if command not in text]
    configs = set(re.findall(r"^\w+:(\w+) ", checkout.read(".bazelrc"), re.MULTILINE))
    for line in text.splitlines():
        for command in re.findall(r"\./bazelw [^`#|]*", line):
            labels = re.findall(r"(?<![\w@])//[\w/.-]*(?::[\w.-]+)?", command)
            problems += [f"'{command.strip()}': there is no target {t}" for t in labels if not checkout.has_target(t)]
            named = re.findall(r"--config=(\w+)", command)
            problems += [f"'{command.strip()}': .bazelrc has no configuration '{c}'" for c in named if c not in configs]
    return problems


def check_links(checkout, path, text):
    """Returns the links of a document to files that do not exist."""
    text = re.sub(r"^```.*?^```|`[^`\n]*`", "", text, flags=re.DOTALL | re.MULTILINE)  # a lambda looks like a link
    links = re.findall(r"\[[^\]]*\]\(([^)#\s]+)[^)]*\)", text)
    targets = {link: os.path.normpath(os.path.join(os.path.dirname(path), link)) for link in links if "://" not in link}
    return [f"{path}: a link to {link}, which does not exist" for link, t in targets.items() if not checkout.exists(t)]


def main():
    documents = [pathlib.Path(argument) for argument in sys.argv[1:]]
    # A runfile is a link into the checkout. That is where all the files are that no test could name one by one.
    root = documents[0].resolve().parents[len(documents[0].parents) - 1]
    checkout = Checkout(root)
    problems = []
    for document in documents:
        if not checkout.exists(document):
            problems.append(f"{document} does not exist")
            continue
        text = checkout.read(document)
        problems += check_links(checkout, str(document), text)
        if document.name == "README.md":
            problems += check_commands(checkout, text)
        if document.name == "guarantees.md":
            problems += [f"{document}: {problem}" for problem in check_guarantees(checkout, text)]
        if document.name == "launching.md":
            problems += [f"{document}: {problem}" for problem in check_launchers(checkout, text)]
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
