"""A repository made of Python wheels, each pinned by hash in a lock file.

pip resolves nothing here: the lock names exact versions and hashes, and pip's own configuration says where the index is.
"""

visibility("//third_party/...")

def check_platform(ctx):
    """Fails in one line on a machine that no pinned binary fits."""
    if not ctx.os.name.startswith("linux") or ctx.os.arch not in ["amd64", "x86_64"]:
        fail("@{} needs Linux on x86-64; this machine is {} on {}.".format(ctx.name, ctx.os.name, ctx.os.arch))

def _python(ctx, way_out = ""):
    """Returns the interpreter, after a look at whether it can fetch wheels."""
    python = ctx.which("python3")
    if not python:
        fail("@{} is made from Python wheels and needs python3 with pip; there is no python3 on PATH. {}".format(ctx.name, way_out))
    if ctx.execute([python, "-m", "pip", "--version"]).return_code != 0:
        fail("@{} is made from Python wheels, and {} has no pip: install it (python3-pip, or ensurepip). {}".format(ctx.name, python, way_out))
    return python

# How pip says it: the reason is wanted, whatever pip's configuration and environment set.
_OUTPUT = {
    "PIP_DEBUG": "0",
    "PIP_NO_COLOR": "1",
    "PIP_QUIET": "1",
    "PIP_VERBOSE": "0",
}

# What pip says, and what it means. The first that fits.
_REASONS = [
    ("DO NOT MATCH THE HASHES", "the package index offers a file that is not the pinned one"),
    ("Temporary failure in name resolution", "the package index cannot be reached"),
    ("Failed to establish a new connection", "the package index cannot be reached"),
    ("Network is unreachable", "the package index cannot be reached"),
    ("Connection to ", "the package index cannot be reached"),
    ("SSLError", "the package index is not trusted"),
    ("No space left on device", "the disk is full"),
    ("No matching distribution found", "the package index does not offer a pinned version for this interpreter and machine"),
]

def _explain(ctx, lock, result, way_out):
    """Ends with one message: the reason, the lines of pip's that show it, and what can be done."""
    output = result.stdout + result.stderr
    reasons = [reason for sign, reason in _REASONS if sign in output]
    lines = [line.strip() for line in output.splitlines()]
    telling = [
        line[:300]
        for line in lines
        if line.startswith("ERROR:") or line.startswith("Expected sha256") or line.startswith("Got ") or "(from -r" in line
    ]
    fail("@{}: {}; {} pins what is wanted, and pip's own configuration says where the index is. {}\n{}".format(
        ctx.name,
        reasons[0] if reasons else "pip failed (exit code {})".format(result.return_code),
        lock.basename,
        way_out,
        "\n".join(["  " + line for line in (telling or lines)[-8:]]),
    ))

def fetch_wheels(ctx, lock, keep, python_version = "", way_out = ""):
    """Downloads the wheels in `lock` and unpacks the members that match one of the glob patterns `keep`.

    Args:
      ctx: the repository context.
      lock: path of a pip requirements file with hashes.
      keep: shell-style patterns of the members to unpack.
      python_version: "3.12" and the like to take that interpreter's wheels, "" for those of the interpreter found.
      way_out: a sentence for the error message: what to do without these wheels.
    """
    python = _python(ctx, way_out)
    ctx.report_progress("downloading the wheels of " + lock.basename)
    command = [
        python,
        "-m",
        "pip",
        "download",
        "--disable-pip-version-check",
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
    result = ctx.execute(command, environment = _OUTPUT, timeout = 3600)
    if result.return_code != 0:
        _explain(ctx, lock, result, way_out)
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
    ctx.file("BUILD.bazel", ctx.attr.build_file_content)

wheel_repository = repository_rule(
    implementation = _wheel_repository_impl,
    doc = "Unpacks hash-pinned wheels into `tree/` under the given BUILD file, and makes `python3`, which imports from there.",
    attrs = {
        "build_file_content": attr.string(mandatory = True),
        "keep": attr.string_list(default = ["*"], doc = "Shell-style patterns of the members to unpack."),
        "lock": attr.label(mandatory = True, allow_single_file = True),
        "python_version": attr.string(doc = "Take this interpreter's wheels; default: those of the python3 found."),
    },
)
