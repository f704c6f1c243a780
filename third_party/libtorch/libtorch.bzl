"""@libtorch and @libtorch_cuda: LibTorch as Bazel targets, from wheels or from a directory of the user's own."""

load("//third_party:build_file.bzl", "build_file")
load("//third_party/libtorch:own.bzl", "link_own")
load("//third_party/wheels:wheels.bzl", "check_platform", "fetch_wheels")

visibility("//third_party/...")

_TARGETS = Label("//third_party/libtorch:targets.bzl")

def _libtorch_repository_impl(ctx):
    own = ctx.os.environ.get("LIBTORCH", "")
    if own:
        unfit = link_own(ctx, own)
        if unfit:
            ctx.file("BUILD.bazel", build_file(_TARGETS, "refused_targets", reason = unfit))
            return
    elif ctx.attr.unpacked:
        ctx.symlink(ctx.path(ctx.attr.unpacked).dirname.get_child("tree"), "tree")
    else:
        check_platform(ctx)
        fetch_wheels(
            ctx,
            ctx.path(ctx.attr.lock),
            ctx.attr.keep,
            way_out = "Or bring a LibTorch {} of your own: --repo_env=LIBTORCH=DIR.".format(ctx.attr.version),
        )
    ctx.file("BUILD.bazel", build_file(_TARGETS, ctx.attr.targets))

libtorch_repository = repository_rule(
    implementation = _libtorch_repository_impl,
    doc = "LibTorch under `tree/`. `--repo_env=LIBTORCH=DIR` takes DIR instead of the wheels.",
    environ = [
        "GLOO",
        "LIBTORCH",
    ],
    attrs = {
        "keep": attr.string_list(default = ["*"], doc = "Patterns of the wheels' members to unpack."),
        "libraries": attr.string_list(default = ["libtorch_cpu.so", "libc10.so"], doc = "What LIBTORCH must have to serve here."),
        "lock": attr.label(allow_single_file = True),
        "targets": attr.string(mandatory = True, doc = "The macro in targets.bzl that makes the repository's targets."),
        "unpacked": attr.label(doc = "Instead of `lock`: the BUILD file of a repository of wheels that are unpacked already."),
        "version": attr.string(mandatory = True, doc = "Of the wheels; LIBTORCH may be newer, if GLOO comes with it."),
    },
)
