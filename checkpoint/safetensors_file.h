// File: safetensors_file.h
//
// WriteSafetensorsFile: writes safetensors files. StateFile reads them.

#ifndef COHORT_CHECKPOINT_SAFETENSORS_FILE_H_
#define COHORT_CHECKPOINT_SAFETENSORS_FILE_H_

#if __cplusplus < 202002L
#error "cohort needs C++20: build with --cxxopt=-std=c++20"
#endif

#include <string>
#include <utility>

#include "ATen/core/ivalue.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "cohort/checkpoint/writable_file.h"
#include "cohort/third_party/libtorch/string_abi.h"

namespace cohort {

// Local. Writes `state` to `file` (empty until then), as WriteTorchFile does, but for what the format does not know:
// tensors stand under their keys joined by ".", and everything else, if there is anything else, in one JSON text in the
// file's metadata ("cohort.state"), from which StateFile makes the same state again. Every tensor is written row-major
// and whole: of tensors that are the same memory seen in the same way one is written, which the state names twice;
// those that overlap in part come back apart, with the same values. Conjugated and negated tensors come back resolved.
//
// `metadata`: texts by name for the file's metadata, in order; both UTF-8; names that begin with "cohort." are ours.
//
// Checksums of every tensor and of the header are in the metadata as well.
//
// Memory, and errors before anything is written: as of WriteTorchFile, and
//   InvalidArgument    two tensors have the same joined name (names both places), or one has the name "__metadata__"; a
//                      dtype that the format lacks: complex32, complex128; a name in `metadata` is ours or occurs
//                      twice; the header would be longer than 100 MB
absl::Status WriteSafetensorsFile(const c10::IValue& state,
                                  absl::Span<const std::pair<std::string, std::string>> metadata, WritableFile& file);

}  // namespace cohort

#endif  // COHORT_CHECKPOINT_SAFETENSORS_FILE_H_
