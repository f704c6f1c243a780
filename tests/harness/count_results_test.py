"""count_results.py counts TESTs, not targets, and sees every kind of run that only looks good."""

import json
import unittest
import xml.etree.ElementTree

import count_results

PASS = '<testcase name="a" status="run" result="completed"/>'
FAIL = '<testcase name="b" status="run" result="completed"><failure message="no"/></testcase>'
ERROR = '<testcase name="b" status="run"><error message="exited with error code 1"/></testcase>'
SKIP = '<testcase name="c" status="run" result="skipped"><skipped message="no GPU"/></testcase>'
DISABLED = '<testcase name="d" status="notrun" result="suppressed"/>'


def configured(label, tags=(), size="SMALL"):
    return {"id": {"targetConfigured": {"label": label}}, "configured": {"testSize": size, "tag": list(tags)}}


def result(label, path, run=1):
    output = [{"name": "test.log", "uri": "file:///log"}, {"name": "test.xml", "uri": f"file://{path}"}]
    return {"id": {"testResult": {"label": label, "run": run}}, "testResult": {"testActionOutput": output}}


def summary(label, status):
    return {"id": {"testSummary": {"label": label}}, "testSummary": {"overallStatus": status}}


def run(label, report, status="PASSED", tags=()):
    """The events of one target, and its reports by path."""
    path = "/logs" + label.replace(":", "/") + "/test.xml"
    events = [configured(label, tags), result(label, path), summary(label, status)]
    return events, {path: f"<testsuites>{report}</testsuites>"}


def count(*runs, steps=()):
    events = [event for run in runs for event in run[0]]
    reports = {path: text for run in runs for path, text in run[1].items()}

    def parse(path):
        if path not in reports:
            raise FileNotFoundError(path)
        return xml.etree.ElementTree.fromstring(reports[path])

    targets = count_results.read_events(json.dumps(event) for event in events)
    return count_results.count(targets, list(steps), parse)


class CountResultsTest(unittest.TestCase):
    def test_counts_tests_and_steps(self):
        self.assertEqual(count(run("//a:x", PASS + PASS), run("//a:y", PASS), steps=["passed"]), ([4, 0, 0], []))

    def test_counts_failures_of_both_kinds(self):
        total, problems = count(run("//a:x", PASS + FAIL, "FAILED"), run("//a:sh", ERROR, "FAILED"), steps=["failed"])
        self.assertEqual((total, problems), ([1, 3, 0], ["//a:sh: 1 failed", "//a:x: 1 failed"]))

    def test_a_skipped_test_is_not_a_passed_one(self):
        self.assertEqual(count(run("//a:x", PASS + SKIP, tags=["gpu"])), ([1, 0, 1], []))

    def test_only_gpu_tests_may_skip(self):
        for skipped in SKIP, DISABLED:
            total, problems = count(run("//a:x", PASS + skipped))
            self.assertEqual(total, [1, 1, 1])
            self.assertRegex(problems[0], "//a:x: skips 1 of its tests")

    def test_a_suite_that_ran_nothing_fails(self):
        self.assertEqual(count(run("//a:x", "")), ([0, 1, 0], ["//a:x: ran no test"]))

    def test_a_crash_after_the_report_fails(self):
        self.assertEqual(count(run("//a:x", PASS, "FAILED")), ([1, 1, 0], ["//a:x: FAILED"]))

    def test_flaky_and_timed_out_fail(self):
        for status in "FLAKY", "TIMEOUT":
            self.assertEqual(count(run("//a:x", PASS, status)), ([1, 1, 0], [f"//a:x: {status}"]))

    def test_a_target_that_was_not_built_fails(self):
        events = [configured("//a:x"), summary("//a:x", "FAILED_TO_BUILD")], {}
        self.assertEqual(count(events), ([0, 1, 0], ["//a:x: FAILED_TO_BUILD"]))

    def test_a_target_that_bazel_never_came_to_fails(self):
        self.assertEqual(count(([configured("//a:x")], {})), ([0, 1, 0], ["//a:x: NO_STATUS"]))

    def test_a_missing_report_fails(self):
        good = run("//a:x", PASS)
        self.assertEqual(count((good[0], {}))[0], [0, 1, 0])
        self.assertEqual(count(([good[0][0], good[0][2]], {})), ([0, 1, 0], ["//a:x: left no report"]))

    def test_no_target_at_all_fails(self):
        self.assertEqual(count(steps=["passed"]), ([1, 1, 0], ["no test target at all"]))

    def test_what_is_not_a_test_does_not_count(self):
        library = {"id": {"targetConfigured": {"label": "//a:lib"}}, "configured": {"targetKind": "cc_library rule"}}
        self.assertEqual(count(run("//a:x", PASS), ([library], {})), ([1, 0, 0], []))

    def test_every_run_and_shard_counts(self):
        events, reports = run("//a:x", PASS)
        reports["/logs/second.xml"] = f"<testsuites>{PASS}</testsuites>"
        self.assertEqual(count((events + [result("//a:x", "/logs/second.xml", run=2)], reports))[0], [2, 0, 0])


if __name__ == "__main__":
    unittest.main()
