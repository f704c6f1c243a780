"""our_headers: the headers of this repository that some targets bring to whoever depends on them."""

load("@rules_cc//cc:defs.bzl", "CcInfo")

visibility("private")

def _our_headers_impl(ctx):
    headers = depset(transitive = [dep[CcInfo].compilation_context.headers for dep in ctx.attr.deps])
    ours = [
        file
        for file in headers.to_list()
        # Not the copies in _virtual_includes, by which include_prefix works.
        if file.is_source and file.owner.workspace_name == ctx.label.workspace_name
    ]
    if not ours:
        fail("our_headers({}): the targets bring no header of this repository.".format(ctx.label))
    return [DefaultInfo(files = depset(ours))]

our_headers = rule(
    implementation = _our_headers_impl,
    attrs = {"deps": attr.label_list(mandatory = True, providers = [CcInfo])},
)
