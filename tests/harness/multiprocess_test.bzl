"""multiprocess_test: a GoogleTest program that runs as several ranks at once, under the launcher."""

load("@rules_cc//cc:defs.bzl", "cc_binary")

# Bazel's time limit by the name it has in `timeout`; run_ranks.sh uses three quarters of it.
_SECONDS = {
    "short": 60,
    "moderate": 300,
    "long": 900,
    "eternal": 3600,
}

def multiprocess_test_error(world_sizes, timeout, seconds_per_test, deps = []):
    """Returns what is wrong with the arguments of multiprocess_test and what to write instead, or None.

    Apart from the macro for its own test: nothing can catch a fail().

    Args:
      world_sizes: as for multiprocess_test.
      timeout: as for multiprocess_test.
      seconds_per_test: as for multiprocess_test.
      deps: as for multiprocess_test.
    """
    if not world_sizes:
        return "world_sizes is empty, so nothing would run; give at least one number of ranks"
    for size in world_sizes:
        if type(size) != "int" or size < 1:
            return "{} in world_sizes is not a number of ranks; give whole numbers from 1".format(repr(size))
    if len(depset(world_sizes).to_list()) != len(world_sizes):
        return "world_sizes {} names a number twice; name each once".format(world_sizes)
    if timeout not in _SECONDS:
        return "timeout is {}; give one of {}".format(repr(timeout), ", ".join(_SECONDS))
    if seconds_per_test < 1 or seconds_per_test * 4 >= _SECONDS[timeout] * 3:
        limit = "3/4 of the {} s of timeout = \"{}\"".format(_SECONDS[timeout], timeout)
        return "one TEST may take {} s, which must be at least 1 and less than {}".format(seconds_per_test, limit)

    # One that brings a main() of its own would run the TESTs, and nobody would hear of it.
    for dep in deps if type(deps) == "list" else []:
        if str(dep).endswith(":gtest_main") or str(dep).endswith(":gmock_main"):
            return "{} has a main() of its own; take it out of deps, or name :gtest instead".format(dep)
    return None

def multiprocess_test(
        name,
        srcs,
        world_sizes = [1, 2, 4],
        deps = [],
        data = [],
        copts = [],
        linkopts = [],
        args = [],
        env = {},
        tags = [],
        timeout = "moderate",
        seconds_per_test = 40,
        visibility = None):
    """Builds one rank binary, and one test for each world size that runs it as that many ranks.

    Every TEST body runs on every rank, so it is collective. The test fails if a rank fails, if no TEST ran, or if the
    ranks ran or skipped different ones. Each test has its own loopback interface and no other network, also where our
    .bazelrc is not read.

    Targets: `NAME_1_rank`, `NAME_2_ranks`, ..., the test_suite `NAME` of them all, and the binary `NAME_bin`.

    Args:
      name: of the suite.
      srcs: sources of the rank binary, without a main().
      world_sizes: numbers of ranks to run it with; each at least 1.
      deps: of the rank binary. GoogleTest and main() are added.
      data: files that the ranks read.
      copts: of the rank binary.
      linkopts: of the rank binary.
      args: command line of every rank.
      env: environment of every rank, on top of the launcher's variables.
      tags: of each test. `cpu:N` and `block-network` are added.
      timeout: Bazel's. "short" leaves a rank 40 s of its 60 s for one TEST; more than a few TESTs need "moderate".
      seconds_per_test: how long one TEST may take on a rank before it is ended with a stack trace. Longer than any
        deadline that the TEST itself sets.
      visibility: of the suite and the tests.
    """
    error = multiprocess_test_error(world_sizes, timeout, seconds_per_test, deps)
    if error:
        fail("multiprocess_test({}): {}".format(name, error))

    launcher = str(Label("//tools/launch"))
    cc_binary(
        name = name + "_bin",
        testonly = True,
        srcs = srcs,
        copts = copts,
        data = data,
        linkopts = linkopts,
        linkstatic = False,  # links in a second, as a cc_test does
        visibility = ["//visibility:private"],
        deps = deps + [str(Label("//tests/harness:rank_main"))],
    )
    tests = []
    for size in world_sizes:
        test = "{}_{}_rank{}".format(name, size, "" if size == 1 else "s")
        tests.append(test)
        native.sh_test(
            name = test,
            srcs = [str(Label("//tests/harness:run_ranks.sh"))],
            args = [
                "$(rlocationpath {})".format(launcher),
                "$(rlocationpath :{}_bin)".format(name),
                str(size),
            ] + args,
            data = data + [
                ":{}_bin".format(name),
                launcher,
            ],
            env = env | {"COHORT_TEST_SECONDS": str(seconds_per_test)},
            tags = tags + [
                "block-network",
                "cpu:{}".format(size),
            ],
            timeout = timeout,
            visibility = visibility,
        )
    native.test_suite(
        name = name,
        tests = tests,
        visibility = visibility,
    )
