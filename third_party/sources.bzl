"""A source archive that two kinds of machine get from different places.

Some upstream archives are not offered byte for byte by a distribution: it packs the same files anew. Such a repository
is pinned by the hash of each archive, or by the hash of every file that is used.
"""

def _source_repository_impl(ctx):
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
    for own in ["BUILD", "BUILD.bazel", "MODULE.bazel", "WORKSPACE"]:
        ctx.delete(str(tops[0]) + "/" + own)  # a package of its own would hide the files from ours
    ctx.symlink(tops[0], "src")
    if ctx.attr.manifest:
        result = ctx.execute(["sha256sum", "--check", "--quiet", "--strict", ctx.path(ctx.attr.manifest)], working_directory = "src")
        if result.return_code != 0:
            fail("@{}: the files differ from {}:\n{}{}".format(ctx.name, ctx.attr.manifest, result.stdout, result.stderr))
    ctx.symlink(ctx.attr.build_file, "BUILD.bazel")

source_repository = repository_rule(
    implementation = _source_repository_impl,
    doc = "Unpacks an archive to `src/`. COHORT_SOURCES=DIR (set by bazelw) may hold the distribution's repack of it.",
    environ = ["COHORT_SOURCES"],
    attrs = {
        "build_file": attr.label(mandatory = True, allow_single_file = True),
        "manifest": attr.label(allow_single_file = True, doc = "sha256sum list of every file that is used."),
        "repacked": attr.string(mandatory = True, doc = "File name of the distribution's archive."),
        "repacked_sha256": attr.string(mandatory = True),
        "sha256": attr.string(doc = "Of the archive at `urls`; may be empty if there is a manifest."),
        "urls": attr.string_list(mandatory = True),
    },
)
