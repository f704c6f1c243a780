"""symbols_check.py sees what would collide with other people's code.

usage: symbols_check_test.py FOREIGN_SYMBOLS NOTHING_OF_OURS      (archives, compiled from testdata/)
"""

import re
import sys
import unittest

import symbols_check

FOREIGN_SYMBOLS, NOTHING_OF_OURS = sys.argv[1:3]


class JudgeTest(unittest.TestCase):
    def test_passes_what_is_ours(self):
        for kind, name in (
            ("T", "_ZN6cohort7BarrierEv"),
            ("T", "_ZNK6cohort12ProcessGroup4rankEv"),
            ("V", "_ZTVN6cohort8internal7BackendE"),
            ("W", "_ZZN6cohort1fEvENKUlvE_clEv"),
            ("u", "_ZGVZN6cohort1fEvE1x"),
            ("T", "_ZThn16_N6cohort1A1fEv"),
        ):
            self.assertIsNone(symbols_check.judge(kind, name), name)

    def test_passes_copies_of_what_others_define_and_what_nobody_else_sees(self):
        for kind, name in (
            ("W", "_ZNSt6vectorIiSaIiEE9push_backERKi"),
            ("W", "_ZN4absl6StatusD2Ev"),
            ("W", "_ZnwmPv"),
            ("V", "DW.ref._ZTISt9exception"),
            ("V", "_ZTIPFSt6vectorIN2at6TensorESaIS1_EERKS3_E"),
            ("t", "_ZN12_GLOBAL__N_16helperEv"),
        ):
            self.assertIsNone(symbols_check.judge(kind, name), name)

    def test_others_may_not_be_defined_anew(self):
        self.assertEqual(symbols_check.judge("T", "_ZN4absl6StatusD2Ev"), "is outside of namespace cohort")
        self.assertEqual(symbols_check.judge("T", "_Znwm"), "is outside of namespace cohort")

    def test_a_name_that_only_begins_like_ours_is_not_ours(self):
        self.assertEqual(symbols_check.judge("T", "_ZN7cohort21fEv"), "is outside of namespace cohort")
        self.assertEqual(symbols_check.judge("T", "_Z6cohortv"), "is outside of namespace cohort")
        self.assertIsNotNone(symbols_check.judge("V", "_ZTIPFN7another1AEvE"))


class ArchiveTest(unittest.TestCase):
    def test_sees_all_that_was_planted_and_nothing_else(self):
        problems = symbols_check.check([FOREIGN_SYMBOLS])
        names = {re.fullmatch(r"[^:]*: (.*) \(. \S+\) (.*)", problem).groups() for problem in problems}
        self.assertGreaterEqual(
            names,
            {
                ("Function()", "is outside of namespace cohort"),
                ("foreign_c_function", "is outside of namespace cohort"),
                ("foreign::variable", "is outside of namespace cohort"),
                ("inline_function()", "is weak, and of nobody that we know of"),
                ("FLAGS_foreign_flag", "belongs to a flag"),
            },
        )
        for name, problem in names:
            self.assertNotIn("cohort::", name, problem)
            self.assertNotIn("std::", name, problem)

    def test_an_archive_without_symbols_of_ours_is_a_mistake(self):
        self.assertIn("has no symbol of ours", symbols_check.check([NOTHING_OF_OURS])[0])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
