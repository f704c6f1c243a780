// The calls, their order and their arguments are those of Python's torch/nn/parallel/distributed.py of LibTorch 2.14: both
// languages drive the same Reducer, and ranks of both must start the same operations in the same order.

#include "cohort/runtime/internal/torch_reducer.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ATen/ATen.h"
#include "ATen/core/ivalue.h"
#include "c10/core/GradMode.h"
#include "c10/util/intrusive_ptr.h"
#include "torch/csrc/autograd/custom_function.h"
#include "torch/csrc/autograd/edge.h"
#include "torch/csrc/autograd/engine.h"
#include "torch/csrc/autograd/function.h"
#include "torch/csrc/autograd/variable.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"
#include "torch/csrc/distributed/c10d/comm.hpp"
#include "torch/csrc/distributed/c10d/logger.hpp"
#include "torch/csrc/distributed/c10d/reducer.hpp"

namespace cohort::internal {
namespace {

using GroupPtr = c10::intrusive_ptr<c10d::ProcessGroup>;

// Python's broadcast_bucket_size.
constexpr size_t kBroadcastBytes = size_t{250} << 20;

std::vector<at::Tensor> TensorsOf(const std::vector<ReducedParameter>& parameters) {
  std::vector<at::Tensor> tensors;
  for (const ReducedParameter& parameter : parameters) tensors.push_back(parameter.tensor);
  return tensors;
}

std::vector<bool> SparseOnes(const std::vector<ReducedParameter>& parameters) {
  std::vector<bool> sparse;
  for (const ReducedParameter& parameter : parameters) sparse.push_back(parameter.has_sparse_gradient);
  return sparse;
}

// Python's, until the order in which gradients come is known: all in one, unless unused parameters are looked for, when
// the buckets are never made anew.
std::vector<std::vector<size_t>> FirstBuckets(const std::vector<at::Tensor>& tensors, const std::vector<bool>& sparse,
                                              const ReducerOptions& options) {
  std::vector<size_t> limits = {std::numeric_limits<int64_t>::max()};
  if (options.find_unused_parameters && !options.static_graph) {
    limits = {static_cast<size_t>(options.bucket_bytes)};
    if (options.first_bucket_bytes < options.bucket_bytes) {
      limits.insert(limits.begin(), static_cast<size_t>(options.first_bucket_bytes));
    }
  }
  std::vector<std::vector<size_t>> buckets =
      std::get<0>(c10d::compute_bucket_assignment_by_size(tensors, limits, sparse));
  std::reverse(buckets.begin(), buckets.end());
  return buckets;
}

// What the buckets become if the gradients come in the opposite order of the parameters.
std::vector<std::vector<size_t>> LastingBuckets(std::vector<at::Tensor> tensors, std::vector<bool> sparse,
                                                const ReducerOptions& options) {
  std::vector<int64_t> indices(tensors.size());
  std::iota(indices.rbegin(), indices.rend(), 0);
  std::reverse(tensors.begin(), tensors.end());
  const std::vector<size_t> limits = {static_cast<size_t>(options.first_bucket_bytes),
                                      static_cast<size_t>(options.bucket_bytes)};
  // With indices of our own LibTorch looks up `sparse` by them.
  return std::get<0>(c10d::compute_bucket_assignment_by_size(tensors, limits, sparse, indices));
}

// Lets gradients travel as Half or BFloat16: half the bytes, and three digits.
class CompressHook final : public c10d::CppCommHookInterface<GroupPtr> {
 public:
  CompressHook(const GroupPtr& group, c10::ScalarType type) : CppCommHookInterface(group), type_(type) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    // Divided first: a sum over many ranks may be too large for Half.
    std::vector<at::Tensor> compressed = {bucket.getBuffer().to(type_).div_(state_->getSize())};
    const auto sum = state_->allreduce(compressed)->getFuture();
    return sum->then(
        [buffer = bucket.getBuffer(), result = compressed[0]](c10::ivalue::Future& future) {
          if (future.hasError()) std::rethrow_exception(future.exception_ptr());
          buffer.copy_(result);
          return c10::IValue(buffer);
        },
        c10::TensorType::get());
  }

 private:
  const c10::ScalarType type_;
};

}  // namespace

// Whether backward is over is in a protected member.
class TorchReducer::OpenReducer : public c10d::Reducer {
 public:
  using Reducer::Reducer;
  bool expects_gradients() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return expect_autograd_hooks_;
  }
  void KeepBuckets() { has_rebuilt_bucket_ = true; }
  // Of a static graph, what local backwards before the first averaging have counted.
  void ForgetCounts() {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto& count : numGradHooksTriggeredMap_) count.second = 0;
  }
};

// The first backward of a static graph only counts how often each gradient comes, and all are averaged at its end.
struct TorchReducer::StaticGraph {
  std::weak_ptr<OpenReducer> reducer;
  bool has_been_counted = false;
};

