// File: torch_reducer.h
//
// TorchReducer: LibTorch's Reducer, which averages gradients while backward computes them. What of LibTorch's
// data-parallel code differs between versions is in this file's .cc.

#ifndef COHORT_RUNTIME_INTERNAL_TORCH_REDUCER_H_
#define COHORT_RUNTIME_INTERNAL_TORCH_REDUCER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "c10/core/ScalarType.h"
#include "c10/util/intrusive_ptr.h"

namespace c10d {
class Logger;
class ProcessGroup;
}  // namespace c10d

namespace cohort::internal {

struct ReducerOptions {
  int64_t bucket_bytes = 0, first_bucket_bytes = 0;
  bool rebuild_buckets = true;
  bool find_unused_parameters = false;
  bool gradient_as_bucket_view = false;
  bool static_graph = false;
  std::optional<c10::ScalarType> compress_to;  // gradients travel as this type
};

struct ReducedParameter {
  std::string name;
  at::Tensor tensor;
  bool has_sparse_gradient = false;
};

// Collective: `tensors` of `group`'s main rank replace those of the others. Throws what LibTorch throws, as all below.
void BroadcastFromMain(const c10::intrusive_ptr<c10d::ProcessGroup>& group, const std::vector<at::Tensor>& tensors);

// Collective. Throws unless all ranks have as many parameters, of the same types, sizes and strides.
void VerifyAcrossRanks(const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                       const std::vector<ReducedParameter>& parameters);

// One for each model. In the order of Python's DistributedDataParallel, so that ranks of both can be in one group:
// BeforeForward, the buffers, forward, AfterForward, backward.
class TorchReducer {
 public:
  // Registers itself with the parameters, which all need gradients; not empty.
  TorchReducer(const c10::intrusive_ptr<c10d::ProcessGroup>& group, std::vector<ReducedParameter> parameters,
               const ReducerOptions& options);
  ~TorchReducer();

  // Collective after the first backward, if the buckets are then made anew.
  void BeforeForward(bool is_synchronized);

  // Local. `outputs` are what forward returned; all that are to be differentiated are replaced, if the graph is to be
  // watched.
  void AfterForward(bool is_synchronized, std::vector<at::Tensor*> outputs);

  // Local, after a backward that AfterForward(true, ...) has prepared: whether every gradient has been averaged.
  bool is_finished() const;

  // Local. Of a static graph, whether it has seen its first backward, which must come by way of what forward returned.
  // Without one: true.
  bool is_counted() const;

  // Local. The names of the parameters that `loss` does not depend on.
  std::vector<std::string> Unreached(const at::Tensor& loss) const;

 private:
  class OpenReducer;
  struct StaticGraph;

  const std::vector<ReducedParameter> parameters_;
  const ReducerOptions options_;
  std::shared_ptr<OpenReducer> reducer_;
  std::shared_ptr<c10d::Logger> logger_;  // the reducer writes to it without asking whether there is one
  std::shared_ptr<StaticGraph> static_graph_;
};

}  // namespace cohort::internal

#endif  // COHORT_RUNTIME_INTERNAL_TORCH_REDUCER_H_
