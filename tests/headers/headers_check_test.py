"""headers_check.py sees what would get into other people's way."""

import unittest

import headers_check

GOOD = """#ifndef COHORT_RUNTIME_A_H_
#define COHORT_RUNTIME_A_H_
#if __cplusplus < 202002L
#error "cohort needs C++20: build with --cxxopt=-std=c++20"
#endif
#include <vector>
#include "cohort/runtime/internal/b.h"
// LOG(INFO) in a comment; #define IN_A_COMMENT
#define COHORT_OWN 1
#define SHORT 1
#undef SHORT
inline void F() { ABSL_CHECK_OK(x); }
#endif  // COHORT_RUNTIME_A_H_
"""

INTERNAL = """#ifndef COHORT_RUNTIME_INTERNAL_B_H_
#define COHORT_RUNTIME_INTERNAL_B_H_
#endif
"""


def check(a=GOOD, b=INTERNAL, public=("runtime/a.h",)):
    return headers_check.check(set(public), {"runtime/a.h": a, "runtime/internal/b.h": b})


class HeadersCheckTest(unittest.TestCase):
    def test_passes_good_headers(self):
        self.assertEqual(check(), [])

    def test_sees_a_macro_that_is_left_behind(self):
        self.assertEqual(check(GOOD.replace("#undef SHORT", "")), ["runtime/a.h: leaves the macro SHORT behind"])

    def test_sees_a_header_that_nobody_compiles_alone(self):
        self.assertEqual(check(public=()), ["runtime/a.h: is public and not in the list of those compiled alone"])
        self.assertEqual(
            check(public=("runtime/a.h", "runtime/c.h")),
            ["runtime/c.h: is compiled alone, and no public target brings it"],
        )

    def test_sees_another_guard(self):
        bad = GOOD.replace("COHORT_RUNTIME_A_H_", "RUNTIME_A_H")
        self.assertIn("runtime/a.h: its guard is not COHORT_RUNTIME_A_H_", check(bad))

    def test_sees_a_public_header_that_does_not_say_which_standard_it_needs(self):
        wanted = ["runtime/a.h: does not ask for C++20 by #error before its first #include"]
        needs = headers_check.NEEDS
        self.assertEqual(check(GOOD.replace(needs, "")), wanted)
        self.assertEqual(check(GOOD.replace(needs, "").replace("#define COHORT_OWN", needs + "#define COHORT_OWN")), wanted)
        self.assertEqual(check(GOOD.replace("202002L", "201703L")), wanted)
        self.assertEqual(check(GOOD.replace(needs, f"/* {needs} */\n")), wanted)

    def test_sees_the_short_names_of_logging(self):
        for used, name in (("LOG(INFO)", "LOG"), ("CHECK_EQ(a, b)", "CHECK_EQ"), ("DCHECK (x)", "DCHECK")):
            self.assertEqual(
                check(GOOD.replace("ABSL_CHECK_OK(x)", used)), [f"runtime/a.h: uses {name}; write ABSL_{name}"]
            )

    def test_sees_a_way_to_a_backend(self):
        gloo_backend = '"torch/csrc/distributed/c10d/ProcessGroupGloo.hpp"'
        for included in ('"gloo/context.h"', "<nccl.h>", "<cuda_runtime.h>", gloo_backend):
            problems = check(b=INTERNAL.replace("#endif", f"#include {included}\n#endif"))
            self.assertEqual(len(problems), 1)
            self.assertIn("runtime/a.h -> runtime/internal/b.h -> ", problems[0])

    def test_internal_headers_may_know_their_backend(self):
        a = GOOD.replace('#include "cohort/runtime/internal/b.h"\n', "")
        self.assertEqual(check(a, INTERNAL.replace("#endif", '#include "gloo/context.h"\n#endif')), [])


if __name__ == "__main__":
    unittest.main()
