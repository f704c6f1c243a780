#include "cohort/runtime/internal/wrapped_parameters.h"

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/base/const_init.h"
#include "absl/base/no_destructor.h"
#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "c10/core/Device.h"
#include "cohort/runtime/internal/torch_reducer.h"
#include "torch/nn/module.h"
#include "torch/nn/modules/embedding.h"

namespace cohort::internal {
namespace {

using TensorKey = const void*;

TensorKey KeyOf(const at::Tensor& tensor) { return tensor.unsafeGetTensorImpl(); }

// The reduced parameters of all living WrappedParameters in this process.
absl::Mutex wrapped_mutex(absl::kConstInit);
std::unordered_set<TensorKey>& Wrapped() ABSL_EXCLUSIVE_LOCKS_REQUIRED(wrapped_mutex) {
  static absl::NoDestructor<std::unordered_set<TensorKey>> wrapped;
  return *wrapped;
}

// What no backend sends: found out before anything is sent.
absl::Status CheckCanBeSent(std::string_view kind, std::string_view name, const at::Tensor& tensor) {
  const auto refuse = [&](std::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrCat(kind, " ", name, " is ", what, ", which cannot be sent to other ranks"));
  };
  if (tensor.layout() != at::kStrided) return refuse("a sparse tensor");
  for (int64_t i = 0; i < tensor.dim(); ++i) {
    if (tensor.stride(i) == 0 && tensor.size(i) > 1) return refuse("expanded: some of its elements share their memory");
  }
  switch (tensor.scalar_type()) {
    case at::kFloat:
    case at::kDouble:
    case at::kHalf:
    case at::kBFloat16:
    case at::kByte:
    case at::kChar:
    case at::kBool:
    case at::kInt:
    case at::kLong:
    case at::kComplexFloat:
    case at::kComplexDouble:
      return absl::OkStatus();
    default:
      return refuse(absl::StrCat("of type ", c10::toString(tensor.scalar_type())));
  }
}

// The weights whose gradients are sparse tensors.
std::unordered_set<TensorKey> SparseWeights(const torch::nn::Module& module) {
  std::unordered_set<TensorKey> weights;
  const auto look = [&](const torch::nn::Module& part) {
    if (const auto* embedding = part.as<torch::nn::EmbeddingImpl>();
        embedding != nullptr && embedding->options.sparse()) {
      weights.insert(KeyOf(embedding->weight));
    }
    if (const auto* bag = part.as<torch::nn::EmbeddingBagImpl>(); bag != nullptr && bag->options.sparse()) {
      weights.insert(KeyOf(bag->weight));
    }
  };
  module.apply(look);
  return weights;
}

// "Float[3, 4]".
std::string Shape(at::ScalarType type, at::IntArrayRef sizes) {
  return absl::StrCat(c10::toString(type), "[", absl::StrJoin(sizes, ", "), "]");
}

std::string Described(std::string_view kind, std::string_view name, const at::Tensor& tensor) {
  return absl::StrCat(
      kind, " ", name, " ", Shape(tensor.scalar_type(), tensor.sizes()),
      tensor.requires_grad() ? "" : " without gradient",
      tensor.is_contiguous() ? "" : absl::StrCat(" with strides ", absl::StrJoin(tensor.strides(), ", ")));
}

bool HasShape(const at::Tensor& tensor, at::ScalarType type, at::IntArrayRef sizes) {
  return tensor.scalar_type() == type && tensor.sizes() == sizes;
}

}  // namespace

