"""@gloo: the headers of the Gloo that LibTorch holds compiled.

They must be of the very commit that is inside LibTorch. The table in repositories.bzl names it; `--repo_env=GLOO=DIR` takes the
headers from DIR instead, for another LibTorch.
"""

load("//third_party:build_file.bzl", "build_file")

visibility("//third_party/...")

_TARGETS = Label("//third_party/gloo:targets.bzl")

# How deep the headers' folders lie at most; Gloo's own are three deep.
_DEEPEST = 8

def _link_own(ctx, own):
    context = ctx.path(own + "/gloo/context.h") if own.startswith("/") else None
    if not context or not context.exists or context.is_dir:
        fail(("GLOO={} is not a folder of Gloo's headers: it has no gloo/context.h. It must be the absolute path of the folder that holds " +
              "gloo/: third_party/gloo in the sources of your LibTorch, or /usr/include of a distribution's package.").format(own))

    # Header by header: a BUILD file among them would hide from ours what lies beside and below it.
    folders = [("src/gloo", context.dirname)]
    for _ in range(_DEEPEST):
        below = []
        for place, folder in folders:
            for child in folder.readdir():
                if child.is_dir:
                    below.append((place + "/" + child.basename, child))
                elif child.basename.endswith(".h"):
                    ctx.symlink(child, place + "/" + child.basename)
        folders = below
    ctx.file("BUILD.bazel", build_file(_TARGETS, "own_gloo_targets"))

def _gloo_repository_impl(ctx):
    own = ctx.os.environ.get("GLOO", "")
    if own:
        _link_own(ctx, own)
        return

    # Upstream packs its archive on demand, and a distribution packs the same files anew: the one has no lasting hash, so the
    # manifest pins every header.
    folder = ctx.os.environ.get("COHORT_SOURCES", "")
    packed = ctx.path(folder + "/" + ctx.attr.repacked) if folder else None
    if packed and packed.exists:
        ctx.download_and_extract(
            url = "file://" + str(packed),
            sha256 = ctx.attr.repacked_sha256,
            output = "unpacked",
        )
    else:
        ctx.download_and_extract(url = ctx.attr.urls, sha256 = ctx.attr.sha256, output = "unpacked")

    # The top folder is named after the archive: what lies below it is the same.
    tops = ctx.path("unpacked").readdir()
    if len(tops) != 1:
        fail("@{}: the archive has {} top-level entries, expected one.".format(ctx.name, len(tops)))
    for own_file in ["BUILD", "BUILD.bazel", "MODULE.bazel", "WORKSPACE"]:
        ctx.delete(str(tops[0]) + "/" + own_file)  # a package of its own would hide the files from ours
    ctx.symlink(tops[0], "src")
    result = ctx.execute(["sha256sum", "--check", "--quiet", "--strict", ctx.path(ctx.attr.manifest)], working_directory = "src")
    if result.return_code != 0:
        fail("@{}: the files differ from {}:\n{}{}".format(ctx.name, ctx.attr.manifest, result.stdout, result.stderr))
    ctx.file("BUILD.bazel", build_file(_TARGETS, "pinned_gloo_targets", torch_version = ctx.attr.torch_version))

gloo_repository = repository_rule(
    implementation = _gloo_repository_impl,
    doc = "Gloo's sources under `src/`. COHORT_SOURCES=DIR (set by bazelw) may hold the distribution's archive of them.",
    environ = [
        "COHORT_SOURCES",
        "GLOO",
    ],
    attrs = {
        "manifest": attr.label(mandatory = True, allow_single_file = True, doc = "sha256sum list of every header."),
        "repacked": attr.string(mandatory = True, doc = "File name of the distribution's archive."),
        "repacked_sha256": attr.string(mandatory = True),
        "sha256": attr.string(doc = "Of the archive at `urls`; may be empty."),
        "torch_version": attr.string(mandatory = True, doc = "The LibTorch that holds this Gloo."),
        "urls": attr.string_list(mandatory = True),
    },
)
