"""The files of @safetensors_python: the Python package safetensors, to be put on the path of @torch_python's `python3`."""

def safetensors_targets():
    native.exports_files(
        ["tree"],
        visibility = [str(Label("//:tests"))],
    )
