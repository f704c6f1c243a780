"""The target of @gloo: Gloo's headers, with the configuration that LibTorch compiled it with."""

load("@bazel_skylib//rules:write_file.bzl", "write_file")
load("@rules_cc//cc:defs.bzl", "cc_library")

_CONFIG = [
    "#pragma once",
    "#define GLOO_VERSION_MAJOR 0",
    "#define GLOO_VERSION_MINOR 5",
    "#define GLOO_VERSION_PATCH 0",
    "static_assert(GLOO_VERSION_MINOR < 100, \"Programming error\");",
    "static_assert(GLOO_VERSION_PATCH < 100, \"Programming error\");",
    "#define GLOO_VERSION (GLOO_VERSION_MAJOR * 10000 + GLOO_VERSION_MINOR * 100 + GLOO_VERSION_PATCH)",
    "#define GLOO_USE_CUDA 0",
    "#define GLOO_USE_NCCL 0",
    "#define GLOO_USE_ROCM 0",
    "#define GLOO_USE_RCCL 0",
    "#define GLOO_USE_REDIS 0",
    "#define GLOO_USE_IBVERBS 0",
    "#define GLOO_USE_MPI 0",
    "#define GLOO_USE_AVX 0",
    "#define GLOO_USE_LIBUV 0",
    "#define GLOO_HAVE_TRANSPORT_TCP 1",
    "#define GLOO_HAVE_TRANSPORT_TCP_TLS 0",
    "#define GLOO_HAVE_TRANSPORT_IBVERBS 0",
    "#define GLOO_HAVE_TRANSPORT_UV 0",
    "#define GLOO_USE_TORCH_DTYPES 0",
    "",
]

def pinned_gloo_targets(torch_version):
    """`:headers`, known to be those of the Gloo inside one version of LibTorch.

    The code that includes them compares that with the LibTorch that it is compiled with.

    Args:
      torch_version: of that LibTorch, "major.minor.patch".
    """
    _config()
    major, minor, _ = torch_version.split(".")
    _headers([
        "COHORT_GLOO_TORCH_MAJOR=" + major,
        "COHORT_GLOO_TORCH_MINOR=" + minor,
    ])

def own_gloo_targets():
    """`:headers` of a folder of the user's own, which may be that of an installed Gloo with its configuration."""
    if not native.glob(["src/gloo/config.h"], allow_empty = True):
        _config()
    _headers([])

def _config():
    write_file(
        name = "config",
        out = "src/gloo/config.h",
        content = _CONFIG,
    )

def _headers(defines):
    cc_library(
        name = "headers",
        hdrs = native.glob(
            ["src/gloo/**/*.h"],
            exclude = [
                "src/gloo/benchmark/**",
                "src/gloo/config.h",
                "src/gloo/examples/**",
                "src/gloo/mpi/**",
                "src/gloo/nccl/**",
                "src/gloo/test/**",
                "src/gloo/transport/ibverbs/**",
                "src/gloo/transport/uv/**",
                "src/gloo/**/cuda*.h",
                "src/gloo/**/*hip*.h",
            ],
        ) + ["src/gloo/config.h"],
        defines = defines,
        includes = ["src"],
        visibility = [str(Label("//third_party/gloo:__pkg__"))],
    )
