// What ProcessGroupGloo does not do by itself, and how it is made to:
//
// 1. Its waits do not hear that a rank has died if they are waiting for another one, or are in the middle of a large
//    message: the thread that waits would stay until the operation's timeout. So nobody waits in it: the caller waits
//    in OperationWait, which the end of the operation and the poison of the group both end.
// 2. Its worker threads still wait then. BreakOff lets them go: a receive that times out closes, in Gloo, every
//    connection of its context and fails whatever waits on them. All but an operation in the middle of a large message,
//    which Gloo forgets to tell.
// 3. Its destructor joins the worker threads, so it would block on the latter until their timeout. Then the object is
//    left behind on purpose: its threads sleep until then, or until the process ends, and touch nothing that is not
//    their own.
// 4. Its constructor connects to every rank and cannot be broken off, so it runs in a thread that is left behind in the
//    same way.
// 5. It asks the resolver for this machine's name unless it is given an address, and a machine's name need not lead
//    anywhere.
// 6. Its threads write to connections that the other end may have closed, and the signal of that, SIGPIPE, ends a process that
//    does not say otherwise. They inherit the signal mask of the thread that makes them: ours blocks it, and what the program
//    does at SIGPIPE stays the program's.
// 7. It finds the others through a c10d::Store. Ours is the control plane (exchange_store.h), which knows who has died.

#include "cohort/runtime/internal/gloo_backend.h"

// Whether LibTorch and Gloo, which may be targets of somebody else's, fit: a line here for a page of errors below.
#if !__has_include("torch/csrc/distributed/c10d/ProcessGroupGloo.hpp")
#error "this LibTorch has no c10d/ProcessGroupGloo.hpp: take one that was built with distributed and Gloo"
#elif !defined(USE_C10D_GLOO)
#error "the target given by --@cohort//third_party/libtorch must define USE_DISTRIBUTED and USE_C10D_GLOO"
#elif !__has_include("gloo/context.h")
#error "the target given by --@cohort//third_party/gloo has no gloo/context.h"
#endif
#include "torch/headeronly/version.h"
#if defined(COHORT_GLOO_TORCH_MAJOR) && \
    (TORCH_VERSION_MAJOR != COHORT_GLOO_TORCH_MAJOR || TORCH_VERSION_MINOR != COHORT_GLOO_TORCH_MINOR)
#error "@gloo is of another LibTorch: give the headers of yours by --repo_env=GLOO=DIR or --@cohort//third_party/gloo=LABEL"
#endif

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/nullability.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cohort/runtime/internal/backend.h"
#include "cohort/runtime/internal/control_plane.h"
#include "cohort/runtime/internal/exchange_store.h"
#include "cohort/runtime/internal/steady_time.h"
#include "cohort/runtime/internal/torch_backend.h"
#include "cohort/runtime/internal/torch_duration.h"
#include "cohort/runtime/rank_info.h"
#include "gloo/context.h"
#include "torch/csrc/distributed/c10d/ProcessGroupGloo.hpp"

namespace cohort::internal {
namespace {

// How long the destructor waits for threads that are done, or that BreakOff has let go.
constexpr absl::Duration kIdleGrace = absl::Milliseconds(500);

class BreakableGloo final : public c10d::ProcessGroupGloo {
 public:
  using ProcessGroupGloo::ProcessGroupGloo;

  void BreakOff() {
    for (const std::shared_ptr<gloo::Context>& context : contexts_) {
      try {
        context->createUnboundBuffer(nullptr, 0)->waitRecv(nullptr, std::chrono::milliseconds(1));
      } catch (const std::exception&) {
        // It timed out: that was the purpose.
      }
    }
  }

  // Returns whether the worker threads have nothing to do, and waits a moment for it.
  bool AwaitIdle() {
    const SteadyTime deadline = After(SteadyNow(), kIdleGrace);
    while (!IsIdle()) {
      if (SteadyNow() >= deadline) return false;
      absl::SleepFor(absl::Milliseconds(1));
    }
    return true;
  }

