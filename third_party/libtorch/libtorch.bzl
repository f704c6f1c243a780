"""@libtorch and @libtorch_cuda: LibTorch as Bazel targets, from wheels or from a directory of the user's own."""

load("//third_party/wheels:wheels.bzl", "check_platform", "fetch_wheels")

def _libtorch_repository_impl(ctx):
    own = ctx.os.environ.get("LIBTORCH", "")
    if own:
        for needed in ctx.attr.needed:
            if not ctx.path(own + "/" + needed).exists:
                fail("LIBTORCH={} is not a LibTorch that can be @{}: it has no {}. It must be the absolute path of an unpacked LibTorch or of a site-packages/torch.".format(own, ctx.name, needed))
        ctx.symlink(own, "tree/torch")
        nvidia = ctx.path(own + "/../nvidia")
        if nvidia.exists:
            ctx.symlink(nvidia, "tree/nvidia")
    else:
        check_platform(ctx)
        fetch_wheels(ctx, ctx.path(ctx.attr.lock), ctx.attr.keep)
    ctx.file("BUILD.bazel", "load(\"{0}\", \"{1}\")\n\n{1}()\n".format(Label("//third_party/libtorch:targets.bzl"), ctx.attr.targets))

libtorch_repository = repository_rule(
    implementation = _libtorch_repository_impl,
    doc = "LibTorch under `tree/`. `--repo_env=LIBTORCH=DIR` takes DIR instead of the wheels.",
    environ = ["LIBTORCH"],
    attrs = {
        "keep": attr.string_list(default = ["*"], doc = "Patterns of the wheels' members to unpack."),
        "lock": attr.label(mandatory = True, allow_single_file = True),
        "needed": attr.string_list(doc = "Files without which LIBTORCH is not one that serves here."),
        "targets": attr.string(mandatory = True, doc = "The macro in targets.bzl that makes the repository's targets."),
    },
)
