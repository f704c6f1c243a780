"""benchmark_test: a benchmark that also runs as a short test, so that it cannot rot."""

load("@rules_cc//cc:defs.bzl", "cc_binary")

def benchmark_test(name, smoke_args = ["--smoke"], data = [], timeout = "moderate", tags = [], **kwargs):
    """Builds a benchmark program and a test that runs it briefly.

    Targets: the binary `NAME`, to be measured with `bazel run -c opt`, and `NAME_smoke_test`. The test passes if the
    program ends with 0 and prints at least one figure; what the figure is does not matter there.

    Args:
      name: of the program; by custom it ends in `_benchmark`.
      smoke_args: arguments that make the program short: one iteration of each measurement. A program on Google
        Benchmark takes ["--benchmark_min_time=1x"].
      data: files that the program reads.
      timeout: of the test.
      tags: of the test.
      **kwargs: for cc_binary: srcs, deps, ...
    """
    if not name.endswith("_benchmark"):
        fail("benchmark_test({0}): call it {0}_benchmark, so that it is found among the benchmarks.".format(name))
    cc_binary(
        name = name,
        testonly = True,
        data = data,
        **kwargs
    )
    native.sh_test(
        name = name + "_smoke_test",
        srcs = [str(Label("//tests/harness:run_benchmark.sh"))],
        args = ["$(rlocationpath :{})".format(name)] + smoke_args,
        data = data + [":" + name],
        tags = tags + ["benchmark"],
        timeout = timeout,
    )
