"""Counts the tests of a Bazel run from their own reports, and ends with 1 if the run was not a good one.

usage: count_results.py BUILD_EVENTS [LINE...]      (BUILD_EVENTS: what --build_event_json_file wrote)

Bazel itself counts targets, and takes a skipped GoogleTest for a passed one. Here every TEST counts, as its target's
test.xml has it. A problem is, besides a failed test: a target that was not built or not run, one whose report holds no
test (a suite that ran nothing), and one that skips without being tagged `gpu`: a test that cannot run must fail.

Each LINE, "passed" or "failed", is the outcome of a step outside of Bazel and counts as one. The last line printed is

    N passed, N failed, N skipped
"""

import collections
import json
import sys
import urllib.parse
import urllib.request
import xml.etree.ElementTree

# Bazel's words for a test target that ended well.
GOOD = {"PASSED"}


class Target:
    """What the events say about one test target."""

    def __init__(self):
        self.status = "NO_STATUS"
        self.tags = set()
        self.reports = {}  # (run, shard) -> path of test.xml, of the last attempt


def read_events(lines):
    """Returns the test targets by label."""
    targets = collections.defaultdict(Target)
    tags = {}
    for line in lines:
        event = json.loads(line)
        if "targetConfigured" in event["id"] and "configured" in event:
            label = event["id"]["targetConfigured"]["label"]
            tags[label] = set(event["configured"].get("tag", []))
            if "testSize" in event["configured"]:
                targets[label]  # known from now on, whether it will run or not
        elif "testSummary" in event["id"] and "testSummary" in event:
            targets[event["id"]["testSummary"]["label"]].status = event["testSummary"].get("overallStatus", "NO_STATUS")
        elif "testResult" in event["id"] and "testResult" in event:
            identity = event["id"]["testResult"]
            for output in event["testResult"].get("testActionOutput", []):
                if output["name"] == "test.xml" and "uri" in output:
                    path = urllib.request.url2pathname(urllib.parse.urlparse(output["uri"]).path)
                    targets[identity["label"]].reports[identity.get("run"), identity.get("shard")] = path
    for label, target in targets.items():
        target.tags = tags.get(label, set())
    return targets


def is_skipped(case):
    """Disabled tests are skipped ones."""
    skipped = case.find("skipped") is not None or case.get("result") in ("skipped", "suppressed")
    return skipped or case.get("status") == "notrun"


def count_report(root):
    """Returns (passed, failed, skipped) of one test.xml."""
    passed = failed = skipped = 0
    for case in root.iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif is_skipped(case):
            skipped += 1
        else:
            passed += 1
    return passed, failed, skipped


def count_target(label, target, parse):
    """Returns ((passed, failed, skipped), problems); a problem that is no failed test counts as one."""
    total = [0, 0, 0]
    problems = []
    for path in target.reports.values():
        try:
            counts = count_report(parse(path))
        except (OSError, xml.etree.ElementTree.ParseError) as error:
            problems.append(f"{label}: its report cannot be read: {error}")
            continue
        if sum(counts) == 0:
            problems.append(f"{label}: ran no test")
        total = [a + b for a, b in zip(total, counts)]
    if target.status not in GOOD and not total[1]:
        problems.append(f"{label}: {target.status}")
    elif not target.reports:
        problems.append(f"{label}: left no report")
    if total[2] and "gpu" not in target.tags:
        problems.append(f"{label}: skips {total[2]} of its tests, and only a target tagged 'gpu' may")
    total[1] += len(problems)
    return total, problems


def count(targets, steps, parse):
    """Returns ((passed, failed, skipped), problems) of the whole run."""
    total = [steps.count("passed"), steps.count("failed"), 0]
    problems = []
    if not targets:
        problems.append("no test target at all")
        total[1] += 1
    for label, target in sorted(targets.items()):
        counts, found = count_target(label, target, parse)
        total = [a + b for a, b in zip(total, counts)]
        problems += found
        if counts[1] and not found:
            problems.append(f"{label}: {counts[1]} failed")
    return total, problems


def main():
    events, *steps = sys.argv[1:]
    unknown = [step for step in steps if step not in ("passed", "failed")]
    if unknown:
        sys.exit(f"count_results.py: {unknown[0]!r} is not 'passed' or 'failed'")
    try:
        with open(events, encoding="utf-8") as file:
            targets = read_events(file)
    except OSError as error:  # Bazel did not even start
        print(error)
        targets = {}
    total, problems = count(targets, steps, lambda path: xml.etree.ElementTree.parse(path).getroot())
    for problem in problems:
        print(problem)
    print("{} passed, {} failed, {} skipped".format(*total))
    sys.exit(1 if total[1] else 0)


if __name__ == "__main__":
    main()
