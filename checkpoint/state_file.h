// File: state_file.h
//
// StateFile: reads .pt files, as torch.save or WriteTorchFile write them, and safetensors files, without running
// anything that stands in them.

#ifndef COHORT_CHECKPOINT_STATE_FILE_H_
#define COHORT_CHECKPOINT_STATE_FILE_H_

#if __cplusplus < 202002L
#error "cohort needs C++20: build with --cxxopt=-std=c++20"
#endif

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/core/ivalue.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "c10/core/Device.h"
#include "cohort/checkpoint/tensor_header.h"
#include "cohort/third_party/libtorch/string_abi.h"

namespace cohort {

enum class StateFormat { kTorch, kSafetensors };

struct ReadOptions {
  // Where the tensors go, whatever device they were saved from. Nothing but a cuda device makes a CUDA context.
  // For the meta device no tensor is read: what comes back has sizes, strides and dtypes, and every other value.
  c10::Device device = c10::kCPU;

  // Compares the checksums of all tensors that are read, if the file has any.
  bool verify = true;

  // Tensors are the file itself, mapped into memory, where it is aligned as LibTorch needs it: nothing is read before
  // it is used, nothing is verified, and what is written to them stays in this process. If somebody cuts the file
  // meanwhile, using them kills the process (SIGBUS); cohort replaces files and never changes one. For the CPU only.
  bool map = false;
};

// A state file, or a part of the state in it. Copies are cheap and see the same file, which stays open as long as one of
// them lives; if its name is given to another file meanwhile, they still see the old one. Thread-safe.
//
// After any single flipped bit in a file of ours, of either format, reading gives an error or exactly what was saved.
//
// Everything is local and blocks as long as the disk does. Messages begin with the file's path. Errors of all methods:
//   InvalidArgument    the file breaks a rule of its format, is of a kind that is refused (the message says which, and
//                      how to convert it), or holds what a state does not hold: code, sparse tensors, integers beyond
//                      64 bits, bytes, sets (the message names it and its place)
//   DataLoss           it is cut, or a checksum differs
//   and those of FileSystem
class StateFile {
 public:
  // Reads what describes the state: time and memory do not depend on the size of tensors. A .pt file is known by its
  // beginning, a safetensors file likewise; names do not matter.
  //
  // Memory is taken only for what the file shows to hold: at most its size and 64 MiB until it is known to be good.
  static absl::StatusOr<StateFile> Open(std::string_view path);

  // The same for a file's contents, from elsewhere; path() is then `name`.
  static absl::StatusOr<StateFile> FromBytes(std::string contents, std::string_view name);

  const std::string& path() const;
  StateFormat format() const;

  // The texts in a safetensors file's metadata, without ours; nothing for .pt.
  absl::Span<const std::pair<std::string, std::string>> metadata() const;

  // False if verifying says nothing: a safetensors file of others, a .pt file written without checksums.
  bool has_checksums() const;

  // Every tensor in this part of the state, in order. The name is the keys on the way to it, joined by ".".
  absl::Span<const TensorHeader> tensors() const;

  // The part under `key`, whose names then begin below it. Errors: NotFound (lists the keys that are there);
  // InvalidArgument if this part is no dict.
  absl::StatusOr<StateFile> At(std::string_view key) const;

  // All of this part. Tensors that shared memory when they were saved share it here.
  absl::StatusOr<c10::IValue> Read(const ReadOptions& options = {}) const;

  // One tensor. Errors: NotFound if no tensor has the name, InvalidArgument if several have it.
  absl::StatusOr<at::Tensor> ReadTensor(std::string_view name, const ReadOptions& options = {}) const;
  // The one at a place in tensors(), which must be there.
  absl::StatusOr<at::Tensor> ReadTensor(size_t place, const ReadOptions& options = {}) const;

  // Reads tensors into memory that is there already: each `first` is a place in tensors(), each `second` has its sizes,
  // any strides, device and dtype (copy_ converts). With `verify`, nothing is changed before all checksums are right;
  // that reads the file twice, on as many threads as LibTorch uses. With `map` the file is mapped and copied from:
  // faster, nothing is verified, and what ReadOptions says of mapped files holds for the call. `device` means nothing here.
  absl::Status ReadInto(absl::Span<const std::pair<size_t, at::Tensor>> targets, const ReadOptions& options = {}) const;

  // Some rows of the tensor at a place in tensors(): of those along its first dimension, these, in this order, into
  // `target`, row-major memory of the CPU with the tensor's dtype and sizes [rows.size(), and the others of the
  // tensor]. Nothing else is read, and nothing is verified; of the options only `map` counts. Errors: DataLoss if the
  // file was cut meanwhile; InvalidArgument if a row is not there, the tensor has no dimension or is not stored
  // row-major, or `target` is another.
  absl::Status ReadRows(size_t place, absl::Span<const int64_t> rows, const at::Tensor& target,
                        const ReadOptions& options = {}) const;

  // The CRC-32, if the file has it, of what is verified with the tensor at a place in tensors(), which must be there.
  std::optional<uint32_t> checksum(size_t place) const;

  // Compares the checksums of all tensors of this part. `progress` (may be empty) is called, from any thread but one at
  // a time, with the bytes done and the bytes in all.
  absl::Status Verify(const std::function<void(int64_t done, int64_t total)>& progress = {}) const;

 private:
  struct Contents;
  struct Part;
  static absl::StatusOr<StateFile> Describe(std::shared_ptr<Contents> contents);
  explicit StateFile(std::shared_ptr<const Part> part) : part_(std::move(part)) {}

  std::shared_ptr<const Part> part_;
};

}  // namespace cohort

#endif  // COHORT_CHECKPOINT_STATE_FILE_H_
