// LibTorch's interfaces that every build has; only a build with CUDA has something behind them.

#include "cohort/runtime/testing/gpus.h"

#include <filesystem>
#include <string>
#include <vector>

#include "ATen/detail/CUDAHooksInterface.h"
#include "c10/core/Device.h"
#include "c10/core/impl/VirtualGuardImpl.h"
#include "cohort/runtime/internal/nccl_backend.h"

namespace cohort::testing {

int NumGpus() {
  if (!internal::HasNccl()) return 0;
  int num_gpus = 0;
  while (std::filesystem::exists("/dev/nvidia" + std::to_string(num_gpus))) ++num_gpus;
  return num_gpus;
}

std::vector<int> DevicesWithContext() {
  const at::CUDAHooksInterface& cuda = at::detail::getCUDAHooks();
  std::vector<int> devices;
  for (int device = 0; device < cuda.getNumGPUs(); ++device) {
    if (cuda.hasPrimaryContext(static_cast<c10::DeviceIndex>(device))) devices.push_back(device);
  }
  return devices;
}

int CurrentDevice() { return c10::impl::VirtualGuardImpl(c10::kCUDA).getDevice().index(); }

void SetCurrentDevice(int device) {
  c10::impl::VirtualGuardImpl(c10::kCUDA).setDevice(c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device)));
}

}  // namespace cohort::testing
