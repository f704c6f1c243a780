// The C++ side of formats_large_test.py.
//
// usage: formats_large write PATH     a tensor of 2 GiB + 17 bytes and one of 4 GiB + 17, durably; PATH says the format
//        formats_large read PATH      reads them back, in all ways that there are
//
// Prints the most memory that it had, in bytes.

#include <cstdint>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ATen/Functions.h"
#include "ATen/core/Tensor.h"
#include "ATen/core/ivalue.h"
#include "ATen/core/jit_type.h"
#include "absl/log/absl_check.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "cohort/checkpoint/main_only_saver.h"
#include "cohort/checkpoint/safetensors_file.h"
#include "cohort/checkpoint/state_file.h"
#include "cohort/checkpoint/torch_file.h"
#include "cohort/checkpoint/writable_file.h"
#include "cohort/runtime/runtime.h"

namespace cohort {
namespace {

const std::vector<std::pair<std::string, int64_t>>& Sizes() {
  static const auto* sizes =
      new std::vector<std::pair<std::string, int64_t>>{{"2 GiB", (1LL << 31) + 17}, {"4 GiB", (1LL << 32) + 17}};
  return *sizes;
}

// Where the tensors are not zero: at their ends, in the middle, and where 31 and 32 bits end. Python has the same.
std::vector<int64_t> Marks(int64_t size) {
  std::vector<int64_t> marks = {0, size / 2, size - 1, (1LL << 31) - 1, 1LL << 31};
  if (size > 1LL << 32) marks.insert(marks.end(), {(1LL << 32) - 1, 1LL << 32});
  return marks;
}

void Write(const std::string& path) {
  c10::impl::GenericDict state(c10::StringType::get(), c10::AnyType::get());
  for (const auto& [name, size] : Sizes()) {
    const at::Tensor tensor = at::zeros({size}, at::kByte);
    auto* bytes = tensor.mutable_data_ptr<uint8_t>();
    for (const int64_t mark : Marks(size)) bytes[mark] = static_cast<uint8_t>(1 + mark % 251);
    state.insert(name, tensor);
  }
  auto group = InitProcessGroup();
  ABSL_CHECK_OK(group);
  MainOnlySaver saver(group->get());
  ABSL_CHECK_OK(saver.Save(path, [&](WritableFile& file) {
    return absl::EndsWith(path, ".pt") ? WriteTorchFile(state, file) : WriteSafetensorsFile(state, {}, file);
  }));
  ABSL_CHECK_OK((*group)->Shutdown());
}

void Check(const at::Tensor& tensor, int64_t size) {
  ABSL_CHECK_EQ(tensor.numel(), size);
  const auto* bytes = tensor.const_data_ptr<uint8_t>();
  for (const int64_t mark : Marks(size)) ABSL_CHECK_EQ(bytes[mark], 1 + mark % 251) << mark;
  ABSL_CHECK_EQ(bytes[1], 0);
}

void Read(const std::string& path) {
  const absl::StatusOr<StateFile> file = StateFile::Open(path);
  ABSL_CHECK_OK(file);
  for (const ReadOptions options : {ReadOptions{.map = true}, ReadOptions{.verify = false}, ReadOptions{}}) {
    for (const auto& [name, size] : Sizes()) {
      const absl::StatusOr<at::Tensor> tensor = file->ReadTensor(name, options);
      ABSL_CHECK_OK(tensor);
      Check(*tensor, size);
    }
  }
  const absl::StatusOr<c10::IValue> all = file->Read();
  ABSL_CHECK_OK(all);
  for (const auto& [name, size] : Sizes()) Check(all->toGenericDict().at(name).toTensor(), size);
}

}  // namespace
}  // namespace cohort

int main(int argc, char** argv) {
  ABSL_CHECK_EQ(argc, 3) << "see the top of formats_large.cc";
  if (std::string(argv[1]) == "write") {
    cohort::Write(argv[2]);
  } else {
    cohort::Read(argv[2]);
  }
  // Not getrusage's ru_maxrss, which the parent's memory counts in.
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    int64_t kilobytes;
    std::string_view rest = line;
    if (!absl::ConsumePrefix(&rest, "VmHWM:") || !absl::ConsumeSuffix(&rest, " kB")) continue;
    ABSL_CHECK(absl::SimpleAtoi(rest, &kilobytes)) << line;
    std::cout << kilobytes * 1024 << "\n";
  }
}
