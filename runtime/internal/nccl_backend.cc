// What ProcessGroupNCCL does not do by itself, and how it is made to:
//
// 1. Its watchdog ends the process when an operation takes longer than its timeout, and a monitor ends it when the
//    watchdog stands still. Both are told not to, by the only means there is: environment variables, unless the user
//    has set them. An operation that takes too long is this file's to find out, and is returned as a Status.
// 2. Its Work::wait returns before the operation is over, and does not hear that a rank has died. So the operation is
//    asked, again and again, until it is over or the group is poisoned. Then its communicators are aborted, which frees
//    what waits on the GPU.
// 3. It takes the device of an operation without tensors from wherever it finds one. Ours is bound to its device from
//    the start, and connected before it is handed out, in a thread that can be left behind. That thread is on the device
//    before it does anything else: a thread begins on device 0, where this rank is to have no context unless it is its own.
// 4. It wants a c10d::Store, for the identity that NCCL's connections begin with.

#include "cohort/runtime/internal/nccl_backend.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ATen/cuda/CUDAContextLight.h"
#include "absl/base/nullability.h"
#include "absl/log/absl_log.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "c10/cuda/CUDAFunctions.h"
#include "c10/cuda/CUDAGuard.h"
#include "cohort/runtime/internal/backend.h"
#include "cohort/runtime/internal/control_plane.h"
#include "cohort/runtime/internal/exception_status.h"
#include "cohort/runtime/internal/job_store.h"
#include "cohort/runtime/internal/socket.h"
#include "cohort/runtime/internal/steady_time.h"
#include "cohort/runtime/internal/torch_backend.h"
#include "cohort/runtime/internal/torch_duration.h"
#include "cohort/runtime/rank_info.h"
#include "cohort/runtime/torch_status.h"
#include "torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp"

namespace cohort::internal {
namespace {

// Between two questions whether an operation is over. The first ones come without a pause: most are over soon.
constexpr absl::Duration kNoPauseFor = absl::Microseconds(200);
constexpr absl::Duration kPause = absl::Microseconds(100);

using NcclPtr = c10::intrusive_ptr<c10d::ProcessGroupNCCL>;

// See 1 above. 2 is CleanUpOnly: abort the communicators and leave the process alone.
void KeepWatchdogFromEndingTheProcess() {
  setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "2", /*overwrite=*/0);
  setenv("TORCH_NCCL_ENABLE_MONITORING", "0", /*overwrite=*/0);
}

// Rank 0 serves a store at a port of the kernel's choice and tells the others which.
absl::StatusOr<std::unique_ptr<JobStore>> ShareStore(const RankInfo& info, const NcclOptions& options,
                                                     ControlPlane& control) {
  Arrival arrival = {
      .operation = "InitProcessGroup (nccl)", .delivery = Delivery::kMainToAll, .timeout = options.connect_timeout};
  std::unique_ptr<JobStore> store;
  if (info.rank == 0) {
    absl::StatusOr<Listener> listener = ListenAt(options.local_host);
    arrival.status = listener.status();
    if (listener.ok()) {
      arrival.payload = absl::StrCat(options.local_host, " ", listener->port);
      absl::StatusOr<std::unique_ptr<JobStore>> served =
          JobStore::Serve(options.local_host, *std::move(listener), options.prefix, options.connect_timeout);
      arrival.status = served.status();
      if (served.ok()) store = *std::move(served);
    }
  }
  ABSL_ASSIGN_OR_RETURN(const std::vector<std::string> payloads, control.Meet(std::move(arrival)));
  if (info.rank == 0) return store;
  const std::pair<std::string, std::string> place = absl::StrSplit(payloads[0], absl::MaxSplits(' ', 1));
  int port = 0;
  if (!absl::SimpleAtoi(place.second, &port))
    return absl::InternalError(absl::StrCat("no place of a store: ", payloads[0]));
  return JobStore::Connect(place.first, port, options.prefix, options.connect_timeout);
}

class NcclBackend final : public TorchBackend {
 public:
  NcclBackend(std::unique_ptr<ControlPlane> control, int device)
      : TorchBackend(std::move(control)), device_(c10::kCUDA, static_cast<c10::DeviceIndex>(device)) {}

  ~NcclBackend() override {
    if (!nccl_.defined()) return;
    const absl::Status ended = InvokeTorch([this] {
      if (control().first_error().ok()) {
        nccl_->shutdown();
      } else {
        nccl_->abort();
      }
    });
    if (!ended.ok()) ABSL_LOG(WARNING) << "leaving the nccl group: " << ended;
  }

