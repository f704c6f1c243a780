// How a collective goes.
//
// 1. The tensors are checked. Gloo and NCCL would crash or compute nonsense.
// 2. On gloo, the main rank says what it brings, in a message of fixed size, and who brings something else stops here:
//    two ranks whose messages differ in size make Gloo end the process. It costs one broadcast.
// 3. Tensors of one type travel together in one flat buffer: latency is paid once, and not once a parameter.

#include "cohort/runtime/tensor_collectives.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ATen/ATen.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "cohort/runtime/internal/steady_time.h"
#include "cohort/runtime/internal/text_hash.h"
#include "cohort/runtime/internal/torch_backend.h"
#include "cohort/runtime/internal/torch_duration.h"
#include "cohort/runtime/process_group.h"
#include "torch/csrc/distributed/c10d/Backend.hpp"

namespace cohort {
namespace {

using internal::SteadyTime;
using internal::TorchBackend;

struct Operation {
  std::string_view name;
  // What the result is divided by. Only floating point numbers can be.
  int divisor = 1;
  std::function<c10::intrusive_ptr<c10d::Work>(c10d::Backend&, std::vector<at::Tensor>&)> start;
};

absl::Status CheckTensors(const Operation& operation, absl::Span<const at::Tensor> tensors, c10::Device device) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& tensor = tensors[i];
    std::string fault;
    if (!tensor.defined()) {
      fault = "is undefined";
    } else if (tensor.layout() != at::kStrided) {
      fault = "is not dense";
    } else if (tensor.device() != device) {
      fault = absl::StrCat("is on ", tensor.device().str(), " and must be on ", device.str());
    } else if (operation.divisor != 1 && !tensor.is_floating_point()) {
      fault = absl::StrCat("has type ", c10::toString(tensor.scalar_type()), " and must have a floating point type");
    }
    if (!fault.empty()) return absl::InvalidArgumentError(absl::StrCat(operation.name, ": tensor ", i, " ", fault));
  }
  return absl::OkStatus();
}

std::string Describe(std::string_view name, absl::Span<const at::Tensor> tensors) {
  return absl::StrCat(tensors.size(), " tensors to ", name, ": ",
                      absl::StrJoin(tensors, ", ", [](std::string* out, const at::Tensor& tensor) {
                        absl::StrAppend(out, c10::toString(tensor.scalar_type()), "[",
                                        absl::StrJoin(tensor.sizes(), ", "), "]");
                      }));
}

// Returns OK if the main rank brings what this rank brings.
absl::Status CheckSameAsMain(TorchBackend& backend, const std::string& mine, absl::Duration timeout,
                             SteadyTime deadline) {
  constexpr size_t kHeaderBytes = 256;
  const uint64_t hash = internal::HashOfText(mine);
  std::string header(kHeaderBytes, '\0');
  std::memcpy(header.data(), &hash, sizeof(hash));
  mine.copy(header.data() + sizeof(hash), kHeaderBytes - sizeof(hash) - 1);
  std::vector<at::Tensor> tensors = {at::empty({static_cast<int64_t>(kHeaderBytes)}, at::kByte)};
  std::memcpy(tensors[0].mutable_data_ptr(), header.data(), kHeaderBytes);
  c10d::BroadcastOptions options;
  options.timeout = internal::ToTorchTimeout(timeout);
  ABSL_RETURN_IF_ERROR(backend.Await(backend.torch_backend().broadcast(tensors, options), deadline));
  const char* of_main = static_cast<const char*>(tensors[0].const_data_ptr());
  if (std::memcmp(of_main, &hash, sizeof(hash)) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("this rank brings ", mine.substr(0, kHeaderBytes),
                                                    "; the main rank brings ", of_main + sizeof(hash)));
}

