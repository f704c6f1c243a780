// File: module_state.h
//
// ModuleState, LoadModuleState: what a torch::nn module holds, under its own names, out and in.

#ifndef COHORT_CHECKPOINT_MODULE_STATE_H_
#define COHORT_CHECKPOINT_MODULE_STATE_H_

#if __cplusplus < 202002L
#error "cohort needs C++20: build with --cxxopt=-std=c++20"
#endif

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cohort/checkpoint/state_file.h"
#include "cohort/checkpoint/tensor_header.h"
#include "cohort/checkpoint/torch_file.h"
#include "cohort/third_party/libtorch/string_abi.h"

namespace torch::nn {
class Module;  // its header costs 15 s a translation unit
}  // namespace torch::nn

namespace cohort {

// Local. The parameters of `module` and all below it, then the buffers, each under the name that the module gives it,
// letter for letter: "weight", "fc1.bias", "bn.running_mean". Nothing is added or stripped, so a module that wraps
// another one should pass the inner one. What two names share is listed under both.
//
// The tensors are the module's own, not copies: they show what the module holds when they are looked at.
NamedTensors ModuleState(const torch::nn::Module& module);

// Local. What a state must have to fit `module`, in one line: "2 tensors, 11 elements, checksum 5f3a9c21". Equal for modules
// whose ModuleState has the same names with the same dtypes and shapes, in whatever order, and else another one, as far as
// a CRC-32 goes. Values and devices do not matter.
std::string ModelSignature(const torch::nn::Module& module);

struct LoadModuleOptions {
  // Every name of the module must be in the state and the other way round. Otherwise both differences are reported.
  bool strict = true;

  // Values of another dtype are converted, as at::Tensor::copy_ does; they may lose precision or range. A complex value
  // is never made real. Otherwise the dtypes must be equal.
  bool cast = false;

  // Taken off the front of the state's names: "module." reads what Python's DistributedDataParallel saved, "encoder."
  // reads one part of a larger model. A name without it is unexpected. Nothing is ever stripped by guess.
  std::string strip_prefix;
};

struct LoadModuleReport {
  std::vector<std::string> missing;     // the module's names, in its order
  std::vector<std::string> unexpected;  // the state's names, in its order, letter for letter
};

// Where the values of a state go.
struct ModuleMatch {
  // Places of values in the list of headers, and the module's tensors that they go to, each piece of memory once. The
  // tensors are the module's own: they may be non-contiguous, on any device, and ask for gradients.
  std::vector<std::pair<size_t, at::Tensor>> targets;

  // Places of values that go to one piece of memory, because the module ties the names. The first of each pair is among
  // `targets`; whoever loads must refuse the state unless the second has the same values, bit for bit.
  std::vector<std::pair<size_t, size_t>> tied;

  LoadModuleReport report;
};

// Local. Finds the place of every value, and changes nothing: for those who read values straight from a file into the
// module's memory. A name that is missing is not reported if the module ties it to one that is there.
//
// Errors:
//   InvalidArgument    the state does not fit; one message lists every tensor of another shape or dtype with what the
//                      state and what the module has and, if strict, every missing and unexpected name; or a name
//                      stands in the state twice; or a tensor of the module cannot be written: undefined, sparse,
//                      without data (meta), with elements that share memory (expanded), or overlapping another one in
//                      part (names both)
absl::StatusOr<ModuleMatch> MatchModuleState(const torch::nn::Module& module, absl::Span<const TensorHeader> headers,
                                             const LoadModuleOptions& options = {});

// Local. Copies the values of `state` into the parameters and buffers of `module`, in place: tied weights stay tied,
// everything stays on its device, pointers and optimizers that refer to the tensors stay valid. Gradients stay.
//
// The state is a flat list, as ModuleState gives it, and not an IValue, which could hold anything. The tensors may be
// those of the module.
//
// Nothing is changed unless all fits; only the failure of a device in the middle leaves a part of the values loaded.
//
// Errors: those of MatchModuleState, and
//   InvalidArgument    a tensor of the state is undefined, sparse or has no data (names it); names that the module ties
//                      have different values (names both)
absl::StatusOr<LoadModuleReport> LoadModuleState(torch::nn::Module& module,
                                                 absl::Span<const std::pair<std::string, at::Tensor>> state,
                                                 const LoadModuleOptions& options = {});

// Local. MatchModuleState for a file, or a part of one (StateFile::At), with the comparison of what the module ties.
// StateFile::ReadInto then takes the targets. Errors: also those of StateFile, and InvalidArgument if tied names have
// different values.
absl::StatusOr<ModuleMatch> MatchModuleState(const torch::nn::Module& module, const StateFile& state,
                                             const LoadModuleOptions& options = {});

// Local. LoadModuleState straight from a file, or from a part of one (StateFile::At): values go from the file into the module's
// memory, without a copy in between. All checksums are compared before anything is changed; an error of the disk
// afterwards leaves a part of the values loaded.
//
// Errors: those of LoadModuleState, with the file's path, and of StateFile.
absl::StatusOr<LoadModuleReport> ReadModuleState(torch::nn::Module& module, const StateFile& state,
                                                 const LoadModuleOptions& options = {});

}  // namespace cohort

#endif  // COHORT_CHECKPOINT_MODULE_STATE_H_
