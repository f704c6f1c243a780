// save_once DIRECTORY STEP VALUE MIB: saves a state of MIB MiB, VALUE everywhere, through CheckpointManager, which keeps the
// newest checkpoint. Writes "x" to stdout when it begins.

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "ATen/ops/full.h"
#include "absl/log/absl_check.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "cohort/checkpoint/checkpoint_manager.h"
#include "cohort/checkpoint/torch_file.h"
#include "cohort/checkpoint/writable_file.h"
#include "cohort/runtime/process_group.h"

namespace cohort {
namespace {

int64_t Number(const char* text) {
  int64_t number = 0;
  ABSL_CHECK(absl::SimpleAtoi(text, &number)) << text;
  return number;
}

void Run(const std::string& directory, int64_t step, int64_t value, int64_t mib) {
  NamedTensors state;
  for (int i = 0; i < 100; ++i) {
    state.emplace_back(absl::StrCat("layer", i, ".weight"), at::full({(mib << 20) / 400}, value, at::kFloat));
  }
  ABSL_CHECK_EQ(write(STDOUT_FILENO, "x", 1), 1);
  const std::unique_ptr<ProcessGroup> group = ProcessGroup::WorldOfOne();
  const absl::StatusOr<std::unique_ptr<CheckpointManager>> manager =
      CheckpointManager::Open(group.get(), {.directory = directory, .retention = {.newest = 1}});
  ABSL_CHECK_OK(manager.status());
  ABSL_CHECK_OK((*manager)
                    ->Save({.step = step}, "state.pt", [&](WritableFile& file) { return WriteTorchFile(state, file); })
                    .status());
}

}  // namespace
}  // namespace cohort

int main(int argc, char** argv) {
  ABSL_CHECK_EQ(argc, 5);
  cohort::Run(argv[1], cohort::Number(argv[2]), cohort::Number(argv[3]), cohort::Number(argv[4]));
}
