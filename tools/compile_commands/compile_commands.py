"""Writes compile_commands.json for clangd, clang-tidy and other tools, from what Bazel would run.

usage: bazel run @cohort//tools/compile_commands [-- [PATTERN...] [--BAZEL_FLAG...]]

  PATTERN        the targets whose sources are listed, as in `bazel build`; //... by default. A target that cannot be
                 analysed, or that carries the tag `manual`, is left out.
  --BAZEL_FLAG   handed to Bazel, for example --config=cuda
  --help         this

The file is written into the root of the workspace, where clangd finds it. Write it anew when targets come or go.

Environment: COHORT_BAZEL or, if it is not set, bazelisk or bazel on PATH is the Bazel that is asked.

How it works
  1. Bazel says where its folders are.
  2. `query` names the C++ targets of the patterns: `aquery` alone would analyse every target, and fetch what only tests
     of other languages need.
  3. `build` makes the headers that are generated, and compiles nothing.
  4. `aquery` says how each source is compiled.
  5. Paths are turned into ones that last. Bazel runs a compiler in its execution root, whose `external` holds only what
     the latest build needed: an entry that leads there would break as soon as another target is built. So the commands
     stand in the workspace, `external/X` becomes the folder of the output base that holds repository X for good, and
     `bazel-out` an absolute path.
  6. A header that is included under another name than its own (`include_prefix`) is a link in `_virtual_includes`, and
     these links lead through the same `external`. They are made again, in the output base, straight to the real files:
     an editor that follows an #include arrives in the source that a person edits.
"""

import contextlib
import fcntl
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

# Bazel's exit codes: a target cannot be built, a query met an error and went on.
FAILED = 1
PARTLY = 3
# Progress is of interest, a summary of each of four commands is not.
QUIET = "--ui_event_filters=-info"
# What has to exist before a source of the target can be compiled.
HEADERS = "compilation_prerequisites_INTERNAL_"

# Of what a command says, only how the source is read matters to an editor.
WITH_VALUE = {"-MF", "-o"}
DROPPED = {"-MD", "-fno-canonical-system-headers"}
DROPPED_STARTS = ("-frandom-seed=", "-fmodule-map-file=", "-fmodule-name=")
VIRTUAL = "/_virtual_includes/"


class Folders:
    """Where Bazel keeps things, and where a path of its execution root is to be found at any time."""

    def __init__(self, workspace, execution_root, output_base):
        self.workspace = workspace
        self.execution_root = execution_root
        self.output_base = output_base
        self.links = os.path.join(output_base, "compile_commands_includes")

    def lasting(self, path):
        """Returns the path at which `path`, relative to the execution root, can be read after any other build."""
        if path.startswith("external/"):
            return os.path.join(self.output_base, path)
        if path.startswith("bazel-out/"):
            top = self.links if VIRTUAL in path + "/" else self.execution_root
            return os.path.join(top, path)
        return path

    def lasting_argument(self, argument):
        """The same for an argument that is a path, or an option with one: -Ibazel-out/bin, --sysroot=external/x."""
        match = re.fullmatch(r"(-[A-Za-z-]+=?)?((?:external|bazel-out)/.*)", argument, re.DOTALL)
        return (match[1] or "") + self.lasting(match[2]) if match else argument


def convert(arguments, folders):
    """Returns the entry of one compilation, or None if `arguments` compile no file."""
    kept = []
    source = None
    words = iter(arguments)
    for word in words:
        if word in WITH_VALUE:
            next(words, None)
        elif word not in DROPPED and not word.startswith(DROPPED_STARTS):
            kept.append(folders.lasting_argument(word))
            if len(kept) > 1 and kept[-2] == "-c":
                # Editors know a file by its real name; that of a repository may be a link to it.
                kept[-1] = os.path.realpath(kept[-1]) if os.path.isabs(kept[-1]) else kept[-1]
                source = kept[-1]
    if source is None:
        return None
    # The compiler may be another one than clangd, which would complain of warnings it has never heard of.
    return {"directory": folders.workspace, "file": source, "arguments": kept + ["-Wno-unknown-warning-option"]}


