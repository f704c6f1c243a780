"""For MODULE.bazel: the repositories that come from no registry.

Each is fetched when a target that is built needs it, and not before.
"""

load("//third_party:repositories.bzl", "unregistered_dependencies", "unregistered_test_dependencies")

def _dependencies_impl(_):
    unregistered_dependencies()

def _test_dependencies_impl(_):
    unregistered_test_dependencies()

dependencies = module_extension(
    implementation = _dependencies_impl,
    doc = "What the targets of cohort need.",
)

test_dependencies = module_extension(
    implementation = _test_dependencies_impl,
    doc = "What only cohort's own tests and example programs need.",
)
