"""Everything cohort is built from, in one table: what WORKSPACE declares, and what extensions.bzl declares for modules.

`used_by`: runtime = part of what an importer links; test and bench = only our own tests and benchmarks; build = rules.
`module`: its name in the Bazel Central Registry. MODULE.bazel cannot read this table, so a test compares the two.
"""

load("@bazel_tools//tools/build_defs/repo:http.bzl", "http_archive")
load("@bazel_tools//tools/build_defs/repo:utils.bzl", "maybe")
load("//third_party:build_file.bzl", "build_file")
load("//third_party/gloo:gloo.bzl", "gloo_repository")
load("//third_party/libtorch:libtorch.bzl", "libtorch_repository")
load("//third_party/wheels:wheels.bzl", "wheel_repository")

REPOSITORIES = {
    "com_google_absl": struct(
        version = "20260526.0",
        module = "abseil-cpp",
        sha256 = "6e1aee535473414164bf83e4ebc40240dec71a4701f8a642d906e95bea1aea0c",
        url = "https://github.com/abseil/abseil-cpp/releases/download/20260526.0/abseil-cpp-20260526.0.tar.gz",
        strip_prefix = "abseil-cpp-20260526.0",
        used_by = "runtime",
        why = "Status, strings, time, synchronization, flags, logging",
    ),
    "com_google_googletest": struct(
        version = "1.18.0",
        module = "googletest",
        sha256 = "b9cf3c3d06dbae3eeca671e2a3ea33f3749e23eaa1389cd92c9d0a575e146128",
        url = "https://github.com/google/googletest/archive/refs/tags/v1.18.0.tar.gz",
        strip_prefix = "googletest-1.18.0",
        used_by = "test",
        why = "tests; also Abseil's status matchers",
    ),
    "com_github_google_benchmark": struct(
        version = "1.9.1",
        module = "google_benchmark",
        sha256 = "32131c08ee31eeff2c8968d7e874f3cb648034377dfc32a4c377fa8796d84981",
        url = "https://github.com/google/benchmark/archive/refs/tags/v1.9.1.tar.gz",
        strip_prefix = "benchmark-1.9.1",
        used_by = "bench",
        why = "micro-benchmarks",
    ),
    "gloo": struct(
        version = "d97133a (2025-09-12)",
        torch_version = "2.14.1",
        # GitHub packs this archive on demand, so its bytes have no lasting hash: the manifest pins every header
        # instead.
        sha256 = "",
        url = "https://github.com/pytorch/gloo/archive/d97133a.tar.gz",
        repacked = "gloo_0.0~git20250912.d97133a.orig.tar.xz",
        repacked_sha256 = "43d930375720059ac67b1619c7d020d5d2cee79757caf4e75a1bfedb8eeb2b42",
        used_by = "runtime",
        why = "headers of the Gloo that LibTorch 2.14.1 holds compiled (Debian builds that LibTorch with this commit)",
    ),
    "libtorch": struct(
        version = "2.14.1",
        sha256 = "third_party/wheels/libtorch_cpu.lock",
        used_by = "runtime",
        why = "tensors, modules, c10d",
    ),
    "libtorch_cuda": struct(
        version = "2.14.1, CUDA 13.0, NCCL 2.30.7",
        sha256 = "third_party/wheels/torch_cuda.lock",
        used_by = "runtime",
        why = "--config=cuda",
    ),
    "torch_python": struct(
        version = "2.14.1",
        sha256 = "third_party/wheels/torch_cuda.lock",
        used_by = "test",
        why = "real Python torch, the oracle of our tests; @libtorch_cuda takes its files from here",
    ),
    "diabetes": struct(
        version = "scikit-learn 1.9.1",
        sha256 = "third_party/wheels/scikit_learn.lock",
        used_by = "test",
        why = "the data sets that //trainers:linear and //trainers:mlp train on by default",
    ),
    "safetensors_python": struct(
        version = "0.8.0",
        sha256 = "third_party/wheels/safetensors.lock",
        used_by = "test",
        why = "the format's own library in Python, the oracle of our tests",
    ),
    "xz": struct(
        version = "5.8.4",
        sha256 = "4ce24038fd4221e0d13bc1a2de7a4db56e90b92b3bf75321f6c14be73f65de4b",
        url = "https://github.com/tukaani-project/xz/releases/download/v5.8.4/xz-5.8.4.tar.xz",
        strip_prefix = "xz-5.8.4",
        used_by = "runtime",
        why = "CRC-32 of state files; liblzma's is by carry-less multiplication",
    ),
    "nlohmann_json": struct(
        version = "3.11.3",
        module = "nlohmann_json",
        sha256 = "0d8ef5af7f9794e3263480193c491549b2ba6cc74bb018906202ada498a79406",
        url = "https://github.com/nlohmann/json/archive/refs/tags/v3.11.3.tar.gz",
        strip_prefix = "json-3.11.3",
        used_by = "runtime",
        why = "the headers of safetensors files",
    ),
    "bazel_skylib": struct(
        version = "1.7.1",
        module = "bazel_skylib",
        sha256 = "bc283cdfcd526a52c3201279cda4bc298652efa898b10b4db0837dc51652756f",
        url = "https://github.com/bazelbuild/bazel-skylib/releases/download/1.7.1/bazel-skylib-1.7.1.tar.gz",
        strip_prefix = "",
        used_by = "build",
        why = "build settings, analysis tests",
    ),
    "platforms": struct(
        version = "0.0.10",
        module = "platforms",
        sha256 = "218efe8ee736d26a3572663b374a253c012b716d8af0c07e842e82f238a0a7ee",
        url = "https://github.com/bazelbuild/platforms/releases/download/0.0.10/platforms-0.0.10.tar.gz",
        strip_prefix = "",
        used_by = "build",
        why = "Abseil's platform selects",
    ),
    "rules_cc": struct(
        version = "0.0.17",
        module = "rules_cc",
        sha256 = "abc605dd850f813bb37004b77db20106a19311a96b2da1c92b789da529d28fe1",
        url = "https://github.com/bazelbuild/rules_cc/releases/download/0.0.17/rules_cc-0.0.17.tar.gz",
        strip_prefix = "rules_cc-0.0.17",
        used_by = "build",
        why = "C++ rules",
    ),
}

