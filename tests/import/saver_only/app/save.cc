// A program that saves through cohort and links no LibTorch: alone, or as the only rank of a launcher.
//
// usage: save PATH

#include <iostream>
#include <memory>

#include "absl/status/statusor.h"
#include "cohort/checkpoint/main_only_saver.h"
#include "cohort/runtime/process_group.h"

int main(int argc, char** argv) {
  if (argc != 2) return std::cerr << "usage: save PATH\n", 2;
  absl::StatusOr<std::unique_ptr<cohort::ProcessGroup>> group = cohort::ProcessGroup::WorldOfOneFromEnvironment();
  if (!group.ok()) return std::cerr << group.status().message() << "\n", 1;

  cohort::MainOnlySaver saver(group->get());
  absl::StatusOr<cohort::SaveReport> report =
      saver.Save(argv[1], [](cohort::WritableFile& file) { return file.Append("saved by an importer\n"); });
  if (!report.ok()) return std::cerr << report.status().message() << "\n", 1;
  return 0;
}
