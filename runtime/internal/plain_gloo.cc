#include "cohort/runtime/internal/plain_gloo.h"

#include "cohort/runtime/internal/torch_duration.h"
#include "torch/csrc/distributed/c10d/ProcessGroupGloo.hpp"
#include "torch/csrc/distributed/c10d/TCPStore.hpp"

namespace cohort::internal {

c10::intrusive_ptr<c10d::Backend> ConnectPlainGloo(const RankInfo& info, absl::Duration timeout) {
  c10d::TCPStoreOptions store_options;
  store_options.port = static_cast<uint16_t>(info.master_port);
  store_options.isServer = info.rank == 0;
  store_options.numWorkers = info.world_size;
  store_options.timeout = ToTorchTimeout(timeout);
  store_options.useLibUV = false;  // not every LibTorch has it
  const auto store = c10::make_intrusive<c10d::TCPStore>(info.master_addr, store_options);
  const auto options = c10d::ProcessGroupGloo::Options::create(ToTorchTimeout(timeout));
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, info.rank, info.world_size, options);
}

}  // namespace cohort::internal