def entries(actions, folders):
    """Returns one entry for each source: the first, if several targets compile it."""
    found = {}
    for action in actions.get("actions", []):
        entry = convert(action.get("arguments", []), folders)
        if entry:
            found.setdefault(entry["file"], entry)
    return [found[name] for name in sorted(found)]


def virtual_includes(actions):
    """Yields (link, file) of each header that is included under another name, both relative to the execution root."""
    fragments = {fragment["id"]: fragment for fragment in actions.get("pathFragments", [])}
    sets = {files["id"]: files for files in actions.get("depSetOfFiles", [])}
    artifacts = {artifact["id"]: artifact["pathFragmentId"] for artifact in actions.get("artifacts", [])}

    def path(artifact):
        parts = []
        fragment = artifacts[artifact]
        while fragment:
            parts.append(fragments[fragment]["label"])
            fragment = fragments[fragment].get("parentId")
        return "/".join(reversed(parts))

    for action in actions.get("actions", []):
        link = path(action["primaryOutputId"])
        if VIRTUAL in link:
            (files,) = action["inputDepSetIds"]
            (file,) = sets[files]["directArtifactIds"]
            yield link, path(file)


def put(path, make):
    """Replaces `path` in one step by what `make` makes under the name it is given: who reads meanwhile sees the old or the new."""
    with tempfile.TemporaryDirectory(prefix=".compile_commands.", dir=os.path.dirname(path)) as folder:
        fresh = os.path.join(folder, "fresh")
        make(fresh)
        os.replace(fresh, path)


def make_links(links, folders):
    """Replaces the folder of links by one with `links`, pairs as virtual_includes gives them."""
    # Only a file can be replaced in one step. So the name is a link to the folder.
    fresh = tempfile.mkdtemp(prefix=folders.links + ".", dir=folders.output_base)
    for link, file in links:
        name = os.path.join(fresh, link)
        os.makedirs(os.path.dirname(name), exist_ok=True)
        # `lasting` of a header of the workspace itself is relative to the workspace.
        os.symlink(os.path.realpath(os.path.join(folders.workspace, folders.lasting(file))), name)
    put(folders.links, lambda name: os.symlink(fresh, name))
    # The one before, and what a run that was killed has left.
    for folder in glob.glob(glob.escape(folders.links) + ".*"):
        if folder != fresh:
            shutil.rmtree(folder, ignore_errors=True)


def write(path, listed):
    """Writes compile_commands.json."""

    def make(name):
        with open(name, "w", encoding="utf-8") as file:
            json.dump(listed, file, indent=1)
            file.write("\n")

    put(path, make)


