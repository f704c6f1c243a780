"""our_libraries: the archives of this repository that whoever depends on some targets links."""

load("@rules_cc//cc:defs.bzl", "CcInfo")

visibility("private")

def _our_libraries_impl(ctx):
    ours = {}
    for dep in ctx.attr.deps:
        for linked in dep[CcInfo].linking_context.linker_inputs.to_list():
            if linked.owner.workspace_name != ctx.label.workspace_name:
                continue
            for library in linked.libraries:
                archive = library.pic_static_library or library.static_library
                if not archive:
                    fail("our_libraries({}): {} brings a library that is no archive; tell this rule what it is.".format(ctx.label, linked.owner))
                ours[archive] = None
    if not ours:
        fail("our_libraries({}): the targets bring no library of this repository.".format(ctx.label))
    return [DefaultInfo(files = depset(ours.keys()))]

our_libraries = rule(
    implementation = _our_libraries_impl,
    attrs = {"deps": attr.label_list(mandatory = True, providers = [CcInfo])},
)
