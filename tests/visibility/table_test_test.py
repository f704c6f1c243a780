"""table_test.py sees a row without a probe, a probe without a row, and a table that it does not understand."""

import unittest

import table_test

TABLE = """
| who | what |
|---|---|
| a | `//not/this:table` |

| target | who may depend on it | who must not |
|---|---|---|
| `//runtime`, `//runtime:x` | importers; trainers, tests | models, checkpoint |
| `//runtime/internal:*` | runtime, runtime/internal | everybody else |
| `//tools/launch` | everybody | |
"""

PROBES = [(t, p) for t in ("//runtime:runtime", "//runtime:x") for p in ("models", "checkpoint")] + [
    ("//runtime/internal:a", p)
    for p in ("checkpoint", "models", "tests/visibility", "tools/ckpt", "tools/launch", "trainers")
]


class TableTest(unittest.TestCase):
    def test_passes_when_they_agree(self):
        self.assertEqual(table_test.check(TABLE, PROBES), [])

    def test_sees_a_row_without_a_probe(self):
        self.assertEqual(
            table_test.check(TABLE, PROBES[1:]), ["//runtime from //models: in the table, but no probe proves it"]
        )

    def test_sees_a_probe_without_a_row(self):
        self.assertEqual(
            table_test.check(TABLE, PROBES + [("//tools/launch", "models")]),
            ["//tools/launch from //models: probed, but not in the table"],
        )

    def test_sees_a_wildcard_that_nothing_proves(self):
        with self.assertRaisesRegex(ValueError, "no target of //runtime/internal:"):
            table_test.check(TABLE, PROBES[:4])

    def test_sees_a_folder_it_does_not_know(self):
        with self.assertRaisesRegex(ValueError, "names \\['modles'\\]"):
            table_test.check(TABLE.replace("models, checkpoint", "modles, checkpoint"), PROBES)

    def test_sees_that_the_table_is_gone(self):
        self.assertIn("there is no table", table_test.check(TABLE.replace("| target |", "| targets |"), PROBES)[0])


if __name__ == "__main__":
    unittest.main()
