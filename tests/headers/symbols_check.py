"""What importers link of ours gets along with everybody else's code.

usage: symbols_check.py ARCHIVE...      (paths from the root of the repository)

  - a symbol that other files see lies in namespace cohort. It may lie in another's only if it is weak, as an inline
    function and an instance of a template are: each file that uses one has a copy, and all are the same
  - no flag is defined: flags are global, and belong to programs
"""

import re
import subprocess
import sys

# std and the compiler's own, and the libraries that our headers and sources include.
OTHERS = r"S[tabsiod]|4absl|2at|3c10|4c10d|6caffe2|4gloo|8nlohmann|3ska|11ska_ordered|5torch|9__gnu_cxx|10__cxxabiv1"
# A mangled name up to the outermost namespace: tables, guards, thunks and locals of a function carry the function's.
START = r"(?:DW\.ref\.)?_Z(?:T[VTISCHWc]|Th\w*?_|GV|GR|Z)*"
NESTED = r"N[rVK]*[RO]?"
IN_OURS = re.compile(START + NESTED + "6cohort")
# What describes a function's type, or a pointer's to one, is whose type the function returns.
IN_OTHERS = re.compile(START + rf"(?:P?F)?(?:{NESTED})?(?:{OTHERS})")
# Placement new and delete are inline functions without a namespace; the others come from the compiler.
COMPILERS = {"_ZnwmPv", "_ZdlPvS_", "_ZnamPv", "_ZdaPvS_", "DW.ref.__gxx_personality_v0", "__clang_call_terminate"}
FLAG = re.compile(r"(?:^|\d)FLAGS_|AbslFlag(?:Help|Default)GenFor")


def judge(kind, name):
    """Returns what is wrong with one symbol, by its letter and its mangled name in nm's table, or None."""
    if FLAG.search(name):
        return "belongs to a flag"
    visible = kind.isupper() or kind in "ui"
    if not visible or IN_OURS.match(name):
        return None
    if kind not in "WVu":
        return "is outside of namespace cohort"
    if not IN_OTHERS.match(name) and name not in COMPILERS:
        return "is weak, and of nobody that we know of"
    return None


def symbols(table):
    """Yields (letter, mangled name) of each line of nm's that defines a symbol."""
    for line in table.splitlines():
        words = line.split()
        # AddressSanitizer gives each variable a companion, and each library a mark.
        if len(words) == 3 and not words[2].startswith(("__odr_asan_gen_", "___asan_")):
            yield words[1], words[2]


def output_of(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout


def check(archives):
    """Returns what is wrong, a line each."""
    problems = []
    for archive in archives:
        found = list(symbols(output_of("nm", "--defined-only", archive)))
        if not any(IN_OURS.match(name) for _, name in found):
            problems.append(f"{archive}: has no symbol of ours: it is not what this check thinks it is")
        for kind, name in sorted(set(found)):
            problem = judge(kind, name)
            if problem:
                problems.append(f"{archive}: {output_of('c++filt', name).strip()} ({kind} {name}) {problem}")
    return problems


def main():
    if len(sys.argv) < 2:
        sys.exit("symbols_check.py: no archive named")
    problems = check(sys.argv[1:])
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
