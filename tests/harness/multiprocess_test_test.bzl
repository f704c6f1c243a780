"""Tests of what multiprocess_test refuses. That it runs ranks is seen in run_ranks_test and in every use."""

load("@bazel_skylib//lib:unittest.bzl", "asserts", "unittest")
load(":multiprocess_test.bzl", "multiprocess_test_error")

visibility("private")

def _good_arguments_test_impl(ctx):
    env = unittest.begin(ctx)
    asserts.equals(env, None, multiprocess_test_error([1, 2, 4], "short", 40))
    asserts.equals(env, None, multiprocess_test_error([3], "moderate", 200))
    asserts.equals(env, None, multiprocess_test_error([1], "short", 40, ["@com_google_googletest//:gtest"]))
    return unittest.end(env)

def _bad_arguments_test_impl(ctx):
    env = unittest.begin(ctx)
    for arguments, part in [
        (([], "short", 40), "world_sizes is empty"),
        (([2, 0], "short", 40), "0 in world_sizes is not a number of ranks"),
        ((["2"], "short", 40), "\"2\" in world_sizes is not a number of ranks"),
        (([2, 2], "short", 40), "names a number twice"),
        (([2], "small", 40), "timeout is \"small\"; give one of short, moderate"),
        (([2], "short", 0), "one TEST may take 0 s"),
        (([2], "short", 40, ["@com_google_googletest//:gtest_main"]), "gtest_main has a main() of its own"),
        (([2], "short", 45), "less than 3/4 of the 60 s of timeout = \"short\""),
    ]:
        error = multiprocess_test_error(*arguments)
        asserts.true(env, error and part in error, "wanted '{}', got '{}'".format(part, error))
    return unittest.end(env)

good_arguments_test = unittest.make(_good_arguments_test_impl)
bad_arguments_test = unittest.make(_bad_arguments_test_impl)

def multiprocess_test_test_suite(name):
    unittest.suite(name, good_arguments_test, bad_arguments_test)
