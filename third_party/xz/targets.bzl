"""The target of @xz: only liblzma's CRC-32."""

load("@rules_cc//cc:defs.bzl", "cc_library")

_PRIVATE_INCLUDES = [
    "src/common",
    "src/liblzma/check",
    "src/liblzma/common",
]

def xz_targets():
    """`:crc32`."""
    repository = native.package_relative_label(":crc32").repo_name
    cc_library(
        name = "crc32",
        srcs = [
            "src/common/mythread.h",
            "src/common/sysdefs.h",
            "src/common/tuklib_common.h",
            "src/common/tuklib_config.h",
            "src/common/tuklib_integer.h",
            "src/liblzma/check/check.h",
            "src/liblzma/check/crc32_fast.c",
            "src/liblzma/check/crc32_table_be.h",
            "src/liblzma/check/crc32_table_le.h",
            "src/liblzma/check/crc_common.h",
            "src/liblzma/check/crc_x86_clmul.h",
            "src/liblzma/common/common.h",
        ],
        hdrs = native.glob(["src/liblzma/api/**/*.h"]),
        # Optimised in every build: checksums are most of what a save computes. _GNU_SOURCE for sigset_t.
        copts = [
            "-O2",
            "-D_GNU_SOURCE",
        ] + ["-Iexternal/{}/{}".format(repository, folder) for folder in _PRIVATE_INCLUDES],
        includes = ["src/liblzma/api"],
        # What the library's own configure finds on Linux x86-64.
        local_defines = [
            "HAVE_CHECK_CRC32",
            "HAVE_FUNC_ATTRIBUTE_CONSTRUCTOR",
            "HAVE_IMMINTRIN_H",
            "HAVE_INTTYPES_H",
            "HAVE_LIMITS_H",
            "HAVE_STDBOOL_H",
            "HAVE_STDINT_H",
            "HAVE_STRING_H",
            "HAVE_USABLE_CLMUL",
            "HAVE__BOOL",
        ],
        visibility = [str(Label("//third_party/xz:__pkg__"))],
    )