// Runs `operation` on `tensors`, all of one type, by way of one buffer.
absl::Status RunFlat(TorchBackend& backend, const Operation& operation, const std::vector<at::Tensor>& tensors,
                     SteadyTime deadline) {
  if (tensors.size() == 1 && tensors[0].is_contiguous()) {
    std::vector<at::Tensor> flat = {tensors[0].detach()};
    ABSL_RETURN_IF_ERROR(backend.Await(operation.start(backend.torch_backend(), flat), deadline));
    if (operation.divisor != 1) flat[0].div_(operation.divisor);
    return absl::OkStatus();
  }
  std::vector<at::Tensor> pieces;
  for (const at::Tensor& tensor : tensors) pieces.push_back(tensor.reshape({-1}));
  std::vector<at::Tensor> flat = {at::cat(pieces)};
  ABSL_RETURN_IF_ERROR(backend.Await(operation.start(backend.torch_backend(), flat), deadline));
  if (operation.divisor != 1) flat[0].div_(operation.divisor);
  int64_t begin = 0;
  for (const at::Tensor& tensor : tensors) {
    tensor.copy_(flat[0].narrow(0, begin, tensor.numel()).view(tensor.sizes()));
    begin += tensor.numel();
  }
  return absl::OkStatus();
}

// The tensors that have elements, together by type, in an order that depends on nothing else.
std::vector<std::vector<at::Tensor>> GroupByType(absl::Span<const at::Tensor> tensors) {
  std::vector<std::vector<at::Tensor>> groups;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() == 0) continue;
    auto group = std::find_if(groups.begin(), groups.end(), [&](const std::vector<at::Tensor>& candidate) {
      return candidate[0].scalar_type() == tensor.scalar_type();
    });
    if (group == groups.end()) group = groups.emplace(groups.end());
    group->push_back(tensor);
  }
  return groups;
}

absl::Status RunCollective(ProcessGroup& group, const Operation& operation, absl::Span<const at::Tensor> tensors) {
  if (group.world_size() == 1) return absl::OkStatus();
  auto* backend = dynamic_cast<TorchBackend*>(group.backend());
  if (backend == nullptr) {
    return absl::UnimplementedError(
        absl::StrCat(operation.name, ": a group with backend ", group.backend_name(), " carries no tensors"));
  }
  return backend->Run(operation.name, group.timeout(), [&](SteadyTime deadline) -> absl::Status {
    const at::NoGradGuard no_grad;
    ABSL_RETURN_IF_ERROR(CheckTensors(operation, tensors, backend->device()));
    if (backend->device().is_cpu()) {
      ABSL_RETURN_IF_ERROR(CheckSameAsMain(*backend, Describe(operation.name, tensors), group.timeout(), deadline));
    }
    for (const std::vector<at::Tensor>& same_type : GroupByType(tensors)) {
      ABSL_RETURN_IF_ERROR(RunFlat(*backend, operation, same_type, deadline));
    }
    return absl::OkStatus();
  });
}

Operation AllReduce(std::string_view name, int divisor, absl::Duration timeout) {
  return {.name = name, .divisor = divisor, .start = [timeout](c10d::Backend& torch, std::vector<at::Tensor>& flat) {
            c10d::AllreduceOptions options;
            options.timeout = internal::ToTorchTimeout(timeout);
            return torch.allreduce(flat, options);
          }};
}

}  // namespace

c10::Device TensorDevice(ProcessGroup& group) {
  const auto* backend = dynamic_cast<TorchBackend*>(group.backend());
  return backend == nullptr ? c10::Device(c10::kCPU) : backend->device();
}

absl::Status AllReduceSum(ProcessGroup& group, absl::Span<const at::Tensor> tensors) {
  return RunCollective(group, AllReduce("AllReduceSum", 1, group.timeout()), tensors);
}

absl::Status AllReduceMean(ProcessGroup& group, absl::Span<const at::Tensor> tensors) {
  return RunCollective(group, AllReduce("AllReduceMean", group.world_size(), group.timeout()), tensors);
}

absl::Status BroadcastTensors(ProcessGroup& group, absl::Span<const at::Tensor> tensors) {
  const Operation operation = {
      .name = "BroadcastTensors",
      .start = [timeout = group.timeout()](c10d::Backend& torch, std::vector<at::Tensor>& flat) {
        c10d::BroadcastOptions options;
        options.timeout = internal::ToTorchTimeout(timeout);
        return torch.broadcast(flat, options);
      }};
  return RunCollective(group, operation, tensors);
}

}  // namespace cohort
