// File: wrapped_parameters.h
//
// WrappedParameters: the parameters of a module as they were when it was wrapped, and whether they still are.

#ifndef COHORT_RUNTIME_INTERNAL_WRAPPED_PARAMETERS_H_
#define COHORT_RUNTIME_INTERNAL_WRAPPED_PARAMETERS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "c10/core/Device.h"
#include "cohort/runtime/internal/torch_reducer.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace cohort::internal {

// A living one keeps others away from its parameters: each could be averaged by one reducer only.
class WrappedParameters {
 public:
  // Local. May throw what LibTorch throws.
  //
  // Errors: InvalidArgument: no parameter needs a gradient; one is not on `device`, or wrapped already; a parameter or buffer is
  // sparse, expanded, or of a type that cannot be sent.
  static absl::StatusOr<std::unique_ptr<WrappedParameters>> Take(const torch::nn::Module& module, c10::Device device);

  WrappedParameters(const WrappedParameters&) = delete;
  WrappedParameters& operator=(const WrappedParameters&) = delete;
  ~WrappedParameters();

  // Those that need gradients; a parameter with two names is there once, with the first.
  const std::vector<ReducedParameter>& reduced() const { return reduced_; }

  // Local. Every parameter and every buffer of the module, a line each: name, type, sizes, and what else must be equal on
  // all ranks.
  static std::string Describe(const torch::nn::Module& module);

  // Local. FailedPrecondition if the module's parameters are no longer these, with the same types and sizes: names the first
  // that differs.
  absl::Status CheckUnchanged(const torch::nn::Module& module) const;

  // Local. The same for the module's buffers, which may be other tensors than they were, but only such as the other ranks have.
  absl::Status CheckBuffers(const std::vector<at::Tensor>& buffers) const;

 private:
  struct Entry {
    std::string name;
    at::Tensor tensor;
    bool needs_gradient = false;
    // As they were: set_data() and Module::to() change them in place.
    at::ScalarType type = at::kFloat;
    std::vector<int64_t> sizes = {};
    c10::Device device = c10::kCPU;
  };

  WrappedParameters() = default;

  // FailedPrecondition if `now` are not the tensors `then` of that kind. `difference`: what of one has changed, or "".
  static absl::Status Compare(std::string_view kind, const std::vector<Entry>& then, const std::vector<at::Tensor>& now,
                              absl::FunctionRef<std::string(const Entry&, const at::Tensor&)> difference);
  static Entry EntryOf(const std::string& name, const at::Tensor& tensor);

  std::vector<Entry> entries_;  // all, in the module's order, each name
  std::vector<Entry> buffers_;  // the same
  std::vector<ReducedParameter> reduced_;
};

}  // namespace cohort::internal

#endif  // COHORT_RUNTIME_INTERNAL_WRAPPED_PARAMETERS_H_