def _name_of(name, mapping):
    """What a repository that we call `name` is called in a workspace that declares us with that repo_mapping."""
    return mapping.get("@" + name, "@" + name)[1:]

def _archive(name, mapping = {}, **kwargs):
    entry = REPOSITORIES[name]
    maybe(
        http_archive,
        name = _name_of(name, mapping),
        sha256 = entry.sha256,
        strip_prefix = entry.strip_prefix,
        urls = [entry.url],
        **kwargs
    )

def cohort_dependencies(repo_mapping = {}):
    """For WORKSPACE: what cohort's targets need. A repository that the importing workspace already has is left alone.

    Args:
      repo_mapping: the one with which the workspace declares cohort, if any: what cohort calls by the name on the left is
        declared by the name on the right.
    """
    for name in ["bazel_skylib", "nlohmann_json", "platforms", "rules_cc"]:
        _archive(name, repo_mapping)
    _archive(
        "com_google_absl",
        repo_mapping,
        # Not needed by us, and half of the time that Abseil takes to build: compiling each of its headers alone.
        patch_cmds = ["find . -name BUILD.bazel | xargs sed -i '/^ *\"parse_headers\",$/d'"],
        repo_mapping = {"@googletest": "@" + _name_of("com_google_googletest", repo_mapping)},
    )
    _archive(
        "com_google_googletest",
        repo_mapping,
        repo_mapping = {"@abseil-cpp": "@" + _name_of("com_google_absl", repo_mapping)},
    )
    unregistered_dependencies(repo_mapping)

def cohort_test_dependencies():
    """For WORKSPACE: what only cohort's own tests, benchmarks and example programs need."""
    _archive("com_github_google_benchmark")
    unregistered_test_dependencies()

def unregistered_dependencies(mapping = {}):
    """What cohort's targets need and no registry has: the same for WORKSPACE and for modules.

    Args:
      mapping: as for cohort_dependencies.
    """
    maybe(
        gloo_repository,
        name = _name_of("gloo", mapping),
        manifest = Label("//third_party/gloo:headers.sha256"),
        repacked = REPOSITORIES["gloo"].repacked,
        repacked_sha256 = REPOSITORIES["gloo"].repacked_sha256,
        sha256 = REPOSITORIES["gloo"].sha256,
        torch_version = REPOSITORIES["gloo"].torch_version,
        urls = [REPOSITORIES["gloo"].url],
    )
    _archive("xz", mapping, build_file_content = build_file(Label("//third_party/xz:targets.bzl"), "xz_targets"))
    maybe(
        libtorch_repository,
        name = _name_of("libtorch", mapping),
        keep = [
            "torch/include/*",
            "torch/lib/libc10.so",
            "torch/lib/libgomp.so*",
            "torch/lib/libtorch_cpu.so",
            "nvidia/cu13/lib/libcudart.so*",
            "nvidia/cu13/lib/libcupti.so*",
        ],
        lock = Label("//third_party/wheels:libtorch_cpu.lock"),
        targets = "cpu_targets",
        version = REPOSITORIES["libtorch"].version,
    )
    maybe(
        libtorch_repository,
        name = _name_of("libtorch_cuda", mapping),
        libraries = ["libtorch_cuda.so", "libtorch_cpu.so", "libc10.so"],
        targets = "cuda_targets",
        unpacked = Label("@torch_python//:BUILD.bazel"),
        version = REPOSITORIES["libtorch"].version,
    )
    maybe(
        wheel_repository,
        name = _name_of("torch_python", mapping),
        build_file_content = build_file(Label("//third_party/libtorch:targets.bzl"), "torch_python_targets"),
        lock = Label("//third_party/wheels:torch_cuda.lock"),
    )

def unregistered_test_dependencies():
    """What only our own tests and example programs need, and no registry has."""
    maybe(
        wheel_repository,
        name = "diabetes",
        build_file_content = build_file(Label("//third_party/diabetes:targets.bzl"), "diabetes_targets"),
        keep = [
            "sklearn/datasets/data/diabetes_*.csv.gz",
            "sklearn/datasets/data/digits.csv.gz",
        ],
        lock = Label("//third_party/wheels:scikit_learn.lock"),
        python_version = "3.12",
    )
    maybe(
        wheel_repository,
        name = "safetensors_python",
        build_file_content = build_file(Label("//third_party/safetensors:targets.bzl"), "safetensors_targets"),
        keep = ["safetensors/*"],
        lock = Label("//third_party/wheels:safetensors.lock"),
    )
