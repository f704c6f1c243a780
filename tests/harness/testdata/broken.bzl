"""A target that cannot be analysed, for invisible_test_test."""

visibility("//tests/harness")

def _broken_impl(_ctx):
    fail("broken on purpose")

broken = rule(implementation = _broken_impl)
