// Any bytes as a .pt file: as they are, and as the pickle of an archive that is right, which they would hardly ever make
// by chance. An error is as good as a state; a crash, a hang or memory without end is not.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/log/absl_check.h"
#include "absl/status/statusor.h"
#include "cohort/checkpoint/internal/dtype.h"
#include "cohort/checkpoint/internal/pickle_reader.h"
#include "cohort/checkpoint/internal/random_access_file.h"
#include "cohort/checkpoint/internal/state_tree.h"
#include "cohort/checkpoint/internal/torch_reader.h"

namespace {

using cohort::internal::InfoOf;
using cohort::internal::StoredBytes;
using cohort::internal::StoredState;
using cohort::internal::StoredTensor;

constexpr int64_t kMemory = int64_t{1} << 20;

// What the reader promises of tensors, computed in another way.
void CheckTensors(const StoredState& state) {
  for (const StoredTensor& tensor : state.tensors) {
    ABSL_CHECK_LT(tensor.storage, state.storages.size());
    ABSL_CHECK_EQ(tensor.sizes.size(), tensor.strides.size());
    __int128 last = tensor.offset;
    bool is_empty = false;
    for (size_t i = 0; i < tensor.sizes.size(); ++i) {
      ABSL_CHECK(tensor.sizes[i] >= 0 && tensor.strides[i] >= 0);
      is_empty |= tensor.sizes[i] == 0;
      last += static_cast<__int128>(tensor.sizes[i] - 1) * tensor.strides[i];
    }
    const __int128 end = is_empty ? static_cast<__int128>(tensor.offset) : last + 1;
    ABSL_CHECK(end * InfoOf(tensor.dtype).num_bytes <= state.storages[tensor.storage].num_bytes);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<StoredState> archive = cohort::internal::ReadTorchState(*cohort::internal::MemoryAsFile(bytes));
  if (archive.ok()) {
    CheckTensors(*archive);
    for (const StoredBytes& storage : archive->storages) {
      ABSL_CHECK(storage.begin >= 0 && storage.num_bytes >= 0 &&
                 storage.begin <= static_cast<int64_t>(size) - storage.num_bytes);
    }
  }
  const absl::StatusOr<StoredState> pickle = cohort::internal::ReadPickle(
      bytes, kMemory, [](std::string_view, int64_t num_bytes) -> absl::StatusOr<StoredBytes> {
        return StoredBytes{.num_bytes = num_bytes};
      });
  if (pickle.ok()) CheckTensors(*pickle);
  return 0;
}
