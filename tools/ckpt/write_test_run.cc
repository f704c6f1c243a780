// Writes the run that runs_test looks at into the directory that is its one argument.

#include <cmath>
#include <filesystem>
#include <string>

#include "absl/log/absl_check.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cohort/checkpoint/checkpoint_info.h"
#include "cohort/checkpoint/testing/write_checkpoint.h"

namespace {

// A run that went back, with a checkpoint of another run and some that are none. What is hostile is in names and
// metrics.
void WriteRun(const std::string& run) {
  ABSL_CHECK(std::filesystem::create_directory(run));
  cohort::testing::WriteRunFile(run, "mine");
  const auto write = [&](cohort::CheckpointInfo info, absl::Duration age) {
    info.saved = absl::Now() - age;
    info.world_size = 2;
    const std::string state = absl::StrCat("state of step ", info.step);
    return cohort::testing::WriteCheckpoint(run, info, {{"a file", "12345678"}, {"state.pt", state}});
  };
  // Ages that are still the same when they are looked at.
  write({.step = 900, .sequence = 1, .run_id = "mine", .metrics = {{"loss", 0.5}}, .pinned = true}, absl::Hours(132));
  write({.step = 1000, .sequence = 2, .run_id = "mine", .metrics = {{"loss", 0.25}, {"turn\xE2\x80\xAEme", 7}}},
        absl::Hours(60));
  write({.step = 1200, .sequence = 3, .run_id = "mine", .metrics = {{"loss", std::nan("")}}}, absl::Minutes(690));
  write({.step = 1100, .sequence = 4, .run_id = "mine"}, absl::Minutes(210));
  write({.step = 1300, .sequence = 9, .run_id = "theirs"}, absl::Minutes(210));
  std::filesystem::create_directory_symlink("step_00001100", run + "/latest");
  std::filesystem::create_directory(run + "/step_00001400");
  std::filesystem::create_directory(run + "/step_\x1b[31m");
}

}  // namespace

int main(int argc, char** argv) {
  ABSL_CHECK_EQ(argc, 2);
  WriteRun(absl::StrCat(argv[1], "/training"));
  return 0;
}