absl::StatusOr<std::unique_ptr<WrappedParameters>> WrappedParameters::Take(const torch::nn::Module& module,
                                                                           c10::Device device) {
  auto taken = absl::WrapUnique(new WrappedParameters());
  std::unordered_set<TensorKey> seen;
  const std::unordered_set<TensorKey> sparse = SparseWeights(module);
  std::vector<ReducedParameter> reduced;
  const auto parameters = module.named_parameters();
  for (const auto& parameter : parameters) {
    const std::string& name = parameter.key();
    const at::Tensor& tensor = parameter.value();
    if (tensor.device() != device) {
      return absl::InvalidArgumentError(absl::StrCat("parameter ", name, " is on ", tensor.device().str(),
                                                     " and must be on ", device.str(),
                                                     ": module->to(TensorDevice(group))"));
    }
    if (absl::Status status = CheckCanBeSent("parameter", name, tensor); !status.ok()) return status;
    taken->entries_.push_back(EntryOf(name, tensor));
    if (!tensor.requires_grad() || !seen.insert(KeyOf(tensor)).second) continue;
    reduced.push_back({.name = name, .tensor = tensor, .has_sparse_gradient = sparse.contains(KeyOf(tensor))});
  }
  if (reduced.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("module ", module.name(), " has ", parameters.size(),
                     " parameters, and none that needs a gradient: there is nothing to average"));
  }
  const auto buffers = module.named_buffers();
  for (const auto& buffer : buffers) {
    if (absl::Status status = CheckCanBeSent("buffer", buffer.key(), buffer.value()); !status.ok()) return status;
    taken->buffers_.push_back(EntryOf(buffer.key(), buffer.value()));
  }
  absl::MutexLock lock(wrapped_mutex);
  for (const ReducedParameter& parameter : reduced) {
    if (Wrapped().contains(KeyOf(parameter.tensor))) {
      return absl::InvalidArgumentError(
          absl::StrCat("parameter ", parameter.name, " is in a DistributedDataParallel already"));
    }
  }
  for (const ReducedParameter& parameter : reduced) Wrapped().insert(KeyOf(parameter.tensor));
  taken->reduced_ = std::move(reduced);
  return taken;
}

WrappedParameters::Entry WrappedParameters::EntryOf(const std::string& name, const at::Tensor& tensor) {
  return {.name = name,
          .tensor = tensor,
          .needs_gradient = tensor.requires_grad(),
          .type = tensor.scalar_type(),
          .sizes = tensor.sizes().vec(),
          .device = tensor.device()};
}

WrappedParameters::~WrappedParameters() {
  absl::MutexLock lock(wrapped_mutex);
  for (const ReducedParameter& parameter : reduced_) Wrapped().erase(KeyOf(parameter.tensor));
}

std::string WrappedParameters::Describe(const torch::nn::Module& module) {
  std::vector<std::string> lines;
  std::unordered_map<TensorKey, std::string> first_names;
  const auto add = [&](std::string_view kind, const auto& tensors) {
    for (const auto& tensor : tensors) {
      lines.push_back(Described(kind, tensor.key(), tensor.value()));
      const auto [first, is_first] = first_names.emplace(KeyOf(tensor.value()), tensor.key());
      if (!is_first) absl::StrAppend(&lines.back(), ", the same as ", first->second);
    }
  };
  add("parameter", module.named_parameters());
  add("buffer", module.named_buffers());
  return absl::StrJoin(lines, "\n");
}

absl::Status WrappedParameters::Compare(std::string_view kind, const std::vector<Entry>& then,
                                        const std::vector<at::Tensor>& now,
                                        absl::FunctionRef<std::string(const Entry&, const at::Tensor&)> difference) {
  std::string what;
  for (size_t i = 0; i < then.size() && what.empty(); ++i) {
    what = i < now.size() ? difference(then[i], now[i]) : " is no longer there";
    if (!what.empty()) what = absl::StrCat(then[i].name, what);
  }
  if (what.empty() && now.size() > then.size()) what = absl::StrCat(now.size() - then.size(), " more");
  if (what.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("the module's ", kind, " are not those it was wrapped with (", what,
                                                    "): make another DistributedDataParallel after a change"));
}

absl::Status WrappedParameters::CheckUnchanged(const torch::nn::Module& module) const {
  return Compare("parameters", entries_, module.parameters(), [](const Entry& then, const at::Tensor& now) {
    if (KeyOf(then.tensor) != KeyOf(now)) return std::string(" is another tensor");
    if (!HasShape(now, then.type, then.sizes)) {
      return absl::StrCat(" is ", Shape(now.scalar_type(), now.sizes()), ", and was ", Shape(then.type, then.sizes));
    }
    if (then.needs_gradient == now.requires_grad()) return std::string();
    return std::string(then.needs_gradient ? " no longer needs a gradient" : " needs a gradient now");
  });
}

absl::Status WrappedParameters::CheckBuffers(const std::vector<at::Tensor>& buffers) const {
  return Compare("buffers", buffers_, buffers, [](const Entry& then, const at::Tensor& now) {
    if (then.device == now.device() && HasShape(now, then.type, then.sizes)) return std::string();
    return absl::StrCat(" is ", Shape(now.scalar_type(), now.sizes()), " on ", now.device().str(), ", and was ",
                        Shape(then.type, then.sizes), " on ", then.device.str());
  });
}

}  // namespace cohort::internal
