"""Which packages must not see which targets: the right column of the table in docs/architecture.md.

Each package named here calls layers_test() in its BUILD file, because Bazel judges where a dependency stands.
"""

load("//tests/harness:invisible_test.bzl", "invisible_test")

visibility("//...")

# (targets, packages that must not see them). One package stands for its top folder.
LAYERS = [
    (
        [
            "//runtime",
            "//runtime:distributed_data_parallel",
            "//runtime:error_file",
            "//runtime:init_process_group",
            "//runtime:tensor_collectives",
        ],
        ["checkpoint", "models"],
    ),
    (
        ["//runtime:main_only", "//runtime:process_group"],
        ["models"],
    ),
    (
        ["//runtime:rank_info"],
        ["checkpoint", "models"],
    ),
    (
        ["//runtime:torch_status"],
        ["models"],
    ),
    (
        [
            "//runtime/internal:backend",
            "//runtime/internal:control_plane",
            "//runtime/internal:gloo_backend",
            "//runtime/internal:in_process_backend",
            "//runtime/internal:nccl_backend",
        ],
        ["checkpoint", "models", "tests/visibility", "tools/ckpt", "tools/launch", "trainers"],
    ),
    (
        [
            "//checkpoint:checkpoint_info",
            "//checkpoint:checkpoint_manager",
            "//checkpoint:checkpoint_request",
            "//checkpoint:main_only_saver",
            "//checkpoint:module_state",
            "//checkpoint:optimizer_state",
            "//checkpoint:retention",
            "//checkpoint:rng_state",
            "//checkpoint:run_directory",
            "//checkpoint:safetensors_file",
            "//checkpoint:save_trigger",
            "//checkpoint:state_file",
            "//checkpoint:tensor_header",
            "//checkpoint:torch_file",
            "//checkpoint:training_state",
            "//checkpoint:writable_file",
        ],
        ["models", "runtime"],
    ),
    (
        ["//checkpoint:atomic_file", "//checkpoint:file_system", "//checkpoint:target_path"],
        ["models", "tools/ckpt", "trainers"],
    ),
    (
        ["//models:linear", "//models:mlp"],
        ["checkpoint", "runtime"],
    ),
    (
        [
            "//trainers:lr_scheduler",
            "//trainers/data:batch_loader",
            "//trainers/data:csv_dataset",
            "//trainers/data:dataset",
            "//trainers/data:dataset_file",
            "//trainers/data:dataset_rows",
            "//trainers/data:distributed_sampler",
            "//trainers/data:generated_dataset",
            "//trainers/data:prefetcher",
            "//trainers/data:row_source",
            "//trainers/data:row_subset",
        ],
        ["checkpoint", "models", "runtime"],
    ),
    (
        ["//trainers:trainer"],
        ["checkpoint", "models", "runtime"],
    ),
    (
        ["//third_party/libtorch"],
        ["tools/launch"],
    ),
    (
        ["//third_party/gloo", "//third_party/nccl"],
        ["checkpoint", "models", "runtime", "tests/visibility", "tools/ckpt", "tools/launch", "trainers"],
    ),
    (
        ["@libtorch//:torch"],
        [
            "checkpoint",
            "models",
            "runtime",
            "runtime/internal",
            "tests/visibility",
            "tools/ckpt",
            "tools/launch",
            "trainers",
        ],
    ),
]

def packages_with_layers():
    """Returns the packages that call layers_test()."""
    return sorted({package: None for _, packages in LAYERS for package in packages})

def layers_test(name = "layers_test"):
    """Tests that the calling package sees none of the targets that LAYERS keeps from it.

    Args:
      name: of the test; tests/visibility looks for this one.
    """
    package = native.package_name()
    deps = [target for targets, packages in LAYERS if package in packages for target in targets]
    if not deps:
        fail("layers_test(): layers.bzl keeps nothing from //{}; add it there or drop the call.".format(package))
    invisible_test(
        name = name,
        # Labels are those of this repository, whatever it is called where it is imported.
        deps = [str(Label(dep)) for dep in deps],
    )
