"""Our headers get along with everybody else's code.

usage: headers_check.py PUBLIC,... HEADER...      (paths from the root of the repository)

  - PUBLIC, the headers that are compiled alone, are the HEADERs that are neither internal nor for tests
  - no macro is left behind whose name does not begin with COHORT_; the guard is the path
  - a public header asks for C++20 in one line, before an #include could fail for want of it with a page of errors
  - no LOG or CHECK but in the form with a prefix: those names belong to whoever gets there first
  - a header outside of internal/ leads to nothing of Gloo's, NCCL's or CUDA's, not even through other headers of ours
"""

import re
import sys

# Word for word: whoever meets it is told which flag to set.
NEEDS = '#if __cplusplus < 202002L\n#error "cohort needs C++20: build with --cxxopt=-std=c++20"\n#endif\n'
BACKENDS = re.compile(r"^(gloo/|nccl|cuda|c10/cuda/|ATen/cuda/|torch/csrc/distributed/c10d/ProcessGroup(Gloo|NCCL))")


def without_comments(text):
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)


def includes(text):
    return re.findall(r'^\s*#\s*include\s+[<"]([^>"]+)[>"]', text, re.MULTILINE)


def guard_of(path):
    return "COHORT_" + re.sub(r"[/.]", "_", path).upper() + "_"


def check_alone(path, text):
    """Returns what is wrong with one header, whatever it includes."""
    text = without_comments(text)
    problems = []
    if f"#ifndef {guard_of(path)}\n#define {guard_of(path)}\n" not in text:
        problems.append(f"{path}: its guard is not {guard_of(path)}")
    left = set(re.findall(r"^\s*#\s*define\s+(\w+)", text, re.MULTILINE)) - set(re.findall(r"#\s*undef\s+(\w+)", text))
    problems += [f"{path}: leaves the macro {name} behind" for name in sorted(left) if not name.startswith("COHORT_")]
    for name in sorted(set(re.findall(r"\b((?:D?CHECK|D?LOG|VLOG|PLOG)(?:_[A-Z]+)*)\s*\(", text))):
        problems.append(f"{path}: uses {name}; write ABSL_{name}")
    return problems


def check_standard(path, text):
    """Returns what is wrong with how a public header says which C++ it needs."""
    before_includes = re.split(r"^\s*#\s*include\b", without_comments(text), maxsplit=1, flags=re.MULTILINE)[0]
    return [] if NEEDS in before_includes else [f"{path}: does not ask for C++20 by #error before its first #include"]


def check_reach(path, headers):
    """Returns the ways from one header to a backend's."""
    problems = []
    seen = set()
    todo = [(path, path)]
    while todo:
        current, way = todo.pop()
        if current in seen:
            continue
        seen.add(current)
        for included in includes(without_comments(headers.get(current, ""))):
            if BACKENDS.match(included):
                problems.append(f"{way} -> {included}: an importer would need a backend's headers")
            inner = included.removeprefix("cohort/")
            if inner in headers:
                todo.append((inner, f"{way} -> {inner}"))
    return problems


def is_public(path):
    return "/internal/" not in path and "/testing/" not in path


def check(public, headers):
    """`public`: paths that are compiled alone. `headers`: text by path. Returns what is wrong, a line each."""
    wanted = {path for path in headers if is_public(path)}
    problems = [f"{path}: is public and not in the list of those compiled alone" for path in sorted(wanted - public)]
    problems += [f"{path}: is compiled alone, and no public target brings it" for path in sorted(public - wanted)]
    for path, text in sorted(headers.items()):
        problems += check_alone(path, text)
        if is_public(path):
            problems += check_standard(path, text)
        if "/internal/" not in path:
            problems += check_reach(path, headers)
    return problems


def main():
    headers = {}
    for path in sys.argv[2:]:
        with open(path, encoding="utf-8") as file:
            headers[path.removeprefix("./")] = file.read()
    problems = check(set(sys.argv[1].split(",")), headers)
    for problem in problems:
        print(problem)
    if not headers:
        sys.exit("headers_check.py: no header named")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
