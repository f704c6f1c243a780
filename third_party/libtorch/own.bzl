"""LIBTORCH=DIR: the user's own LibTorch, linked into a repository after a look at whether it can serve.

Every check is one message here, and would be a page of compiler or linker errors, or a crash, without it.
"""

visibility("//third_party/...")

# (major, minor): the code is written to the headers and the c10d of this one.
_OLDEST = (2, 14)

# Parts of DIR/include that are LibTorch's where DIR/include is everybody's.
_INCLUDE_FOLDERS = ["ATen", "c10", "caffe2", "torch"]

# e_machine, as ELF files have it at byte 18, by Bazel's name for the machine's architecture.
_MACHINES = {
    "aarch64": (183, "AArch64"),
    "amd64": (62, "x86-64"),
    "x86_64": (62, "x86-64"),
}

def _refuse(own, reason):
    fail("LIBTORCH={}: {}".format(own, reason))

def _find(ctx, own, libraries):
    """Returns the folder of the libraries, and whether it is shared with all that a distribution installs."""
    wanted = "It must be the absolute path of an unpacked LibTorch, of a site-packages/torch, or /usr for a distribution's package."
    if not own.startswith("/"):
        _refuse(own, "is not an absolute path. " + wanted)
    if not ctx.path(own + "/include/torch/csrc/api/include/torch/version.h").exists:
        _refuse(own, "is not a LibTorch: it has no include/torch/csrc/api/include/torch/version.h. " + wanted)
    folder = own + "/lib"
    shared = False
    if not ctx.path(folder + "/" + libraries[0]).exists:
        for child in ctx.path(folder).readdir() if ctx.path(folder).exists else []:
            if child.basename.endswith("-linux-gnu") and child.get_child(libraries[0]).exists:
                folder = str(child)
                shared = True
    for library in libraries:
        if not ctx.path(folder + "/" + library).exists:
            _refuse(own, "cannot be @{}: there is no {} in {} or {}/*-linux-gnu. {}".format(ctx.name, library, own + "/lib", own + "/lib", wanted))
    return folder, shared

def _version(ctx, own):
    """Returns (major, minor) from whichever header has it."""
    for header in ["headeronly", "csrc/api/include/torch"]:
        path = ctx.path("{}/include/torch/{}/version.h".format(own, header))
        numbers = {}
        for line in ctx.read(path).splitlines() if path.exists else []:
            words = [word for word in line.split(" ") if word]
            if len(words) == 3 and words[0] == "#define" and words[1].startswith("TORCH_VERSION_") and words[2].isdigit():
                numbers[words[1]] = int(words[2])
        if "TORCH_VERSION_MAJOR" in numbers and "TORCH_VERSION_MINOR" in numbers:
            return (numbers["TORCH_VERSION_MAJOR"], numbers["TORCH_VERSION_MINOR"])
    return (0, 0)

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

def _check_library(ctx, own, folder):
    """That the binaries are of this architecture and have the string ABI that every current compiler has."""
    library = folder + "/libc10.so"
    wanted = _MACHINES.get(ctx.os.arch)
    result = ctx.execute(["od", "-An", "-tu2", "-j18", "-N2", library])
    if wanted and result.return_code == 0 and result.stdout.strip() != str(wanted[0]):
        _refuse(own, "its libraries are for another architecture (ELF machine {}); this machine is {} ({}).".format(
            result.stdout.strip(),
            wanted[1],
            wanted[0],
        ))
    if ctx.execute(["grep", "-q", "N3c105ErrorC[12]E.*7__cxx11", library]).return_code == 1:
        _refuse(own, "its libraries have the string ABI of before C++11 (-D_GLIBCXX_USE_CXX11_ABI=0). Take a LibTorch with the C++11 ABI.")

def _check_nvidia(ctx, own):
    """A wheel's library needs NVIDIA's even on a CPU."""
    readelf = ctx.which("readelf")
    if not readelf:
        return
    places = [ctx.path("tree/torch/lib")]
    nvidia = ctx.path("tree/nvidia")
    if nvidia.exists:
        places += [package.get_child("lib") for package in nvidia.readdir()]
    for line in ctx.execute([readelf, "-d", "tree/torch/lib/libtorch_cpu.so"]).stdout.splitlines():
        library = line.split("[")[-1].split("]")[0]
        if "(NEEDED)" in line and library.startswith("libcu") and not [True for place in places if place.get_child(library).exists]:
            _refuse(own, "its libtorch_cpu.so needs {0}, which is neither in {1}/lib nor in {1}/../nvidia/*/lib, where pip would install it.".format(library, own))

def link_own(ctx, own):
    """Puts the user's LibTorch into `tree/`.

    Args:
      ctx: of libtorch_repository.
      own: the value of LIBTORCH.
    """
    folder, shared = _find(ctx, own, ctx.attr.libraries)
    _check_version(ctx, own)
    _check_library(ctx, own, folder)
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
        ctx.symlink(own, "tree/torch")
        if ctx.path(own + "/../nvidia").exists:
            ctx.symlink(own + "/../nvidia", "tree/nvidia")
    _check_nvidia(ctx, own)
    if not ctx.path("tree/torch/include/torch/csrc/distributed/c10d/ProcessGroupGloo.hpp").exists:
        # buildifier: disable=print
        print("LIBTORCH={}: built without Gloo, so @cohort//runtime:init_process_group cannot be compiled with it.".format(own))
