"""torch_free_test: nothing in the dependencies of some targets is LibTorch."""

visibility("//...")

def torch_free_test(name, targets, expect_failure = False, tags = []):
    """Passes if no label in the transitive dependencies of `targets` belongs to LibTorch or what comes with it.

    Visibility cannot say this: it ends at packages, and //runtime and //checkpoint hold both kinds of targets.

    Args:
      name: of the test.
      targets: labels in full ("//runtime:process_group").
      expect_failure: for the test of this test: passes if LibTorch is there.
      tags: of the test.
    """
    for target in targets:
        if not target.startswith("//") or ":" not in target:
            fail("torch_free_test({}): write {} in full, as //package:name.".format(name, target))
    native.genquery(
        name = name + "_dependencies",
        testonly = True,
        # What the compiler or a test runner needs is not what the target brings along.
        expression = "deps(set({}))".format(" ".join(targets)),
        opts = [
            "--noimplicit_deps",
            "--notool_deps",
        ],
        scope = targets,
        tags = tags,
    )
    check = "torch_free_test.sh"
    dependencies = ":{}_dependencies".format(name)
    arguments = ["$(rlocationpath {})".format(dependencies)] + targets
    if expect_failure:
        native.sh_test(
            name = name,
            srcs = [str(Label("//tests/harness:expect_failure.sh"))],
            args = ["$(rlocationpath {})".format(check), "'depends on LibTorch'"] + arguments,
            data = [check, dependencies],
            tags = tags,
        )
    else:
        native.sh_test(
            name = name,
            srcs = [check],
            args = arguments,
            data = [dependencies],
            tags = tags,
        )