 private:
  bool IsIdle() {
    const std::lock_guard<std::mutex> lock(workMutex_);
    return workQueue_.empty() && std::all_of(workInProgress_.begin(), workInProgress_.end(),
                                             [](const auto& work) { return !work.defined(); });
  }
};

using GlooPtr = c10::intrusive_ptr<BreakableGloo>;

// Called in a thread that ends with it: see 6 above.
GlooPtr Make(const RankInfo& info, const GlooOptions& options, const c10::intrusive_ptr<ExchangeStore>& store) {
  sigset_t broken_pipe;
  sigemptyset(&broken_pipe);
  sigaddset(&broken_pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &broken_pipe, nullptr);
  auto torch_options = c10d::ProcessGroupGloo::Options::create(ToTorchTimeout(options.connect_timeout));
  for (const std::string& host : options.hosts) {
    torch_options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(host));
  }
  auto gloo = c10::make_intrusive<BreakableGloo>(store, info.rank, info.world_size, std::move(torch_options));
  gloo->setTimeout(ToTorchTimeout(options.timeout));
  return gloo;
}

class GlooBackend final : public TorchBackend {
 public:
  explicit GlooBackend(std::unique_ptr<ControlPlane> control) : TorchBackend(std::move(control)) {}

  ~GlooBackend() override {
    if (!gloo_.defined() || gloo_->AwaitIdle()) return;
    gloo_->BreakOff();
    if (!gloo_->AwaitIdle()) (void)gloo_.release();  // see 3 above
  }

  absl::Status Connect(const RankInfo& info, const GlooOptions& options) {
    const SteadyTime start = SteadyNow();
    const SteadyTime deadline = After(start, options.connect_timeout);
    auto store = c10::make_intrusive<ExchangeStore>([this, deadline](std::string mine) {
      return control().Meet({.operation = "InitProcessGroup (gloo)",
                             .delivery = Delivery::kAllToAll,
                             .payload = std::move(mine),
                             .timeout = Between(SteadyNow(), deadline)});
    });
    auto made = std::make_shared<GlooPtr>();
    const absl::Status status =
        CallInThread([made, store, info, options] { *made = Make(info, options, store); }, deadline);
    store->Close();  // the thread reaches nothing of ours any more
    if (!store->status().ok()) return store->status();
    if (!status.ok()) return Explain("InitProcessGroup (gloo)", status, Between(start, SteadyNow()));
    gloo_ = std::move(*made);
    return absl::OkStatus();
  }

  std::string_view name() const override { return "gloo"; }

  c10::Device device() const override { return c10::Device(c10::kCPU); }

  absl::Status Barrier(absl::Duration timeout) override {
    return Run("Barrier", timeout, [&](SteadyTime deadline) {
      c10d::BarrierOptions options;
      options.timeout = ToTorchTimeout(timeout);
      return Await(gloo_->barrier(options), deadline);
    });
  }

  c10d::Backend& torch_backend() override { return *gloo_; }

  absl::Status Await(const c10::intrusive_ptr<c10d::Work>& work, SteadyTime deadline) override {
    const uint64_t number = operation_wait()->Begin();
    work->getFuture()->addCallback([number, wait = operation_wait()](c10::ivalue::Future& future) {
      wait->End(number, future.hasError() ? future.exception_ptr() : nullptr);
    });
    return operation_wait()->Wait(deadline);
  }

 private:
  void BreakOff() override { gloo_->BreakOff(); }

  GlooPtr gloo_;  // set once connected
};

}  // namespace

absl::StatusOr<std::unique_ptr<TorchBackend>> ConnectGloo(const RankInfo& info, const GlooOptions& options,
                                                          absl_nonnull std::unique_ptr<ControlPlane> control) {
  auto backend = std::make_unique<GlooBackend>(std::move(control));
  ABSL_RETURN_IF_ERROR(backend->Connect(info, options));
  return backend;
}

}  // namespace cohort::internal
