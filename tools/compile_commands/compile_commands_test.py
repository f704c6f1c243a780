"""compile_commands.py turns what Bazel would run into what an editor can read at any time."""

import errno
import fcntl
import json
import os
import stat
import tempfile
import unittest
import unittest.mock

import compile_commands

COMMAND = (
    "/usr/bin/gcc -Wall -std=c++20 -MD -MF bazel-out/k8/bin/a/_objs/a.d -frandom-seed=bazel-out/k8/bin/a/_objs/a.o -iquote . "
    "-iquote external/absl -Ibazel-out/k8/bin/a/_virtual_includes/a -isystem external/torch/tree/include "
    "-Ibazel-out/k8/bin/external/gloo/src -Imodels/third --sysroot=external/root -fno-canonical-system-headers -DX=a/b "
    "-c a/a.cc -o bazel-out/k8/bin/a/_objs/a.o"
).split()


def folders(workspace="/w", execution_root="/o/execroot/_main", output_base="/o"):
    return compile_commands.Folders(workspace, execution_root, output_base)


class ConvertTest(unittest.TestCase):
    def test_keeps_what_says_how_a_source_is_read(self):
        arguments = compile_commands.convert(COMMAND, folders())["arguments"]
        self.assertEqual(arguments[:3], ["/usr/bin/gcc", "-Wall", "-std=c++20"])
        self.assertIn("-DX=a/b", arguments)
        self.assertEqual(arguments[-3:], ["-c", "a/a.cc", "-Wno-unknown-warning-option"])

    def test_drops_outputs_and_what_clang_does_not_know(self):
        arguments = compile_commands.convert(COMMAND, folders())["arguments"]
        for word in arguments:
            self.assertNotIn("_objs", word)
        for word in ("-MD", "-MF", "-o", "-fno-canonical-system-headers"):
            self.assertNotIn(word, arguments)

    def test_leads_to_folders_that_another_build_leaves_alone(self):
        arguments = compile_commands.convert(COMMAND, folders())["arguments"]
        for word in (
            "/o/external/absl",
            "/o/external/torch/tree/include",
            "--sysroot=/o/external/root",
            "-I/o/execroot/_main/bazel-out/k8/bin/external/gloo/src",
            "-I/o/compile_commands_includes/bazel-out/k8/bin/a/_virtual_includes/a",
            ".",
            "-Imodels/third",
        ):
            self.assertIn(word, arguments)

    def test_stands_in_the_workspace(self):
        entry = compile_commands.convert(COMMAND, folders())
        self.assertEqual((entry["directory"], entry["file"]), ("/w", "a/a.cc"))

    def test_knows_a_source_of_a_repository_by_its_real_name(self):
        with tempfile.TemporaryDirectory() as base:
            base = os.path.realpath(base)
            os.makedirs(base + "/external")
            os.makedirs(base + "/vendored")
            os.symlink(base + "/vendored", base + "/external/cohort")
            entry = compile_commands.convert(["gcc", "-c", "external/cohort/a.cc"], folders(output_base=base))
            self.assertEqual(entry["file"], base + "/vendored/a.cc")
            self.assertIn(base + "/vendored/a.cc", entry["arguments"])

    def test_lists_a_source_of_two_targets_once_and_in_order(self):
        actions = {"actions": [{"arguments": ["gcc", name, "-c", name[2:]]} for name in ("-1b.cc", "-2a.cc", "-3b.cc")]}
        listed = compile_commands.entries(actions, folders())
        self.assertEqual([(entry["file"], entry["arguments"][1]) for entry in listed], [("a.cc", "-2a.cc"), ("b.cc", "-1b.cc")])

    def test_leaves_out_what_compiles_nothing(self):
        self.assertEqual(compile_commands.entries({"actions": [{"arguments": ["gcc", "--version"]}]}, folders()), [])
        self.assertEqual(compile_commands.entries({}, folders()), [])


# As aquery writes it: paths are leaves of a tree, and inputs are sets.
SYMLINKS = {
    "pathFragments": [
        {"id": 1, "label": "bazel-out"},
        {"id": 2, "label": "_virtual_includes", "parentId": 1},
        {"id": 3, "label": "own", "parentId": 2},
        {"id": 4, "label": "a.h", "parentId": 3},
        {"id": 5, "label": "pkg"},
        {"id": 6, "label": "a.h", "parentId": 5},
        {"id": 7, "label": "program", "parentId": 1},
    ],
    "artifacts": [{"id": 10, "pathFragmentId": 4}, {"id": 11, "pathFragmentId": 6}, {"id": 12, "pathFragmentId": 7}],
    "depSetOfFiles": [{"id": 20, "directArtifactIds": [11]}],
    "actions": [
        {"primaryOutputId": 10, "inputDepSetIds": [20]},
        {"primaryOutputId": 12, "inputDepSetIds": [20]},
    ],
}


class LinksTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.top = os.path.realpath(scratch.name)
        self.folders = folders(self.top + "/w", self.top + "/o/execroot/_main", self.top + "/o")
        os.makedirs(self.top + "/o")

    def new_file(self, path):
        os.makedirs(os.path.dirname(self.top + path), exist_ok=True)
        with open(self.top + path, "w", encoding="utf-8"):
            pass

    def test_finds_the_headers_that_have_another_name_and_nothing_else(self):
        links = list(compile_commands.virtual_includes(SYMLINKS))
        self.assertEqual(links, [("bazel-out/_virtual_includes/own/a.h", "pkg/a.h")])

    def test_each_link_leads_to_the_file_that_a_person_edits(self):
        # A header of the workspace, of a repository that is a link to where it is vendored, and a generated one.
        self.new_file("/w/pkg/a.h")
        self.new_file("/vendored/b.h")
        self.new_file("/o/execroot/_main/bazel-out/bin/c.h")
        os.makedirs(self.top + "/o/external")
        os.symlink(self.top + "/vendored", self.top + "/o/external/cohort")
        compile_commands.make_links(
            [
                ("bazel-out/_virtual_includes/x/own/a.h", "pkg/a.h"),
                ("bazel-out/_virtual_includes/x/own/b.h", "external/cohort/b.h"),
                ("bazel-out/_virtual_includes/x/own/c.h", "bazel-out/bin/c.h"),
            ],
            self.folders,
        )
        # Where a command looks for them.
        include = self.folders.lasting_argument("-Ibazel-out/_virtual_includes/x").removeprefix("-I")
        for name, file in (("a", "/w/pkg/a.h"), ("b", "/vendored/b.h"), ("c", "/o/execroot/_main/bazel-out/bin/c.h")):
            self.assertEqual(os.readlink(f"{include}/own/{name}.h"), self.top + file)

    def test_links_of_headers_that_are_gone_are_gone(self):
        compile_commands.make_links([("bazel-out/_virtual_includes/old.h", "old.h")], self.folders)
        compile_commands.make_links([("bazel-out/_virtual_includes/new.h", "new.h")], self.folders)
        self.assertEqual(os.listdir(self.folders.links + "/bazel-out/_virtual_includes"), ["new.h"])
        self.assertEqual(len(os.listdir(self.top + "/o")), 2)  # the folder and the link to it

    def test_links_are_there_until_new_ones_take_their_place(self):
        compile_commands.make_links([("bazel-out/_virtual_includes/a.h", "old.h")], self.folders)

        def new_links():
            # While these are made, an editor reads the old ones.
            yield "bazel-out/_virtual_includes/a.h", "new.h"
            self.assertEqual(os.readlink(self.folders.links + "/bazel-out/_virtual_includes/a.h"), self.top + "/w/old.h")

        compile_commands.make_links(new_links(), self.folders)
        self.assertEqual(os.readlink(self.folders.links + "/bazel-out/_virtual_includes/a.h"), self.top + "/w/new.h")


# Answers as Bazel does, and writes down what it was asked.
FAKE_BAZEL = """#!/bin/sh
printf '%s\\n' "$*" >> "$PWD/asked"
[ "$1" != "$FAIL" ] || exit 7
case "$*" in
  "info execution_root") echo "$PWD/../o/execroot/_main" ;;
  "info output_base") echo "$PWD/../o" ;;
  query*) [ -n "$NO_TARGET" ] || echo //a:a ;;
  aquery*)
    [ -z "$SILENT" ] || exit 1
    for word; do case $word in --query_file=*) query=$(cat "${word#*=}") ;; esac; done
    echo "$query" >> "$PWD/asked"
    case $query in
      *CppCompile*) echo '{"actions": [{"arguments": ["gcc", "-c", "a/a.cc"]}]}'; exit 3 ;;
      *) echo '{}' ;;
    esac ;;
esac
"""


class ProgramTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.workspace = os.path.realpath(scratch.name) + "/w"
        os.makedirs(self.workspace)
        os.makedirs(self.workspace + "/../o")
        bazel = self.workspace + "/bazel"
        with open(bazel, "w", encoding="utf-8") as file:
            file.write(FAKE_BAZEL)
        os.chmod(bazel, stat.S_IRWXU)
        self.environ = {"COHORT_BAZEL": bazel, "BUILD_WORKSPACE_DIRECTORY": self.workspace}
        # Where the program stands under `bazel run` would tell it which server to ask.
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.workspace)

    def run_program(self, *arguments, **environ):
        for name in ("FAIL", "NO_TARGET", "SILENT"):
            os.environ[name] = environ.get(name, "")
        compile_commands.main(list(arguments), self.environ)
        with open(self.workspace + "/asked", encoding="utf-8") as file:
            return file.read()

    def test_writes_the_file_although_some_target_is_broken(self):
        self.run_program()
        with open(self.workspace + "/compile_commands.json", encoding="utf-8") as file:
            self.assertEqual([entry["file"] for entry in json.load(file)], ["a/a.cc"])

    def test_asks_for_the_patterns_with_the_flags_it_was_given(self):
        asked = self.run_program("//b", "//c/...", "--config=cuda")
        self.assertIn("""kind('cc_.* rule', set("//b" "//c/..."))""", asked)
        self.assertIn("aquery --config=cuda ", asked)
        self.assertIn("build --config=cuda ", asked)
        self.assertIn("""mnemonic('CppCompile', set("//a:a"))""", asked)
        self.assertIn("""mnemonic('Symlink', deps(set("//a:a")))""", asked)

    def test_an_extra_separator_is_no_flag(self):
        self.assertNotIn(" -- ", self.run_program("--", "//b", "--config=cuda"))

    def test_a_label_may_hold_quotes(self):
        self.assertIn("""set('//b:"x"' "//c:it's")""", self.run_program('//b:"x"', "//c:it's"))
        with self.assertRaisesRegex(SystemExit, "holds both kinds of quotes"):
            self.run_program("""//b:"it's\"""")

    def test_two_runs_at_once_take_turns(self):
        place = folders(output_base=self.workspace + "/../o")
        with compile_commands.alone(place):
            with open(place.output_base + "/compile_commands.lock", "w", encoding="utf-8") as file:
                with self.assertRaises(BlockingIOError):
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def test_leaves_nothing_but_the_file_in_the_workspace(self):
        before = set(os.listdir(self.workspace))
        self.run_program()
        self.assertEqual(set(os.listdir(self.workspace)) - before, {"asked", "compile_commands.json"})

    def test_a_folder_in_the_files_place_is_one_line(self):
        os.makedirs(self.workspace + "/compile_commands.json")
        with self.assertRaisesRegex(SystemExit, "^compile_commands: cannot write .*/w/compile_commands.json: Is a directory.$"):
            self.run_program()
        self.assertEqual(sorted(os.listdir(self.workspace)), ["asked", "bazel", "compile_commands.json"])

    def test_a_workspace_that_cannot_be_written_is_one_line(self):
        # Not by its mode: root may write anyway.
        real = tempfile.TemporaryDirectory

        def refuse(*arguments, **named):
            if named["dir"] == self.workspace:
                raise PermissionError(errno.EACCES, "Permission denied")
            return real(*arguments, **named)

        with unittest.mock.patch("tempfile.TemporaryDirectory", side_effect=refuse):
            with self.assertRaisesRegex(SystemExit, "^compile_commands: cannot write .*/compile_commands.json: Permission denied.$"):
                self.run_program()

    def test_an_answer_without_content_is_one_line(self):
        with self.assertRaisesRegex(SystemExit, "^compile_commands: `bazel aquery` lists nothing"):
            self.run_program(SILENT="yes")

    def test_a_bazel_that_is_none_is_one_line(self):
        self.environ["COHORT_BAZEL"] = "/no/such"
        with self.assertRaisesRegex(SystemExit, "^compile_commands: cannot run /no/such in .*: No such file or directory.$"):
            self.run_program()

    def test_leaves_the_old_file_alone_when_bazel_fails(self):
        for command in ("info", "query", "build", "aquery"):
            with self.assertRaisesRegex(SystemExit, f"`bazel {command}` ended with 7"):
                self.run_program(FAIL=command)
        self.assertFalse(os.path.exists(self.workspace + "/compile_commands.json"))

    def test_says_that_a_pattern_names_nothing(self):
        with self.assertRaisesRegex(SystemExit, "//docs has no C"):
            self.run_program("//docs", NO_TARGET="yes")

    def test_must_be_told_which_workspace_is_meant(self):
        with self.assertRaisesRegex(SystemExit, "bazel run"):
            compile_commands.main([], {})

    def test_asks_the_server_that_ran_it(self):
        place = self.workspace + "/o/execroot/_main/bazel-out"
        os.makedirs(place)
        os.chdir(place)
        command = compile_commands.choose_bazel(self.environ)
        self.assertEqual(command, [self.environ["COHORT_BAZEL"], f"--output_base={self.workspace}/o"])


if __name__ == "__main__":
    unittest.main()
