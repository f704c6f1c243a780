// File: optimizer_state.h
//
// OptimizerState, LoadOptimizerState: LibTorch's optimizers in the schema of Python's Optimizer.state_dict().

#ifndef COHORT_CHECKPOINT_OPTIMIZER_STATE_H_
#define COHORT_CHECKPOINT_OPTIMIZER_STATE_H_

#if __cplusplus < 202002L
#error "cohort needs C++20: build with --cxxopt=-std=c++20"
#endif

#include <string>
#include <vector>

#include "ATen/core/ivalue.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cohort/third_party/libtorch/string_abi.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn
namespace torch::optim {
class Optimizer;
}  // namespace torch::optim

namespace cohort {

// What a loaded state holds and LibTorch's optimizer has no place for: the options foreach, fused, capturable and
// differentiable, which do not change what is computed; initial_lr, which Python's schedulers leave there; that Python
// wrote an int or a float64. Hand it to OptimizerState and Python finds its state as it was. Without it, Python's
// defaults are written.
struct OptimizerExtras {
  std::vector<c10::IValue> groups;  // the options of every group, as loaded
  std::vector<std::string> names;   // of the parameters, in the optimizer's order; empty if the state had none
  bool float64_steps = false;
};

// Local. The name of every parameter of `optimizer`, group by group, as `module` calls it. Of several names of one
// tensor (tied weights) it is the first.
//
// Errors:
//   InvalidArgument    a parameter is none of `module`'s (says which)
absl::StatusOr<std::vector<std::string>> ParameterNames(const torch::optim::Optimizer& optimizer,
                                                        const torch::nn::Module& module);

// Local. The state of `optimizer`, which is a torch::optim SGD, Adam, AdamW, RMSprop or Adagrad, as Python's of the same
// name has it:
//
//   {"state": {0: {"step": tensor, "exp_avg": tensor, ...}, ...},
//    "param_groups": [{"param_names": [...], "lr": ..., every other option ..., "params": [0, ...]}, ...]}
//
// Parameters are numbered through all groups. `names` (see ParameterNames) are those of the parameters in that order,
// or empty; with them the state finds its parameters again after a change of the model. A parameter that had no step yet
// has no entry.
//
// The tensors are the optimizer's own, not copies, but for "step": a float32 as in Python, or a float64 if `extras`, or
// LibTorch's default dtype, say so or if it is 2^24 or more, from where on a float32 cannot count.
//
// Errors:
//   InvalidArgument    another number of names than of parameters, or one twice; extras of more groups than there are; a
//                      parameter that is in the optimizer twice
//   OutOfRange         a step above 2^24 with fused or capturable in `extras`: Python makes a float32 of it
//   Unimplemented      an optimizer of another type
absl::StatusOr<c10::IValue> OptimizerState(const torch::optim::Optimizer& optimizer,
                                           absl::Span<const std::string> names = {},
                                           const OptimizerExtras& extras = {});

// Local. Replaces the options of the groups and the state of every parameter of `optimizer` by those in `state`, which
// OptimizerState or Python made. The tensors are copied to the devices of their parameters. A parameter without state in
// `state` has none afterwards, and gets a fresh one in its next step (Adagrad at once, since LibTorch's needs it).
//
// Groups match by position. In a group, parameters match by name if `state` has names and `names` are given, and by
// position otherwise. Keys that are missing because an older Python did not have them get the value that Python gives
// them.
//
// Nothing is changed unless everything fits. Loading again replaces; nothing grows.
//
// Errors:
//   InvalidArgument    not the schema above (says where); another number of groups or parameters, a name that is only on
//                      one side, another shape or dtype, a step that is not a whole number (each names the group, the
//                      parameter or the key); an option or entry that the optimizer does not have
//   Unimplemented      an option that changes the update and that LibTorch lacks: maximize=True,
//                      decoupled_weight_decay=True for Adam or False for AdamW, a tensor for a number; an optimizer of
//                      another type
absl::StatusOr<OptimizerExtras> LoadOptimizerState(torch::optim::Optimizer& optimizer, const c10::IValue& state,
                                                   absl::Span<const std::string> names = {});

}  // namespace cohort

#endif  // COHORT_CHECKPOINT_OPTIMIZER_STATE_H_
