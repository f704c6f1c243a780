"""docs_check.py sees each kind of thing that a document names and that does not exist."""

import os
import pathlib
import tempfile
import unittest

import docs_check

FILES = {
    "tests/import/run.sh": "",
    "tests/import/importer/check.sh": "",
    ".bazelrc": "build:cuda --x\nrun:launch --y\n",
    "runtime/BUILD.bazel": 'cc_test(\n    name = "a_test",\n)\nmultiprocess_test(\n    name = "b_test",\n)\n',
    "runtime/a_test.cc": "TEST(ATest, Holds) {}\nTEST_P(\n    BTest, AlsoHolds) {}\n",
    "runtime/a.h": "",
    "trainers/BUILD.bazel": 'cc_binary(\n    name = "linear",\n)\n',
    "tests/python/BUILD.bazel": 'sh_test(\n    name = "oracle_test",\n)\n',
    "tests/python/oracle_test.py": "class Oracle(TestCase):\n    def helper(self):\n        pass\n\n    def test_x(self):\n",
}

GOOD_ROW = "| it holds | `runtime/a.h` | `//runtime:a_test:ATest.Holds` |"

README = """
    ./bazelw run --config=launch //trainers:linear     # comment //not:this
    ./bazelw test //...
| `./bazelw build --config=cuda //runtime/...` | what it does |
"""


def guarantees(*rows):
    return "| promise | stated in | proved by |\n|---|---|---|\n" + "\n".join(rows) + "\n"


class DocsCheckTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=os.environ["TEST_TMPDIR"])
        self.addCleanup(folder.cleanup)
        for path, text in FILES.items():
            file = pathlib.Path(folder.name, path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        self.checkout = docs_check.Checkout(folder.name)

    def wrong_with_row(self, row):
        return docs_check.check_guarantees(self.checkout, guarantees(GOOD_ROW, row))

    def test_passes_what_exists(self):
        for proof in (
            "//runtime:a_test",
            "//runtime:a_test:BTest.AlsoHolds",
            "//runtime:b_test_2_ranks",
            "//tests/python:oracle_test:Oracle.test_x",
            "tests/import/run.sh",
            "tests/import/importer/check.sh",
        ):
            self.assertEqual(self.wrong_with_row(f"| p | `runtime/a.h` | `{proof}` |"), [])

    def test_sees_tests_and_files_that_do_not_exist(self):
        for row, problem in (
            ("| p | `runtime/b.h` | `//runtime:a_test` |", "'p': there is no file runtime/b.h"),
            ("| p | `runtime/a.h` | `//runtime:c_test` |", "'p': there is no target //runtime:c_test"),
            ("| p | `runtime/a.h` | `//run:a_test` |", "'p': there is no target //run:a_test"),
            ("| p | `runtime/a.h` | `//runtime:a_test:ATest.Hold` |", "'p': there is no test ATest.Hold"),
            ("| p | `runtime/a.h` | `//runtime:a_test:Test.Holds` |", "'p': there is no test Test.Holds"),
            ("| p | `runtime/a.h` | `//runtime:a_test:Oracle.test_y` |", "'p': there is no test Oracle.test_y"),
            ("| p | `runtime/a.h` | a test |", "'p': nothing in `...` under 'proved by'"),
            ("| p | | `//runtime:a_test` |", "'p': nothing in `...` under 'stated in'"),
            ("| p | `runtime/a.h` |", "'p': 2 columns; wanted promise | stated in | proved by"),
            ("| p | `runtime/a.h` | `a_test` |", "'p': 'a_test' is not //package:target, "
             "//package:target:Suite.Name or a script of tests/import"),
            ("| p | `runtime/a.h` | `tests/import/b/check.sh` |", "'p': there is no tests/import/b/check.sh"),
        ):
            self.assertEqual(self.wrong_with_row(row), [problem])

    def test_sees_that_the_table_is_gone(self):
        self.assertEqual(len(docs_check.check_guarantees(self.checkout, "No promises.\n")), 1)

    def test_sees_a_launcher_without_a_test(self):
        table = "| started by | known by | proved by |\n|---|---|---|\n| a | `A` | `//runtime:a_test:ATest.Holds` |\n"
        for row, problems in (
            ("", []),
            ("| b | `B` | |\n", ["'b': nothing in `...` under 'proved by'"]),
            ("| b | `B` | `//runtime:c_test` |\n", ["'b': there is no target //runtime:c_test"]),
        ):
            self.assertEqual(docs_check.check_launchers(self.checkout, table + row), problems)
        self.assertEqual(len(docs_check.check_launchers(self.checkout, "No table.\n")), 1)

    def test_passes_commands_that_exist(self):
        self.assertEqual(docs_check.check_commands(self.checkout, README), [])

    def test_sees_commands_that_do_not_exist(self):
        for old, new, problem in (
            ("//runtime/...", "//run/...", "there is no target //run/..."),
            ("--config=cuda", "--config=rocm", ".bazelrc has no configuration 'rocm'"),
            ("test //...", "test //runtime/...", "the README does not say: ./bazelw test //..."),
        ):
            problems = docs_check.check_commands(self.checkout, README.replace(old, new))
            self.assertEqual(len(problems), 1)
            self.assertIn(problem, problems[0])

    def test_sees_links_to_nowhere(self):
        text = "[a](../runtime/a.h) [b](../runtime/b.h#part) [c](https://example.org/x) [d](#here)\n"
        text += "```cpp\n[&](File& file) {}\n```\n`[&](int) {}`\n"
        self.assertEqual(
            docs_check.check_links(self.checkout, "docs/x.md", text),
            ["docs/x.md: a link to ../runtime/b.h, which does not exist"],
        )


if __name__ == "__main__":
    unittest.main()
