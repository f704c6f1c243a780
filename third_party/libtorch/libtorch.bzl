"""@libtorch and @libtorch_cuda: LibTorch as Bazel targets, from wheels or from a directory of the user's own."""

load("//third_party/wheels:wheels.bzl", "check_platform", "fetch_wheels")

def _libtorch_repository_impl(ctx):
    own = ctx.os.environ.get("LIBTORCH", "")
    if own:
        lib = ctx.path(own + "/lib/libtorch_cpu.so")
        header = ctx.path(own + "/include/torch/csrc/api/include/torch/torch.h")
        for needed in [lib, header]:
            if not needed.exists:
                fail("LIBTORCH={} is not a LibTorch: {} does not exist. It must name an unpacked LibTorch or a site-packages/torch.".format(own, needed))
        ctx.symlink(own, "tree/torch")
        nvidia = ctx.path(own + "/../nvidia")
        if nvidia.exists:
            ctx.symlink(nvidia, "tree/nvidia")
    else:
        check_platform(ctx)
        fetch_wheels(ctx, ctx.path(ctx.attr.lock), ctx.attr.keep)
    ctx.symlink(ctx.attr.build_file, "BUILD.bazel")

libtorch_repository = repository_rule(
    implementation = _libtorch_repository_impl,
    doc = "LibTorch under `tree/`, its targets from `build_file`. `--repo_env=LIBTORCH=DIR` takes DIR instead of the wheels.",
    environ = ["LIBTORCH"],
    attrs = {
        "build_file": attr.label(mandatory = True, allow_single_file = True),
        "keep": attr.string_list(default = ["*"], doc = "Patterns of the wheels' members to unpack."),
        "lock": attr.label(mandatory = True, allow_single_file = True),
    },
)
