"""Made others.safetensors beside it, with safetensors 0.8 and NumPy: python3 make_safetensors.py, in this folder."""

import numpy
import safetensors

DTYPES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "float8_e5m2": "F8_E5M2", "float8_e4m3fn": "F8_E4M3",
    "float8_e8m0fnu": "F8_E8M0", "float8_e4m3fnuz": "F8_E4M3FNUZ", "float8_e5m2fnuz": "F8_E5M2FNUZ", "int16": "I16",
    "uint16": "U16", "float16": "F16", "bfloat16": "BF16", "int32": "I32", "uint32": "U32", "float32": "F32",
    "complex64": "C64", "float64": "F64", "int64": "I64", "uint64": "U64",
}
kept = []  # what TensorSpec points to


def tensor(dtype, shape, data):
    kept.append(numpy.frombuffer(data, dtype=numpy.uint8).copy())
    return safetensors.TensorSpec(dtype=dtype, shape=shape, data_ptr=kept[-1].ctypes.data, data_len=len(data))


def size_of(dtype):
    return {"bool": 1, "bfloat16": 2, "complex64": 8}.get(dtype) or (1 if "8" in dtype else numpy.dtype(dtype).itemsize)


tensors = {dtype: tensor(dtype, [2], bytes(range(2 * size_of(dtype)))) for dtype in DTYPES}
tensors["scalar"] = tensor("float32", [], b"abcd")
tensors["empty"] = tensor("float64", [3, 0], b"")
tensors["\u00e9 \"\n"] = tensor("int16", [1, 2], b"wxyz")
with open("others.safetensors", "wb") as file:
    file.write(safetensors.serialize(tensors, metadata={"format": "pt", "note": "\u2603 \"\n"}))
