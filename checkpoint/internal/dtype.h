// File: dtype.h
//
// Dtype: what one element of a tensor is, without LibTorch, and how each file format calls it.

#ifndef COHORT_CHECKPOINT_INTERNAL_DTYPE_H_
#define COHORT_CHECKPOINT_INTERNAL_DTYPE_H_

#include <cstdint>
#include <optional>
#include <string_view>

namespace cohort::internal {

// Every dtype that a file may hold.
enum class Dtype : uint8_t {
  kBool,
  kUInt8,
  kUInt16,
  kUInt32,
  kUInt64,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kFloat16,
  kBFloat16,
  kFloat32,
  kFloat64,
  kComplex32,
  kComplex64,
  kComplex128,
  kFloat8E5M2,
  kFloat8E5M2FNUZ,
  kFloat8E4M3FN,
  kFloat8E4M3FNUZ,
  kFloat8E8M0FNU,
};

struct DtypeInfo {
  Dtype dtype;
  int num_bytes;                 // of an element
  std::string_view name;         // as torch calls it: "float32"
  std::string_view storage;      // .pt: the class of its storage, "FloatStorage"; empty if it has only untyped storage
  std::string_view safetensors;  // "F32"; empty if the format has none
};

const DtypeInfo& InfoOf(Dtype dtype);

// By each of the names; nullopt if there is none such.
std::optional<Dtype> DtypeOfName(std::string_view name);
std::optional<Dtype> DtypeOfStorage(std::string_view storage);
std::optional<Dtype> DtypeOfSafetensors(std::string_view safetensors);

}  // namespace cohort::internal

#endif  // COHORT_CHECKPOINT_INTERNAL_DTYPE_H_
