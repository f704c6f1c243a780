"""LIBTORCH=DIR: the user's own LibTorch, linked into a repository after a look at whether it can serve.

Every check is one message here, and would be a page of compiler or linker errors, or a crash, without it.
"""

visibility("//third_party/...")

# (major, minor): the code is written to the headers and the c10d of this one.
_OLDEST = (2, 14)

# Parts of DIR/include that are LibTorch's where DIR/include is everybody's.
_INCLUDE_FOLDERS = ["ATen", "c10", "caffe2", "torch"]

# What every library begins with: the file format, and whose machine it is (e_machine, the bytes 18 and 19).
_MAGIC = ["127", "69", "76", "70"]
_MACHINES = {
    "aarch64": (183, "AArch64"),
    "amd64": (62, "x86-64"),
    "x86_64": (62, "x86-64"),
}

def _refuse(own, reason):
    fail("LIBTORCH={}: {}".format(own, reason))

def _refuse_pipe(ctx, own, path):
    """What is read must end: Bazel would wait for a named pipe, and read a device, for ever."""
    test = ctx.which("test")
    if test and not ctx.path(path).is_dir and ctx.execute([test, "-f", path]).return_code == 1:
        _refuse(own, "{} is neither a file nor a folder.".format(path))

def _find(ctx, own, libraries):
    """Returns the folder of the libraries, and whether it is shared with all that a distribution installs."""
    wanted = "It must be the absolute path of an unpacked LibTorch, of a site-packages/torch, or /usr for a distribution's package."
    if not own.startswith("/"):
        _refuse(own, "is not an absolute path. " + wanted)
    if not ctx.path(own).exists:
        _refuse(own, "does not exist. " + wanted)
    if not ctx.path(own + "/include/torch/csrc/api/include/torch/version.h").exists:
        _refuse(own, "is not a LibTorch: it has no include/torch/csrc/api/include/torch/version.h. " + wanted)
    folder = own + "/lib"
    shared = False
    if not ctx.path(folder + "/" + libraries[0]).exists:
        for child in ctx.path(folder).readdir() if ctx.path(folder).is_dir else []:
            if child.basename.endswith("-linux-gnu") and child.get_child(libraries[0]).exists:
                folder = str(child)
                shared = True
    for library in libraries:
        if not ctx.path(folder + "/" + library).exists:
            _refuse(own, "cannot be @{}: there is no {} in {} or {}/*-linux-gnu. {}".format(ctx.name, library, own + "/lib", own + "/lib", wanted))
    return folder, shared

def _version(ctx, own):
    """Returns (major, minor) from whichever header has it."""
    headers = [ctx.path("{}/include/torch/{}/version.h".format(own, place)) for place in ["headeronly", "csrc/api/include/torch"]]
    headers = [header for header in headers if header.exists]
    for header in headers:
        _refuse_pipe(ctx, own, header)
        numbers = {}
        for line in ctx.read(header).splitlines() if not header.is_dir else []:
            words = [word for word in line.replace("\t", " ").split(" ") if word]
            if len(words) == 3 and words[0] == "#define" and words[1].startswith("TORCH_VERSION_") and words[2].isdigit():
                numbers[words[1]] = int(words[2])
        if "TORCH_VERSION_MAJOR" in numbers and "TORCH_VERSION_MINOR" in numbers:
            return (numbers["TORCH_VERSION_MAJOR"], numbers["TORCH_VERSION_MINOR"])
    _refuse(own, "its version cannot be read: wanted are lines like \"#define TORCH_VERSION_MAJOR {}\" and _MINOR in {}.".format(
        _OLDEST[0],
        " or ".join([str(header) for header in headers]),
    ))

def _check_version(ctx, own):
    found = _version(ctx, own)
    pinned = tuple([int(part) for part in ctx.attr.version.split(".")[:2]])
    if found < _OLDEST:
        _refuse(own, "is LibTorch {}.{}; cohort needs {}.{} or later, and fetches {} if LIBTORCH is not set.".format(
            found[0],
            found[1],
            _OLDEST[0],
            _OLDEST[1],
            ctx.attr.version,
        ))
    if found != pinned and not ctx.os.environ.get("GLOO", ""):
        _refuse(own, ("is LibTorch {}.{}, and @gloo holds the headers of the Gloo inside {}. Name those of yours as well: " +
                      "--repo_env=GLOO=DIR, with the third_party/gloo of its sources.").format(found[0], found[1], ctx.attr.version))

def _ask(ctx, own, library, command, good = [0]):
    """Returns what `command` finds out about a library. `good` are the exit codes that say something about it."""
    program = ctx.which(command[0])
    if not program:
        _refuse(own, "{} cannot be checked: there is no {} on PATH, which has to be installed.".format(library, command[0]))
    result = ctx.execute([program] + command[1:] + [library])
    if result.return_code not in good:
        _refuse(own, "{} cannot be read, and must be a shared library: {} ended with {}: {}".format(
            library,
            command[0],
            result.return_code,
            result.stderr.strip(),
        ))
    return result

