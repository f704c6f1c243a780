"""invisible_test: passes only if Bazel refuses a dependency because the target is not visible.

A visibility rule without a test that tries to break it is a comment.
"""

def _subject_impl(_ctx):
    return []

# Depends on one target and does nothing else.
_subject = rule(
    implementation = _subject_impl,
    attrs = {"dep": attr.label(mandatory = True)},
)

def _invisible_test_impl(ctx):
    problems = []
    for subject in ctx.attr.subjects:
        dep = ctx.attr.names[str(subject.label.name)]
        if AnalysisFailureInfo not in subject:
            problems.append("{} is visible from //{}, and must not be.".format(dep, ctx.label.package))
            continue
        messages = [cause.message for cause in subject[AnalysisFailureInfo].causes.to_list()]
        if not [True for message in messages if "is not visible from" in message]:
            problems.append("{} cannot be used by //{}, but not because of its visibility:\n{}".format(
                dep,
                ctx.label.package,
                "\n".join(messages),
            ))
    return [AnalysisTestResultInfo(success = not problems, message = "\n".join(problems))]

_invisible_test = rule(
    implementation = _invisible_test_impl,
    attrs = {
        "names": attr.string_dict(mandatory = True, doc = "From the subject's name to the target that it depends on."),
        "subjects": attr.label_list(
            mandatory = True,
            cfg = analysis_test_transition(settings = {"//command_line_option:allow_analysis_failures": "True"}),
        ),
    },
    analysis_test = True,
)

def invisible_test(name, deps, **kwargs):
    """Passes if the package whose BUILD file calls it may not depend on any of `deps`.

    It must be called from the package that is to be kept away: Bazel judges where the dependency stands.

    Args:
      name: of the test.
      deps: the targets that this package must not see. They must exist.
      **kwargs: `tags` and the like.
    """
    if not deps:
        fail("invisible_test({}): deps is empty, so nothing would be tested. ".format(name) +
             "Name the targets that //{} must not see.".format(native.package_name()))
    names = {}
    for i, dep in enumerate(deps):
        subject = "{}_subject_{}".format(name, i)
        names[subject] = dep
        _subject(
            name = subject,
            testonly = True,  # so that testonly targets are refused for their visibility, or not at all
            dep = dep,
            tags = ["manual"],  # does not build, and must not
            visibility = ["//visibility:private"],
        )
    _invisible_test(
        name = name,
        names = names,
        subjects = [":" + subject for subject in names],
        **kwargs
    )
