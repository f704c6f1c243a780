#include "cohort/runtime/internal/job_store.h"

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cohort/runtime/internal/socket.h"
#include "cohort/runtime/internal/torch_duration.h"
#include "cohort/runtime/torch_status.h"
#include "torch/csrc/distributed/c10d/PrefixStore.hpp"
#include "torch/csrc/distributed/c10d/TCPStore.hpp"

namespace cohort::internal {
namespace {

absl::StatusOr<std::unique_ptr<JobStore>> MakeStore(const std::string& host, c10d::TCPStoreOptions options,
                                                    std::string_view prefix, absl::Duration timeout) {
  options.waitWorkers = false;  // who comes and who does not is the control plane's to find out
  options.timeout =
      ToTorchTimeout(std::max(timeout, absl::Seconds(1)));  // counted in whole seconds, and none is "for ever"
  return InvokeTorch(timeout, [&] {
    auto store = c10::make_intrusive<c10d::TCPStore>(host, options);
    return std::make_unique<JobStore>(c10::make_intrusive<c10d::PrefixStore>(std::string(prefix), std::move(store)));
  });
}

}  // namespace

absl::StatusOr<std::unique_ptr<JobStore>> JobStore::Serve(const std::string& host, Listener listener,
                                                          std::string_view prefix, absl::Duration timeout) {
  c10d::TCPStoreOptions options;
  options.port = listener.port;
  options.isServer = true;
  options.masterListenFd = listener.fd.release();
  absl::StatusOr<std::unique_ptr<JobStore>> store = MakeStore(host, options, prefix, timeout);
  if (absl::IsInternal(store.status())) {
    // Some builds of LibTorch, Debian's for one, come without libuv, and say so before they touch the socket.
    options.useLibUV = false;
    store = MakeStore(host, options, prefix, timeout);
  }
  return store;
}

absl::StatusOr<std::unique_ptr<JobStore>> JobStore::Connect(const std::string& host, int port, std::string_view prefix,
                                                            absl::Duration timeout) {
  c10d::TCPStoreOptions options;
  options.port = port;
  options.useLibUV = false;  // it makes no difference to a client, except that a LibTorch without libuv refuses
  return MakeStore(host, options, prefix, timeout);
}

JobStore::JobStore(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}

JobStore::~JobStore() = default;

absl::Status JobStore::SetOnce(const std::string& key, const std::string& value) {
  ABSL_ASSIGN_OR_RETURN(const std::string now_there, InvokeTorch([&] { return store_->compareSet(key, "", value); }));
  if (now_there != value) {
    return absl::AlreadyExistsError(absl::StrCat("somebody else has set \"", key, "\" in the job's store"));
  }
  // A store without libuv wakes nobody who waits for a key that compareSet makes.
  return InvokeTorch([&] { store_->set(key, value); });
}

absl::StatusOr<std::string> JobStore::Get(const std::string& key, absl::Duration timeout) {
  return InvokeTorch(timeout, [&] {
    store_->wait({key}, ToTorchTimeout(timeout));
    return store_->get_to_str(key);
  });
}

}  // namespace cohort::internal