@contextlib.contextmanager
def alone(folders):
    """Two runs at once take turns: the links are those of the file."""
    with open(os.path.join(folders.output_base, "compile_commands.lock"), "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def must(what):
    """What the system refuses ends the program with one line."""
    try:
        yield
    except OSError as error:
        sys.exit(f"compile_commands: cannot {what}: {error.strerror}.")


class Bazel:
    """Asks Bazel, in the workspace."""

    def __init__(self, command, workspace):
        self.command = command
        self.workspace = workspace

    def ask(self, command, *arguments, good=(0,)):
        """Returns what it prints. `good` are the exit codes that count as success."""
        with must(f"run {self.command[0]} in {self.workspace}"):
            result = subprocess.run(
                [*self.command, command, *arguments], cwd=self.workspace, stdout=subprocess.PIPE, check=False, text=True
            )
        if result.returncode not in good:
            sys.exit(f"compile_commands: `bazel {command}` ended with {result.returncode}; it says why above.")
        return result.stdout

    def targets(self, patterns):
        """Returns the labels of the C++ targets that are built without being named."""
        among = quoted(patterns)
        query = rf"kind('cc_.* rule', {among}) except attr('tags', '\bmanual\b', {among})"
        return self.ask("query", QUIET, "--keep_going", query, good=(0, PARTLY)).split()

    def generate_headers(self, targets, flags):
        with lines_in_a_file(targets) as file:
            self.ask("build", *flags, f"--target_pattern_file={file}", f"--output_groups={HEADERS}", good=(0, FAILED))

    def actions(self, mnemonic, among, targets, flags):
        """Returns the actions of one kind, as aquery writes them. `among` is a query with {} for the targets."""
        query = f"mnemonic('{mnemonic}', {among.format(quoted(targets))})"
        with lines_in_a_file([query]) as file:
            answer = self.ask("aquery", *flags, "--output=jsonproto", f"--query_file={file}", good=(0, FAILED, PARTLY))
        return json.loads(answer) if answer else sys.exit("compile_commands: `bazel aquery` lists nothing; it says why above.")


def quoted(labels):
    """Returns a query for `labels`, whatever characters they hold."""
    for label in labels:
        if '"' in label and "'" in label:
            sys.exit(f"compile_commands: {label} holds both kinds of quotes, and Bazel's queries have room for one.")
    return "set({})".format(" ".join(f"'{label}'" if '"' in label else f'"{label}"' for label in labels))


@contextlib.contextmanager
def lines_in_a_file(lines):
    """A command line has no room for all targets of a large repository."""
    with must("write a temporary file"), tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".txt") as file:
        file.writelines(line + "\n" for line in lines)
        file.flush()
        yield file.name


def choose_bazel(environ):
    """Returns the command that is Bazel here."""
    named = environ.get("COHORT_BAZEL", "")
    bazel = named or shutil.which("bazelisk") or shutil.which("bazel")
    if not bazel:
        sys.exit("compile_commands: there is no bazelisk and no bazel on PATH, and COHORT_BAZEL names none.")
    # The server that ran this program is asked, if it can be told from where the program stands, rather than a second
    # one with nothing in its cache.
    output_base, execroot, _ = os.getcwd().partition("/execroot/")
    return [bazel, "--output_base=" + output_base] if execroot else [bazel]


def main(arguments, environ):
    if "--help" in arguments or "-h" in arguments:
        print(__doc__.partition("\nHow it works\n")[0].strip())
        return
    workspace = environ.get("BUILD_WORKSPACE_DIRECTORY")
    if not workspace:
        sys.exit("compile_commands: start it with `bazel run`: it has to know which workspace is meant.")
    patterns = [word for word in arguments if not word.startswith("--")] or ["//..."]
    flags = [word for word in arguments if word.startswith("--") and word != "--"]
    # What clang needs to check layers are files of a build, and no business of an editor.
    flags += ["--features=-layering_check", "--features=-parse_headers", "--keep_going", QUIET]
    print(f"compile_commands: asking Bazel about {' '.join(patterns)}", flush=True)
    bazel = Bazel(choose_bazel(environ), workspace)
    folders = Folders(workspace, *(bazel.ask("info", name).strip() for name in ("execution_root", "output_base")))
    targets = bazel.targets(patterns)
    if not targets:
        sys.exit(f"compile_commands: {' '.join(patterns)} has no C++ target.")
    bazel.generate_headers(targets, flags)
    listed = entries(bazel.actions("CppCompile", "{}", targets, flags), folders)
    if not listed:
        sys.exit(f"compile_commands: nothing in {' '.join(patterns)} is compiled; Bazel may say why above.")
    # Not those of what only the build needs, such as a compiler.
    symlinks = bazel.actions("Symlink", "deps({})", targets, [*flags, "--noimplicit_deps", "--notool_deps"])
    path = os.path.join(workspace, "compile_commands.json")
    with must(f"write into {folders.output_base}"), alone(folders):
        make_links(virtual_includes(symlinks), folders)
        with must(f"write {path}"):
            write(path, listed)
    print(f"wrote {len(listed)} entries to {path}")


if __name__ == "__main__":
    main(sys.argv[1:], os.environ)
