#include "cohort/checkpoint/internal/dtype.h"

#include <optional>
#include <string_view>

namespace cohort::internal {
namespace {

// In the order of the enumeration. Older dtypes have a class of storage each in .pt files; newer ones have untyped
// storage, and the tensor names its dtype.
constexpr DtypeInfo kInfos[] = {
    {Dtype::kBool, 1, "bool", "BoolStorage", "BOOL"},
    {Dtype::kUInt8, 1, "uint8", "ByteStorage", "U8"},
    {Dtype::kUInt16, 2, "uint16", "", "U16"},
    {Dtype::kUInt32, 4, "uint32", "", "U32"},
    {Dtype::kUInt64, 8, "uint64", "", "U64"},
    {Dtype::kInt8, 1, "int8", "CharStorage", "I8"},
    {Dtype::kInt16, 2, "int16", "ShortStorage", "I16"},
    {Dtype::kInt32, 4, "int32", "IntStorage", "I32"},
    {Dtype::kInt64, 8, "int64", "LongStorage", "I64"},
    {Dtype::kFloat16, 2, "float16", "HalfStorage", "F16"},
    {Dtype::kBFloat16, 2, "bfloat16", "BFloat16Storage", "BF16"},
    {Dtype::kFloat32, 4, "float32", "FloatStorage", "F32"},
    {Dtype::kFloat64, 8, "float64", "DoubleStorage", "F64"},
    {Dtype::kComplex32, 4, "complex32", "", ""},
    {Dtype::kComplex64, 8, "complex64", "ComplexFloatStorage", "C64"},
    {Dtype::kComplex128, 16, "complex128", "ComplexDoubleStorage", ""},
    {Dtype::kFloat8E5M2, 1, "float8_e5m2", "", "F8_E5M2"},
    {Dtype::kFloat8E5M2FNUZ, 1, "float8_e5m2fnuz", "", "F8_E5M2FNUZ"},
    {Dtype::kFloat8E4M3FN, 1, "float8_e4m3fn", "", "F8_E4M3"},
    {Dtype::kFloat8E4M3FNUZ, 1, "float8_e4m3fnuz", "", "F8_E4M3FNUZ"},
    {Dtype::kFloat8E8M0FNU, 1, "float8_e8m0fnu", "", "F8_E8M0"},
};

std::optional<Dtype> Find(std::string_view DtypeInfo::* member, std::string_view name) {
  if (name.empty()) return std::nullopt;
  for (const DtypeInfo& info : kInfos) {
    if (info.*member == name) return info.dtype;
  }
  return std::nullopt;
}

}  // namespace

const DtypeInfo& InfoOf(Dtype dtype) { return kInfos[static_cast<int>(dtype)]; }

std::optional<Dtype> DtypeOfName(std::string_view name) { return Find(&DtypeInfo::name, name); }
std::optional<Dtype> DtypeOfStorage(std::string_view storage) { return Find(&DtypeInfo::storage, storage); }
std::optional<Dtype> DtypeOfSafetensors(std::string_view safetensors) {
  return Find(&DtypeInfo::safetensors, safetensors);
}

}  // namespace cohort::internal
