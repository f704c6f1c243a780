// A program of a repository that imports cohort: every rank asks for one save, and every rank reads it.
//
// usage: save PATH

#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cohort/checkpoint/main_only_saver.h"
#include "cohort/runtime/init_process_group.h"

int main(int argc, char** argv) {
  if (argc != 2) return std::cerr << "usage: save PATH\n", 2;
  absl::StatusOr<std::unique_ptr<cohort::ProcessGroup>> group = cohort::InitProcessGroup();
  if (!group.ok()) return std::cerr << group.status().message() << "\n", 1;

  const std::string payload = "saved by an importer\n";
  cohort::MainOnlySaver saver(group->get());
  absl::StatusOr<cohort::SaveReport> report =
      saver.Save(argv[1], [&](cohort::WritableFile& file) { return file.Append(payload); });
  if (!report.ok()) return std::cerr << report.status().message() << "\n", 1;

  std::ifstream file(report->path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (text != payload) return std::cerr << report->path << " holds '" << text << "'\n", 1;
  std::cout << "rank " << (*group)->rank() << " of " << (*group)->world_size() << " reads " << report->path
            << std::endl;
  return (*group)->Shutdown().ok() ? 0 : 1;
}
