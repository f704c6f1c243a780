"""The targets of @libtorch, @libtorch_cuda and @torch_python."""

load("@rules_cc//cc:defs.bzl", "cc_import", "cc_library")
load("@rules_cc//cc/common:cc_info.bzl", "CcInfo")

_GATE = [str(Label("//third_party/libtorch:__pkg__"))]

# What LibTorch's own CMake files export with its targets.
_DEFINES = [
    "USE_C10D_GLOO",
    "USE_DISTRIBUTED",
    "USE_RPC",
    "USE_TENSORPIPE",
]

_INCLUDES = [
    "tree/torch/include",
    "tree/torch/include/torch/csrc/api/include",
]

def _headers():
    # The wheel carries protobuf's headers too: they would hide the ones of who imports us.
    return native.glob(["tree/torch/include/**"], exclude = ["tree/torch/include/google/**"])

def cpu_targets():
    """`:torch`: LibTorch without CUDA, and `:libraries`, the files it links.

    Each library is imported by its file, so a binary finds them through the paths that Bazel gives it. Only what is there is
    linked: the CPU part of the wheel needs CUDA's run time and profiler, a LibTorch of the user's own may not, or may carry
    them beside itself under other names.
    """
    libraries = native.glob(
        [
            "tree/nvidia/*/lib/libcudart.so*",
            "tree/nvidia/*/lib/libcupti.so*",
            "tree/torch/lib/libc10.so",
            "tree/torch/lib/libcudart*.so*",
            "tree/torch/lib/libcupti*.so*",
            "tree/torch/lib/libgloo.so.*",
            "tree/torch/lib/libgomp*.so*",
            "tree/torch/lib/libtorch_cpu.so",
        ],
        allow_empty = True,
    )
    for path in libraries:
        cc_import(
            name = "import/" + path,
            shared_library = path,
        )
    native.filegroup(
        name = "libraries",
        srcs = libraries,
        visibility = _GATE,
    )
    cc_library(
        name = "torch",
        hdrs = _headers(),
        defines = _DEFINES,
        includes = _INCLUDES,
        visibility = _GATE,
        deps = [":import/" + path for path in libraries],
    )

# How deep a package may lie, counted from the root of its workspace (an external repository's root counts two), for its
# binaries to find the tree. A search path that does not exist costs a failed open() at start.
_DEEPEST_PACKAGE = 9

def _search_paths(repository, folder):
    """Linker options by which a binary of any package finds `folder` of `repository`, wherever the whole was moved to."""
    options = []
    for depth in range(_DEEPEST_PACKAGE + 1):
        root = "/".join(["$$ORIGIN"] + [".."] * depth)

        # In a runfiles tree, copied or not, the repository is the workspace's sibling. From bazel-bin, five levels
        # below the output base, it is in the output base's own folder of repositories.
        options.append("-Wl,-rpath,{}/../{}/{}".format(root, repository, folder))
        options.append("-Wl,-rpath,{}/../../../../../external/{}/{}".format(root, repository, folder))
    return options

def cuda_targets():
    """`:torch` with CUDA, and `:nccl` (headers).

    The libraries stay where the wheels put them, and find each other by their own search paths: some are opened by name in
    the middle of a run (parts of cuDNN, the run-time compiler's builtins), where nothing that Bazel knows of would help.
    """
    repository = native.package_relative_label(":torch").repo_name

    # CUDA's run time: what the NCCL backend calls itself. A LibTorch of the user's own may carry it beside itself.
    runtimes = native.glob(
        [
            "tree/nvidia/*/lib/libcudart.so.*",
            "tree/torch/lib/libcudart*.so*",
        ],
        allow_empty = True,
    )
    folders = {"tree/torch/lib": None} | {path.rpartition("/")[0]: None for path in runtimes}
    cc_library(
        name = "torch",
        hdrs = _headers() + native.glob(["tree/nvidia/cu13/include/**"], allow_empty = True),
        additional_linker_inputs = ["tree"],
        data = ["tree"],
        defines = _DEFINES + ["USE_C10D_NCCL"],
        includes = _INCLUDES + [
            "tree/nvidia/cu13/include",
            "tree/nvidia/cu13/include/cccl",
        ],
        linkopts = [
            "-Lexternal/{}/{}".format(repository, folder)
            for folder in folders
        ] + [
            # CUDA's part is reached through a registry, not through symbols: the linker must not leave it out.
            "-Wl,--push-state,--no-as-needed",
            "-ltorch_cuda",
            "-ltorch_cpu",
            "-lc10_cuda",
            "-lc10",
        ] + ["-l:" + path.rpartition("/")[2] for path in runtimes] + [
            "-Wl,--pop-state",
        ] + [option for folder in folders for option in _search_paths(repository, folder)],
        visibility = _GATE,
    )
    cc_library(
        name = "nccl",
        hdrs = native.glob(["tree/nvidia/nccl/include/**"], allow_empty = True),
        includes = ["tree/nvidia/nccl/include"],
        visibility = [str(Label("//third_party/nccl:__pkg__"))],
    )

def _refusal_impl(ctx):
    fail(ctx.attr.reason)

_refusal = rule(
    implementation = _refusal_impl,
    doc = "Can be looked at, and not built.",
    attrs = {"reason": attr.string(mandatory = True)},
    provides = [CcInfo],
)

def refused_targets(reason):
    """The names of cuda_targets(), for a LibTorch that has none of it.

    Args:
      reason: what whoever builds them is told.
    """
    _refusal(name = "torch", reason = reason, visibility = _GATE)
    _refusal(name = "nccl", reason = reason, visibility = [str(Label("//third_party/nccl:__pkg__"))])

def torch_python_targets():
    """Python's torch with all that `import torch` asks for. A test needs both in its data, and runs `python3`."""
    native.exports_files(
        [
            "python3",
            "tree",
        ],
        visibility = [str(Label("//:tests"))],
    )