  absl::Status Connect(const RankInfo& info, const NcclOptions& options, std::unique_ptr<JobStore> store) {
    if (store == nullptr) {
      ABSL_ASSIGN_OR_RETURN(store, ShareStore(info, options, control()));
    }
    KeepWatchdogFromEndingTheProcess();
    return Run("InitProcessGroup (nccl)", options.connect_timeout, [&](SteadyTime deadline) -> absl::Status {
      auto made = std::make_shared<NcclPtr>();
      ABSL_RETURN_IF_ERROR(CallInThread(
          [made, info, options, device = device_, torch_store = store->torch_store()] {
            const c10::cuda::CUDAGuard guard(device);
            auto torch_options = c10d::ProcessGroupNCCL::Options::create();
            torch_options->timeout = ToTorchTimeout(options.timeout);
            *made = c10::make_intrusive<c10d::ProcessGroupNCCL>(torch_store, info.rank, info.world_size,
                                                                std::move(torch_options));
            (*made)->setBoundDeviceId(device);
            (*made)->eagerConnectSingleDevice(device);
          },
          deadline));
      nccl_ = std::move(*made);
      return absl::OkStatus();
    });
  }

  std::string_view name() const override { return "nccl"; }

  c10::Device device() const override { return device_; }

  absl::Status Barrier(absl::Duration timeout) override {
    return Run("Barrier", timeout, [&](SteadyTime deadline) {
      const c10::cuda::CUDAGuard guard(device_);
      c10d::BarrierOptions options;
      options.device_ids = {device_.index()};
      options.device = device_;
      options.timeout = ToTorchTimeout(timeout);
      return Await(nccl_->barrier(options), deadline);
    });
  }

  c10d::Backend& torch_backend() override { return *nccl_; }

  absl::Status Await(const c10::intrusive_ptr<c10d::Work>& work, SteadyTime deadline) override {
    operation_wait()->Begin();
    const SteadyTime start = SteadyNow();
    while (!work->isCompleted()) {
      const SteadyTime now = SteadyNow();
      const SteadyTime next = Between(start, now) < kNoPauseFor ? now : After(now, kPause);
      // Nobody ends this wait but the poison.
      const absl::Status status = operation_wait()->Wait(std::min(next, deadline));
      if (absl::IsAborted(status) || SteadyNow() >= deadline) return status;
    }
    if (const std::exception_ptr error = work->exception(); error != nullptr) {
      return StatusFromException(error, SteadyNow() >= deadline);
    }
    work->synchronize();  // for the caller's stream
    return absl::OkStatus();
  }

 private:
  void BreakOff() override {
    if (!nccl_.defined()) return;
    const absl::Status aborted = InvokeTorch([this] { nccl_->abort(); });
    if (!aborted.ok()) ABSL_LOG(WARNING) << "breaking off the nccl group: " << aborted;
  }

  const c10::Device device_;
  NcclPtr nccl_;  // set once connected
};

}  // namespace

bool HasNccl() { return true; }

std::vector<std::string> VisibleCudaDevices() {
  // Unlike c10::cuda::device_count, this keeps quiet where there is no driver.
  int num_devices = 0;
  if (c10::cuda::GetDeviceCount(&num_devices) != cudaSuccess) return {};
  const absl::StatusOr<std::vector<std::string>> devices = InvokeTorch([num_devices] {
    std::vector<std::string> uuids;
    for (int i = 0; i < num_devices; ++i) {
      const cudaUUID_t& uuid = at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(i))->uuid;
      uuids.push_back(absl::StrCat("GPU-", absl::BytesToHexString(std::string_view(uuid.bytes, sizeof(uuid.bytes)))));
    }
    return uuids;
  });
  return devices.ok() ? *devices : std::vector<std::string>();
}

absl::StatusOr<std::unique_ptr<TorchBackend>> ConnectNccl(const RankInfo& info, NcclOptions options,
                                                          absl_nonnull std::unique_ptr<ControlPlane> control,
                                                          absl_nullable std::unique_ptr<JobStore> store) {
  auto backend = std::make_unique<NcclBackend>(std::move(control), options.device);
  ABSL_RETURN_IF_ERROR(backend->Connect(info, options, std::move(store)));
  return backend;
}

}  // namespace cohort::internal