def _check_machine(ctx, own, library):
    """That it is a library, and of this architecture."""
    _refuse_pipe(ctx, own, library)
    bytes = [byte for byte in _ask(ctx, own, library, ["od", "-An", "-v", "-tu1", "-N20"]).stdout.replace("\n", " ").split(" ") if byte]
    if len(bytes) < 20 or bytes[:4] != _MAGIC:
        _refuse(own, "{} is not a shared library: it begins with the bytes [{}]; one of ELF format begins with [{}] and has 20 or more.".format(
            library,
            " ".join(bytes[:4]),
            " ".join(_MAGIC),
        ))
    found = int(bytes[18]) + 256 * int(bytes[19])
    wanted = _MACHINES.get(ctx.os.arch)
    if wanted and found != wanted[0]:
        _refuse(own, "{} is for another architecture (ELF machine {}); this machine is {} ({}).".format(library, found, wanted[1], wanted[0]))

def _check_strings(ctx, own, library):
    """That it has the string ABI that every current compiler has."""
    if _ask(ctx, own, library, ["grep", "-q", "N3c105ErrorC[12]E.*7__cxx11"], good = [0, 1]).return_code == 1:
        _refuse(own, "its libraries have the string ABI of before C++11 (-D_GLIBCXX_USE_CXX11_ABI=0). Take a LibTorch with the C++11 ABI.")

def _link_nvidia(ctx, own, library):
    """NVIDIA's libraries, which a wheel's library needs even on a CPU, from where pip puts them: beside torch."""
    nvidia = ctx.path(own).realpath.dirname.get_child("nvidia")
    if not nvidia.is_dir and not ctx.which("readelf"):
        return  # The linker says what it lacks.
    needed = [line.split("[")[-1].split("]")[0] for line in _ask(ctx, own, library, ["readelf", "-d"]).stdout.splitlines() if "(NEEDED)" in line]
    missing = [name for name in needed if name.startswith("libcu") and not ctx.path(own + "/lib/" + name).exists]
    packages = [package for package in nvidia.readdir() if package.get_child("lib").is_dir] if nvidia.is_dir else []
    for name in missing:
        if not [True for package in packages if package.get_child("lib", name).exists]:
            _refuse(own, "its libtorch_cpu.so needs {}, which is neither in {}/lib nor in {}/*/lib, where pip would install it.".format(name, own, nvidia))

    # A folder of this name that has nothing to do with LibTorch is left alone.
    for package in packages if missing else []:
        ctx.symlink(package, "tree/nvidia/" + package.basename)

def link_own(ctx, own):
    """Puts the user's LibTorch into `tree/`.

    Args:
      ctx: of libtorch_repository.
      own: the value of LIBTORCH.

    Returns:
      Why it cannot serve here, or "". Only for a LibTorch without CUDA where one with CUDA is wanted: whoever merely looks at the
      targets, as `bazel query` does with both sides of a select(), is not to be refused for it.
    """
    folder, shared = _find(ctx, own, [library for library in ctx.attr.libraries if "cuda" not in library])
    for library in ctx.attr.libraries:
        if not ctx.path(folder + "/" + library).exists:
            return "LIBTORCH={}: has no CUDA: there is no {} in {}.".format(own, library, folder)
    _check_version(ctx, own)
    for library in ctx.attr.libraries:
        _check_machine(ctx, own, folder + "/" + library)
    _check_strings(ctx, own, folder + "/libc10.so")
    if shared:
        for name in _INCLUDE_FOLDERS:
            ctx.symlink("{}/include/{}".format(own, name), "tree/torch/include/" + name)

        for library in ctx.attr.libraries:
            ctx.symlink(folder + "/" + library, "tree/torch/lib/" + library)

        # A distribution links Gloo as a library of its own.
        for place in [own + "/lib", folder]:
            for child in ctx.path(place).readdir():
                if child.basename.startswith("libgloo.so.") and child.basename.removeprefix("libgloo.so.").isdigit():
                    ctx.symlink(child, "tree/torch/lib/" + child.basename)
    else:
        # Not the folder itself: a BUILD file in it would hide the files from ours.
        for name in ["include", "lib"]:
            ctx.symlink("{}/{}".format(own, name), "tree/torch/" + name)
        _link_nvidia(ctx, own, folder + "/libtorch_cpu.so")
    if not ctx.path("tree/torch/include/torch/csrc/distributed/c10d/ProcessGroupGloo.hpp").exists:
        # buildifier: disable=print
        print("LIBTORCH={}: built without Gloo, so @cohort//runtime:init_process_group cannot be compiled with it.".format(own))
    return ""
