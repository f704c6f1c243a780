"""@acme_torch: the LibTorch that the monorepo has, as a target of its own making."""

_BUILD = """
load("@rules_cc//cc:defs.bzl", "cc_import", "cc_library")

LIBRARIES = glob(["torch/lib/libc10.so", "torch/lib/libtorch_cpu.so", "torch/lib/libgomp*.so*", "nvidia/*/lib/lib*.so*"])

[
    cc_import(
        name = "import/" + path,
        shared_library = path,
    )
    for path in LIBRARIES
]

cc_library(
    name = "torch",
    hdrs = glob(["torch/include/**"]),
    defines = ["USE_C10D_GLOO", "USE_DISTRIBUTED"],
    includes = ["torch/include", "torch/include/torch/csrc/api/include"],
    # cohort's gate is all that has to see it.
    visibility = ["@cohort//third_party/libtorch:__pkg__"],
    deps = [":import/" + path for path in LIBRARIES],
)
"""

def _acme_torch_impl(ctx):
    torch = ctx.path(ctx.os.environ["ACME_TORCH"])
    ctx.symlink(torch, "torch")
    if torch.dirname.get_child("nvidia").exists:
        ctx.symlink(torch.dirname.get_child("nvidia"), "nvidia")
    ctx.file("BUILD.bazel", _BUILD)

acme_torch_repository = repository_rule(
    implementation = _acme_torch_impl,
    environ = ["ACME_TORCH"],
)
