// A step, on every rank, in the order of Python's DistributedDataParallel:
//
//   BeforeForward   the buckets are made anew, after the first backward; the main rank's buffers replace the others'
//   forward         the module's own
//   AfterForward    the reducer expects gradients from now on
//   Backward        each gradient that is there is put into its bucket, and each bucket that is full is sent on its way; at
//                   the end of backward all are waited for
//
// A rank that fails in its own code tells the others by Abort; a rank that hears of a failure while it waits finds out the
// cause (TorchBackend::RunUserCode).

#include "cohort/runtime/internal/data_parallel.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ATen/ATen.h"
#include "absl/base/nullability.h"
#include "absl/functional/function_ref.h"
#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "c10/core/GradMode.h"
#include "c10/util/intrusive_ptr.h"
#include "cohort/runtime/distributed_data_parallel_options.h"
#include "cohort/runtime/internal/steady_time.h"
#include "cohort/runtime/internal/torch_backend.h"
#include "cohort/runtime/internal/torch_reducer.h"
#include "cohort/runtime/internal/wrapped_parameters.h"
#include "cohort/runtime/process_group.h"
#include "cohort/runtime/torch_status.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"
#include "torch/nn/module.h"

namespace cohort::internal {
namespace {

constexpr char kName[] = "DistributedDataParallel";

// "" if there is no such compression: an enum holds any number.
std::string_view NameOf(GradientCompression compression) {
  switch (compression) {
    case GradientCompression::kNone:
      return "kNone";
    case GradientCompression::kHalf:
      return "kHalf";
    case GradientCompression::kBFloat16:
      return "kBFloat16";
  }
  return "";
}

absl::Status CheckOptions(const DistributedDataParallelOptions& options) {
  for (const auto& [name, bytes] :
       {std::pair("bucket_bytes", options.bucket_bytes), std::pair("first_bucket_bytes", options.first_bucket_bytes)}) {
    if (bytes < 1) return absl::InvalidArgumentError(absl::StrCat(name, "=", bytes, ": must be at least 1"));
  }
  if (NameOf(options.compression).empty()) {
    return absl::InvalidArgumentError(absl::StrCat("compression=", static_cast<int>(options.compression),
                                                   ": must be kNone (0), kHalf (1) or kBFloat16 (2)"));
  }
  return absl::OkStatus();
}

std::optional<c10::ScalarType> CompressedType(GradientCompression compression) {
  switch (compression) {
    case GradientCompression::kNone:
      return std::nullopt;
    case GradientCompression::kHalf:
      return at::kHalf;
    case GradientCompression::kBFloat16:
      return at::kBFloat16;
  }
  return std::nullopt;
}

// A line for each.
std::string Describe(const DistributedDataParallelOptions& options) {
  const auto flag = [](bool value) { return value ? "true" : "false"; };
  return absl::StrCat("bucket_bytes=", options.bucket_bytes, "\nfirst_bucket_bytes=", options.first_bucket_bytes,
                      "\nrebuild_buckets=", flag(options.rebuild_buckets),
                      "\nbroadcast_buffers=", flag(options.broadcast_buffers),
                      "\nfind_unused_parameters=", flag(options.find_unused_parameters),
                      "\ngradient_as_bucket_view=", flag(options.gradient_as_bucket_view),
                      "\nstatic_graph=", flag(options.static_graph), "\ncompression=", NameOf(options.compression));
}

// OK if both descriptions are the same; else the first line in which they differ.
absl::Status CompareWithMain(std::string_view mine, std::string_view of_main) {
  if (mine == of_main) return absl::OkStatus();
  const std::vector<std::string_view> here = absl::StrSplit(mine, '\n'), there = absl::StrSplit(of_main, '\n');
  for (size_t i = 0;; ++i) {
    const std::string_view a = i < here.size() ? here[i] : "no more", b = i < there.size() ? there[i] : "no more";
    if (a != b) {
      return absl::InvalidArgumentError(absl::StrCat("this rank has ", a, " where the main rank has ", b));
    }
  }
}

// All ranks have the same module and options, or all get the error of the lowest that has others.
absl::Status AgreeOnModule(ProcessGroup& group, absl::StatusOr<std::string> description) {
  const std::string mine = description.value_or("");
  ABSL_ASSIGN_OR_RETURN(const std::string of_main, group.BroadcastBytes(kName, std::move(description)));
  return group.Agree(absl::StrCat(kName, " of the same module"), CompareWithMain(mine, of_main));
}

std::string Shown(absl::Span<const std::string> names) {
  constexpr size_t kMost = 10;
  const std::string first = absl::StrJoin(names.first(std::min(names.size(), kMost)), ", ");
  return names.size() <= kMost ? first : absl::StrCat(first, " and ", names.size() - kMost, " more");
}

// LibTorch would say so too, as an error of its own.
absl::Status CheckLoss(const at::Tensor& loss) {
  std::string fault;
  if (!loss.defined()) {
    fault = "is undefined";
  } else if (loss.numel() != 1) {
    fault = absl::StrCat("has sizes [", absl::StrJoin(loss.sizes(), ", "), "]");
  } else if (!loss.requires_grad()) {
    fault = "depends on nothing that needs a gradient";
  } else if (!loss.is_floating_point()) {
    fault = absl::StrCat("is of type ", c10::toString(loss.scalar_type()));
  }
  if (fault.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the loss ", fault, "; it must be one real number, for example a mean(), that depends on parameters"));
}

TorchBackend* absl_nullable TorchBackendOf(ProcessGroup* absl_nullable group) {
  return group == nullptr ? nullptr : dynamic_cast<TorchBackend*>(group->backend());
}

c10::intrusive_ptr<c10d::ProcessGroup> TorchGroupOf(ProcessGroup* absl_nonnull group) {
  TorchBackend* backend = TorchBackendOf(group);
  return backend == nullptr ? c10::intrusive_ptr<c10d::ProcessGroup>() : backend->torch_group();
}

}  // namespace

DataParallel::DataParallel(ProcessGroup* absl_nullable group, c10::intrusive_ptr<c10d::ProcessGroup> torch_group,
                           std::shared_ptr<torch::nn::Module> module, const DistributedDataParallelOptions& options)
    : group_(group),
      backend_(TorchBackendOf(group)),
      torch_group_(std::move(torch_group)),
      module_(std::move(module)),
      options_(options) {}

DataParallel::~DataParallel() = default;

absl::StatusOr<std::unique_ptr<DataParallel>> DataParallel::Create(ProcessGroup* absl_nonnull group,
                                                                   std::shared_ptr<torch::nn::Module> module,
                                                                   const DistributedDataParallelOptions& options) {
  if (group->world_size() > 1 && TorchBackendOf(group) == nullptr) {
    return absl::UnimplementedError(
        absl::StrCat(kName, ": a group with backend ", group->backend_name(), " carries no tensors"));
  }
  std::unique_ptr<DataParallel> made;
  std::string description;
  const absl::Status taken = InvokeTorch([&]() -> absl::Status {
    ABSL_RETURN_IF_ERROR(CheckOptions(options));
    made = absl::WrapUnique(new DataParallel(group, TorchGroupOf(group), std::move(module), options));
    const c10::Device device = made->backend_ == nullptr ? c10::Device(c10::kCPU) : made->backend_->device();
    ABSL_ASSIGN_OR_RETURN(made->parameters_, WrappedParameters::Take(*made->module_, device));
    description = absl::StrCat(Describe(options), "\n", WrappedParameters::Describe(*made->module_));
    return absl::OkStatus();
  });
  ABSL_RETURN_IF_ERROR(AgreeOnModule(*group, taken.ok() ? absl::StatusOr<std::string>(std::move(description)) : taken));
  if (group->world_size() > 1) {
    ABSL_RETURN_IF_ERROR(made->Connect());
  }
  return made;
}

absl::StatusOr<std::unique_ptr<DataParallel>> DataParallel::Create(c10::intrusive_ptr<c10d::ProcessGroup> group,
                                                                   std::shared_ptr<torch::nn::Module> module,
                                                                   const DistributedDataParallelOptions& options) {
  ABSL_RETURN_IF_ERROR(CheckOptions(options));
  auto made = absl::WrapUnique(new DataParallel(nullptr, std::move(group), std::move(module), options));
  ABSL_RETURN_IF_ERROR(InvokeTorch([&]() -> absl::Status {
    const std::vector<at::Tensor> parameters = made->module_->parameters();
    const c10::Device device = parameters.empty() ? c10::Device(c10::kCPU) : parameters[0].device();
    ABSL_ASSIGN_OR_RETURN(made->parameters_, WrappedParameters::Take(*made->module_, device));
    return absl::OkStatus();
  }));
  ABSL_RETURN_IF_ERROR(made->Connect());
  return made;
}

absl::Status DataParallel::Exchange(std::string_view name, absl::FunctionRef<absl::Status()> function) {
  if (backend_ == nullptr) return InvokeTorch(function);
  return backend_->RunUserCode(name, group_->timeout(), [&](SteadyTime) { return function(); });
}

absl::Status DataParallel::Connect() {
  return Exchange(kName, [&] {
    const at::NoGradGuard no_grad;
    // Of ranks that have talked about their modules this is known already; Python's ranks expect it.
    VerifyAcrossRanks(torch_group_, parameters_->reduced());
    std::vector<at::Tensor> tensors = module_->parameters();
    for (const at::Tensor& buffer : module_->buffers()) tensors.push_back(buffer);
    BroadcastFromMain(torch_group_, tensors);
    reducer_ =
        std::make_unique<TorchReducer>(torch_group_, parameters_->reduced(),
                                       ReducerOptions{.bucket_bytes = options_.bucket_bytes,
                                                      .first_bucket_bytes = options_.first_bucket_bytes,
                                                      .rebuild_buckets = options_.rebuild_buckets,
                                                      .find_unused_parameters = options_.find_unused_parameters,
                                                      .gradient_as_bucket_view = options_.gradient_as_bucket_view,
                                                      .static_graph = options_.static_graph,
                                                      .compress_to = CompressedType(options_.compression)});
    return absl::OkStatus();
  });
}

absl::Status DataParallel::Fail(std::string_view what, const absl::Status& why) {
  const absl::Status named(why.code(), absl::StrCat(kName, "::", what, ": ", why.message()));
  return group_ == nullptr ? named : group_->Abort(named);
}

absl::Status DataParallel::BeforeForward() {
  if (IsSynchronized() && c10::GradMode::is_enabled()) {
    if (is_backward_due_) {
      return Fail("Forward",
                  absl::FailedPreconditionError(
                      "the Forward before has had no Backward; under NoSync, or at::NoGradGuard, it needs none"));
    }
    const absl::Status unchanged = InvokeTorch([&] { return parameters_->CheckUnchanged(*module_); });
    if (!unchanged.ok()) return Fail("Forward", unchanged);
  }
  if (reducer_ == nullptr) return absl::OkStatus();
  return Exchange("DistributedDataParallel::Forward", [&] {
    reducer_->BeforeForward(IsSynchronized());
    if (!options_.broadcast_buffers || !sends_buffers_) return absl::OkStatus();
    const std::vector<at::Tensor> buffers = module_->buffers();
    if (const absl::Status unchanged = parameters_->CheckBuffers(buffers); !unchanged.ok()) return unchanged;
    if (buffers.empty()) return absl::OkStatus();
    const at::NoGradGuard no_grad;
    BroadcastFromMain(torch_group_, buffers);
    return absl::OkStatus();
  });
}

absl::Status DataParallel::AfterForward(std::vector<at::Tensor*> outputs, bool is_known) {
  const bool is_synchronized = IsSynchronized() && c10::GradMode::is_enabled();
  sends_buffers_ = is_synchronized;
  if (is_synchronized) is_backward_due_ = true;
  if (c10::GradMode::is_enabled()) may_be_local_ = !is_synchronized;
  if (reducer_ == nullptr) return absl::OkStatus();
  const bool looks = options_.find_unused_parameters || options_.static_graph;
  if (looks && !is_known) {
    return Fail("Forward", absl::InvalidArgumentError(
                               "with find_unused_parameters or static_graph forward must return tensors, or tuples, "
                               "optionals and containers of them, or a type with a function VisitTensors"));
  }
  const absl::Status prepared = InvokeTorch([&] {
    reducer_->AfterForward(is_synchronized, std::move(outputs));
    return absl::OkStatus();
  });
  return prepared.ok() ? prepared : Fail("Forward", prepared);
}

absl::Status DataParallel::RunBackward(const at::Tensor& loss, bool is_averaged) {
  ABSL_RETURN_IF_ERROR(CheckLoss(loss));
  // It lets go of what the graph has saved, not of the graph, which is needed to say what is missing.
  loss.backward();
  return !is_averaged || reducer_->is_finished() ? absl::OkStatus() : NotAveraged(loss);
}

absl::Status DataParallel::NotAveraged(const at::Tensor& loss) const {
  if (!reducer_->is_counted()) {
    return absl::InvalidArgumentError(
        "with static_graph the loss of the first Backward that averages must depend on what its Forward returned");
  }
  const std::vector<std::string> missing = reducer_->Unreached(loss);
  const std::string without = absl::StrCat(missing.size(), " of ", parameters_->reduced().size(),
                                           " parameters got no gradient: ", Shown(missing));
  if (options_.static_graph) {
    return absl::InvalidArgumentError(
        absl::StrCat("with static_graph every step must use the parameters that the first one used, and as often",
                     missing.empty() ? "" : "; now ", missing.empty() ? "" : without));
  }
  if (missing.empty()) return absl::InternalError("the gradients were not averaged, and every parameter had one");
  return absl::InvalidArgumentError(
      absl::StrCat(without, "; use them in the loss of every rank at every step, or set find_unused_parameters"));
}

absl::Status DataParallel::Backward(const at::Tensor& loss) {
  const bool is_due = std::exchange(is_backward_due_, false);
  if (!is_due && !may_be_local_) {
    return Fail("Backward",
                absl::FailedPreconditionError("there was no Forward, with gradients, since the last Backward"));
  }
  if (is_due && reducer_ != nullptr) {
    return Exchange("DistributedDataParallel::Backward", [&] { return RunBackward(loss, /*is_averaged=*/true); });
  }
  const absl::Status status = InvokeTorch([&] { return RunBackward(loss, /*is_averaged=*/false); });
  return status.ok() ? status : Fail("Backward", status);
}

absl::StatusOr<bool> DataParallel::EveryRankHasBatch(bool mine) {
  if (group_ == nullptr) {
    return absl::UnimplementedError("EveryRankHasBatch: a group of LibTorch's own has no control plane to ask");
  }
  // A rank that has none brings the one code that no failure has.
  const absl::Status all =
      group_->Agree("every rank has another batch", mine ? absl::OkStatus() : absl::OutOfRangeError("none"));
  if (absl::IsOutOfRange(all)) return false;
  ABSL_RETURN_IF_ERROR(all);
  return true;
}

}  // namespace cohort::internal