namespace {

// Passes tensors on. In backward: leaves gradients undefined that are, so that a parameter behind an unused output counts
// as unused; and asks for the averaging at the end of a static graph's first backward.
template <typename State>
struct Watch : torch::autograd::Function<Watch<State>> {
  // at::TensorList is the only list in which LibTorch finds what is to be differentiated.
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context, at::TensorList outputs,
                                                std::shared_ptr<State> state) {
    context->set_materialize_grads(false);
    if (state != nullptr) context->saved_data["state"] = c10::IValue::make_capsule(c10::make_intrusive<Holder>(state));
    torch::autograd::variable_list passed_on;
    for (const at::Tensor& output : outputs) passed_on.push_back(output.clone());
    return passed_on;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto held = context->saved_data.find("state");
    if (held != context->saved_data.end()) {
      const std::shared_ptr<State> state = c10::static_intrusive_pointer_cast<Holder>(held->second.toCapsule())->state;
      if (!std::exchange(state->has_been_counted, true)) {
        torch::autograd::Engine::get_default_engine().queue_callback([state] {
          if (const auto reducer = state->reducer.lock()) reducer->delay_all_reduce();
        });
      }
    }
    gradients.emplace_back();  // none for `state`
    return gradients;
  }

  struct Holder : torch::CustomClassHolder {
    explicit Holder(std::shared_ptr<State> held) : state(std::move(held)) {}
    const std::shared_ptr<State> state;
  };
};

}  // namespace

void BroadcastFromMain(const GroupPtr& group, const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> detached;
  for (const at::Tensor& tensor : tensors) detached.push_back(tensor.detach());
  c10d::broadcast_coalesced(group, detached, kBroadcastBytes, 0);
}

void VerifyAcrossRanks(const GroupPtr& group, const std::vector<ReducedParameter>& parameters) {
  c10d::verify_params_across_processes(group, TensorsOf(parameters), std::nullopt);
}

TorchReducer::TorchReducer(const GroupPtr& group, std::vector<ReducedParameter> parameters,
                           const ReducerOptions& options)
    : parameters_(std::move(parameters)), options_(options) {
  const std::vector<at::Tensor> tensors = TensorsOf(parameters_);
  const std::vector<bool> sparse = SparseOnes(parameters_);
  std::vector<std::vector<size_t>> buckets =
      options.rebuild_buckets ? FirstBuckets(tensors, sparse, options) : LastingBuckets(tensors, sparse, options);
  std::unordered_map<size_t, std::string> names;
  for (size_t i = 0; i < parameters_.size(); ++i) names.emplace(i, parameters_[i].name);
  reducer_ = std::make_shared<OpenReducer>(tensors, std::move(buckets), group, sparse, options.bucket_bytes,
                                           options.find_unused_parameters, options.gradient_as_bucket_view,
                                           std::move(names), options.first_bucket_bytes,
                                           /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false,
                                           /*bucket_bytes_cap_list=*/std::vector<int64_t>());
  if (options.compress_to.has_value()) {
    reducer_->register_comm_hook(std::make_unique<CompressHook>(group, *options.compress_to));
  }
  logger_ = std::make_shared<c10d::Logger>(reducer_);
  reducer_->set_logger(logger_);
  if (!options.rebuild_buckets) reducer_->KeepBuckets();
  if (options.static_graph) {
    reducer_->set_static_graph();
    static_graph_ = std::make_shared<StaticGraph>();
    static_graph_->reducer = reducer_;
  }
}

TorchReducer::~TorchReducer() = default;

void TorchReducer::BeforeForward(bool is_synchronized) {
  if (!c10::GradMode::is_enabled()) return;
  if (is_synchronized) reducer_->prepare_for_forward();
  reducer_->rebuild_buckets();
}

void TorchReducer::AfterForward(bool is_synchronized, std::vector<at::Tensor*> outputs) {
  if (!c10::GradMode::is_enabled()) return;
  std::erase_if(outputs, [](const at::Tensor* output) { return !output->requires_grad(); });
  const bool finds_unused = options_.find_unused_parameters && !options_.static_graph;
  if (is_synchronized) {
    std::vector<at::Tensor> found;
    if (finds_unused) {
      // LibTorch looks at what outputs are made of: of a parameter that is itself one, only by way of a view.
      for (const at::Tensor* output : outputs) found.push_back(output->grad_fn() ? *output : output->view_as(*output));
    }
    reducer_->prepare_for_backward(found);
  }
  const bool counts = is_synchronized && static_graph_ != nullptr && !static_graph_->has_been_counted;
  if (counts) reducer_->ForgetCounts();
  if ((!finds_unused && !counts) || outputs.empty()) return;
  torch::autograd::variable_list plain;
  for (const at::Tensor* output : outputs) plain.push_back(*output);
  const auto watched = Watch<StaticGraph>::apply(at::TensorList(plain), counts ? static_graph_ : nullptr);
  for (size_t i = 0; i < outputs.size(); ++i) *outputs[i] = watched[i];
}

bool TorchReducer::is_finished() const { return !reducer_->expects_gradients(); }

bool TorchReducer::is_counted() const { return static_graph_ == nullptr || static_graph_->has_been_counted; }

std::vector<std::string> TorchReducer::Unreached(const at::Tensor& loss) const {
  std::unordered_set<const torch::autograd::Node*> seen;
  // Also of a loss that is itself a parameter.
  const torch::autograd::Edge last = torch::autograd::impl::gradient_edge(loss);
  std::vector<const torch::autograd::Node*> open = {last.function.get()};
  while (!open.empty()) {
    const torch::autograd::Node* node = open.back();
    open.pop_back();
    if (node == nullptr || !seen.insert(node).second) continue;
    for (const torch::autograd::Edge& edge : node->next_edges()) open.push_back(edge.function.get());
  }
  std::vector<std::string> names;
  for (const ReducedParameter& parameter : parameters_) {
    if (!seen.contains(torch::autograd::impl::grad_accumulator(parameter.tensor).get()))
      names.push_back(parameter.name);
  }
  return names;
}

}  // namespace cohort::internal
