// Any bytes as a safetensors file: as they are, as the header of a file without data, and as the JSON of a nested
// state, which they would hardly ever make behind a checksum. An error is as good as a state; a crash, a hang, memory
// without end, or a state that does not read back as the same, is not.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/log/absl_check.h"
#include "absl/status/statusor.h"
#include "cohort/checkpoint/internal/dtype.h"
#include "cohort/checkpoint/internal/memory_budget.h"
#include "cohort/checkpoint/internal/random_access_file.h"
#include "cohort/checkpoint/internal/random_state_tree.h"
#include "cohort/checkpoint/internal/safetensors_reader.h"
#include "cohort/checkpoint/internal/state_json.h"
#include "cohort/checkpoint/internal/state_tree.h"

namespace {

using cohort::internal::InfoOf;
using cohort::internal::MemoryAsFile;
using cohort::internal::MemoryBudget;
using cohort::internal::NamedTensor;
using cohort::internal::SafetensorsFile;
using cohort::internal::StateTree;
using cohort::internal::StoredBytes;
using cohort::internal::StoredTensor;

void ReadAsFile(std::string_view bytes) {
  const absl::StatusOr<SafetensorsFile> file = cohort::internal::ReadSafetensors(*MemoryAsFile(bytes));
  if (!file.ok()) return;
  ABSL_CHECK_EQ(file->state.tensors.size(), file->state.storages.size());
  for (const StoredTensor& tensor : file->state.tensors) {
    const StoredBytes& storage = file->state.storages.at(tensor.storage);
    ABSL_CHECK(storage.begin >= 8 && storage.num_bytes >= 0 &&
               storage.begin <= static_cast<int64_t>(bytes.size()) - storage.num_bytes);
    __int128 num_bytes = InfoOf(tensor.dtype).num_bytes;
    for (const int64_t size : tensor.sizes) num_bytes *= size;
    ABSL_CHECK(num_bytes == storage.num_bytes);
  }
}

void ReadAsState(std::string_view json) {
  const std::vector<std::string> names = {"a"};
  MemoryBudget budget(0);
  const absl::StatusOr<StateTree> tree = cohort::internal::StateFromJson(json, names, budget);
  if (!tree.ok()) return;
  const absl::StatusOr<std::vector<NamedTensor>> named = cohort::internal::NameTensors(*tree);
  if (!named.ok()) return;  // a place that would be called "__metadata__"
  MemoryBudget again(0);
  const absl::StatusOr<StateTree> reread = cohort::internal::StateFromJson(
      cohort::internal::StateToJson(*tree, *named), std::vector<std::string>{named->at(0).name}, again);
  ABSL_CHECK(reread.ok() && cohort::internal::SameBits(*tree, *reread));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  ReadAsFile(bytes);
  std::string file;
  for (int i = 0; i < 8; ++i) file += static_cast<char>(static_cast<uint64_t>(size) >> (8 * i));
  ReadAsFile(file.append(bytes));
  ReadAsState(bytes);
  return 0;
}
