"""A repository made of Python wheels, each pinned by hash in a lock file.

pip resolves nothing here: the lock names exact versions and hashes, and pip's own configuration says where the index is.
"""

def check_platform(ctx):
    """Fails in one line on a machine that no pinned binary fits."""
    if not ctx.os.name.startswith("linux") or ctx.os.arch not in ["amd64", "x86_64"]:
        fail("@{} needs Linux on x86-64; this machine is {} on {}.".format(ctx.name, ctx.os.name, ctx.os.arch))

def _python(ctx):
    python = ctx.which("python3")
    if not python:
        fail("@{} is made from Python wheels and needs python3 with pip on PATH; there is no python3.".format(ctx.name))
    return python

def fetch_wheels(ctx, lock, keep, python_version = ""):
    """Downloads the wheels in `lock` and unpacks the members that match one of the glob patterns `keep`.

    Args:
      ctx: the repository context.
      lock: path of a pip requirements file with hashes.
      keep: shell-style patterns of the members to unpack.
      python_version: "3.12" and the like to take that interpreter's wheels, "" for those of the interpreter found.
    """
    python = _python(ctx)
    ctx.report_progress("downloading the wheels of " + lock.basename)
    command = [
        python,
        "-m",
        "pip",
        "download",
        "--disable-pip-version-check",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
        "--require-hashes",
        "--requirement",
        lock,
        "--dest",
        "wheels",
    ]
    if python_version:
        command += ["--implementation=cp", "--python-version=" + python_version]
        command += ["--platform=manylinux_2_28_x86_64", "--platform=manylinux_2_27_x86_64", "--platform=manylinux_2_17_x86_64"]
    result = ctx.execute(command, timeout = 3600)
    if result.return_code != 0:
        fail("@{}: pip could not download the wheels pinned in {}:\n{}{}".format(
            ctx.name,
            lock,
            result.stdout[-4000:],
            result.stderr[-4000:],
        ))
    ctx.report_progress("unpacking the wheels of " + lock.basename)
    result = ctx.execute([python, "-B", ctx.path(Label("//third_party/wheels:unpack.py")), "wheels", "tree"] + keep, timeout = 3600)
    if result.return_code != 0:
        fail("@{}: unpacking failed:\n{}{}".format(ctx.name, result.stdout[-4000:], result.stderr[-4000:]))
    ctx.delete("wheels")

def _wheel_repository_impl(ctx):
    check_platform(ctx)
    fetch_wheels(ctx, ctx.path(ctx.attr.lock), ctx.attr.keep, ctx.attr.python_version)

    # The interpreter that the wheels were chosen for, with them on its path: a test's own PATH may find another one.
    ctx.file("python3", "#!/bin/sh\nPYTHONPATH=$(dirname \"$0\")/tree PYTHONDONTWRITEBYTECODE=1 exec \"{}\" \"$@\"\n".format(_python(ctx)))
    ctx.symlink(ctx.attr.build_file, "BUILD.bazel")

wheel_repository = repository_rule(
    implementation = _wheel_repository_impl,
    doc = "Unpacks hash-pinned wheels into `tree/` under the given BUILD file, and makes `python3`, which imports from there.",
    attrs = {
        "build_file": attr.label(mandatory = True, allow_single_file = True),
        "keep": attr.string_list(default = ["*"], doc = "Shell-style patterns of the members to unpack."),
        "lock": attr.label(mandatory = True, allow_single_file = True),
        "python_version": attr.string(doc = "Take this interpreter's wheels; default: those of the python3 found."),
    },
)
