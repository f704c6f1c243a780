// The program that makes a data set in a file of a CSV file: `//trainers/data:write_dataset_file`. See its --help.

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cohort/checkpoint/internal/quoted.h"
#include "cohort/checkpoint/main_only_saver.h"
#include "cohort/checkpoint/writable_file.h"
#include "cohort/runtime/internal/standard_streams.h"
#include "cohort/runtime/process_group.h"
#include "cohort/trainers/data/csv_dataset.h"
#include "cohort/trainers/data/dataset.h"
#include "cohort/trainers/data/dataset_file.h"
#include "cohort/trainers/data/dataset_rows.h"
#include "cohort/trainers/data/flags_help.h"
#include "cohort/trainers/data/row_source.h"

ABSL_FLAG(std::vector<std::string>, target, {}, "Columns to predict, separated by commas; default: the last column");
ABSL_FLAG(bool, classes, false, "The target is a class, a whole number from 0 on, and is written as an int64");
ABSL_FLAG(bool, standardize, false, "Write (x - mean) / deviation of every feature, over all rows");

namespace cohort {
namespace {

constexpr std::string_view kUsage = R"(makes a safetensors file of a CSV file.

  ./bazelw run //trainers/data:write_dataset_file -- INPUT.csv OUTPUT.safetensors --target=price

OUTPUT has a tensor "features" [rows, columns] of floats and a tensor "targets", [rows, columns] of floats or, with
--classes, [rows] of int64. It is replaced as a whole or not at all, and must be another file than INPUT, a regular file,
which is read into memory.

Exit codes: 0 written; 1 not, and one line says why.)";

// Whatever their names: the output replaces what is there.
absl::Status CheckAreTwoFiles(const char* input, const char* output) {
  std::error_code error;
  if (!std::filesystem::equivalent(input, output, error)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(internal::Quoted(output), " is the input, ", internal::Quoted(input),
                                                 ", and would be replaced; the output must be another file"));
}

absl::Status Run(const std::vector<char*>& arguments) {
  if (arguments.size() != 3) {
    return absl::InvalidArgumentError(absl::StrCat("expected INPUT.csv OUTPUT.safetensors, and there are ",
                                                   arguments.size() - 1, " arguments; see --help"));
  }
  ABSL_RETURN_IF_ERROR(CheckAreTwoFiles(arguments[1], arguments[2]));
  ABSL_ASSIGN_OR_RETURN(Dataset data, ReadCsvDataset(arguments[1], absl::GetFlag(FLAGS_target)));
  data.checksum = Checksum(data);
  if (absl::GetFlag(FLAGS_standardize)) StandardizeFeatures(data);
  ABSL_ASSIGN_OR_RETURN(
      const std::unique_ptr<RowSource> rows,
      MakeDatasetRows(data, absl::GetFlag(FLAGS_classes) ? TargetKind::kClass : TargetKind::kNumbers));
  const std::unique_ptr<ProcessGroup> group = ProcessGroup::WorldOfOne();
  ABSL_ASSIGN_OR_RETURN(const SaveReport saved, MainOnlySaver(group.get()).Save(arguments[2], [&](WritableFile& file) {
    return WriteDatasetFile(*rows, file);
  }));
  std::printf("%s: %lld rows, %lld bytes\n", saved.path.c_str(), static_cast<long long>(rows->num_rows()),
              static_cast<long long>(saved.num_bytes));
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  // A limit on the size of files is then an error that names the file, and not the end of the process.
  std::signal(SIGXFSZ, SIG_IGN);
  PrintHelpIfAsked(argc, argv, kUsage);
  const std::vector<char*> arguments = absl::ParseCommandLine(argc, argv);
  // Under `bazel run` the working directory is not where the person stands who typed the paths.
  const char* const stands = std::getenv("BUILD_WORKING_DIRECTORY");
  std::error_code error;
  if (stands != nullptr) std::filesystem::current_path(stands, error);
  const absl::Status status = Run(arguments);
  if (status.ok()) return 0;
  std::fprintf(stderr, "error: %s\n", internal::Printable(status.message()).c_str());
  return 1;
}

}  // namespace
}  // namespace cohort

int main(int argc, char** argv) {
  cohort::internal::OccupyStandardStreams();
  return cohort::Main(argc, argv);
}
