// File: state_text.h
//
// A state file as texts: what LibTorch's types hold, for commands that print and compare.

#ifndef COHORT_TOOLS_CKPT_STATE_TEXT_H_
#define COHORT_TOOLS_CKPT_STATE_TEXT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cohort/checkpoint/state_file.h"
#include "cohort/checkpoint/tensor_header.h"

namespace cohort::ckpt {

// Opens a state file. Errors: those of StateFile::Open; FailedPrecondition if it is a directory, a pipe or a device.
// IsBadFile tells a file that is damaged or refused from one that could not be looked at.
absl::StatusOr<StateFile> OpenState(const std::string& path);
bool IsBadFile(const absl::Status& status);

// The error without the path at its beginning, as one line.
std::string Reason(const absl::Status& status, std::string_view path);

int64_t NumBytes(const TensorHeader& header);
std::string DtypeText(const TensorHeader& header);  // "float32"
std::string ShapeText(const TensorHeader& header);  // "[2, 3]"
std::string FormatText(StateFormat format);         // ".pt", "safetensors"

// A value that is no tensor.
struct Value {
  std::string name;  // the keys on the way to it, joined by "."; empty for the state itself
  std::string type;  // "int", "str", "list", ...
  std::string text;  // as Python writes it; two values are equal if their types and texts are
  std::string json;
  // A dict, or a list with dicts or tensors in it: its items stand for themselves, and `text` says what sets it apart.
  bool is_split = false;
};

// All values that are no tensors, in order. Reads no tensor. Errors: those of StateFile::Read.
absl::StatusOr<std::vector<Value>> ValuesOf(const StateFile& file);

// The integer under a top-level key, if there is one.
std::optional<int64_t> IntegerAt(const StateFile& file, std::string_view key);

}  // namespace cohort::ckpt

#endif  // COHORT_TOOLS_CKPT_STATE_TEXT_H_
