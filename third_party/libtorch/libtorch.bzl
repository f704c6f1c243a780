"""@libtorch and @libtorch_cuda: LibTorch as Bazel targets, from wheels or from a directory of the user's own."""

load("//third_party/wheels:wheels.bzl", "check_platform", "fetch_wheels")

def _link_own(ctx, own):
    """Puts the user's LibTorch into `tree/`, after a look at whether it can serve."""
    for needed in ctx.attr.needed:
        if not ctx.path(own + "/" + needed).exists:
            fail("LIBTORCH={} is not a LibTorch that can be @{}: it has no {}. It must be the absolute path of an unpacked LibTorch or of a site-packages/torch.".format(own, ctx.name, needed))
    ctx.symlink(own, "tree/torch")
    nvidia = ctx.path(own + "/../nvidia")
    if nvidia.exists:
        ctx.symlink(nvidia, "tree/nvidia")

    # A wheel's library needs NVIDIA's even on a CPU. Without this check it would be a page of undefined references.
    readelf = ctx.which("readelf")
    if not readelf:
        return
    places = [ctx.path("tree/torch/lib")]
    if nvidia.exists:
        places += [package.get_child("lib") for package in ctx.path("tree/nvidia").readdir()]
    for line in ctx.execute([readelf, "-d", "tree/torch/lib/libtorch_cpu.so"]).stdout.splitlines():
        library = line.split("[")[-1].split("]")[0]
        if "(NEEDED)" in line and library.startswith("libcu") and not [True for place in places if place.get_child(library).exists]:
            fail("LIBTORCH={0}: its libtorch_cpu.so needs {1}, which is neither in {0}/lib nor in {0}/../nvidia/*/lib, where pip would install it.".format(own, library))

def _libtorch_repository_impl(ctx):
    own = ctx.os.environ.get("LIBTORCH", "")
    if own:
        _link_own(ctx, own)
    elif ctx.attr.unpacked:
        ctx.symlink(ctx.path(ctx.attr.unpacked).dirname.get_child("tree"), "tree")
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
        "lock": attr.label(allow_single_file = True),
        "needed": attr.string_list(doc = "Files without which LIBTORCH is not one that serves here."),
        "targets": attr.string(mandatory = True, doc = "The macro in targets.bzl that makes the repository's targets."),
        "unpacked": attr.label(doc = "Instead of `lock`: the BUILD file of a repository of wheels that are unpacked already."),
    },
)
