// ckpt: looks at checkpoint files and runs, compares, converts and removes them. See HelpText().

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "cohort/checkpoint/state_file.h"
#include "cohort/runtime/internal/standard_streams.h"
#include "cohort/tools/ckpt/commands.h"
#include "cohort/tools/ckpt/console.h"
#include "cohort/tools/ckpt/options.h"
#include "cohort/tools/ckpt/run_commands.h"
#include "cohort/tools/ckpt/text.h"

namespace cohort::ckpt {
namespace {

int List(const Options& options) {
  const std::string& path = options.paths[0];
  if (KindOf(path) == DirectoryKind::kRun) return ListRun(path, options.policy);
  if (!options.policy.newest.has_value()) return ListDirectory(path);
  Complain(absl::StrCat(NameText(path), ": no run, so that nothing says what would be kept"));
  return kExitTrouble;
}

int Show(const std::string& path, bool as_json) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) return ShowFile(path, as_json);
  const std::string name = NameText(path);
  Complain(absl::StrCat(name, ": it is a directory; ckpt ls ", name, " shows what is in it"));
  return kExitTrouble;
}

int Verify(const std::string& path) {
  switch (KindOf(path)) {
    case DirectoryKind::kRun:
      return VerifyRun(path);
    case DirectoryKind::kCheckpoint:
      return VerifyOneCheckpoint(path);
    case DirectoryKind::kOther:
      break;
  }
  return VerifyFile(path);
}

int Run(const Options& options) {
  const std::vector<std::string>& paths = options.paths;
  switch (options.command) {
    case Command::kHelp:
      break;
    case Command::kList:
      return List(options);
    case Command::kShow:
      return Show(paths[0], options.as_json);
    case Command::kVerify: {
      int exit_code = kExitGood;
      for (const std::string& path : paths) exit_code = std::max(exit_code, Verify(path));
      return exit_code;
    }
    case Command::kLatest:
      return PrintLatest(paths[0]);
    case Command::kPrune:
      return Prune(paths[0], options.policy, options.dry_run);
    case Command::kDiff:
      return DiffFiles(paths[0], paths[1]);
    case Command::kConvert: {
      const auto format = options.target == Target::kTorch ? StateFormat::kTorch : StateFormat::kSafetensors;
      return ConvertFile(
          {.source = paths[0], .target = paths[1], .format = format, .drop_metadata = options.drop_metadata});
    }
  }
  Print(HelpText());
  return kExitGood;
}

int Main(int argc, char** argv) {
  internal::OccupyStandardStreams();
  // A reader that has seen enough must not end a conversion; Print knows what to do.
  std::signal(SIGPIPE, SIG_IGN);
  // A limit on the size of files is then an error that names the file, and not the end of the process.
  std::signal(SIGXFSZ, SIG_IGN);
  const absl::StatusOr<Options> options = ParseOptions(absl::MakeConstSpan(argv + 1, argc - 1));
  if (!options.ok()) {
    Complain(absl::StrCat(options.status().message(), " (see ckpt --help)"));
    return kExitTrouble;
  }
  // Paths mean what they mean to the person who typed `bazel run`.
  const char* const directory = std::getenv("BUILD_WORKING_DIRECTORY");
  if (directory != nullptr && chdir(directory) != 0) {
    Complain(absl::StrCat("BUILD_WORKING_DIRECTORY=", directory, ": cannot go there"));
    return kExitTrouble;
  }
  const int exit_code = Run(*options);
  const absl::Status written = OutputError();
  if (written.ok()) return exit_code;
  Complain(written.message());
  return kExitTrouble;
}

}  // namespace
}  // namespace cohort::ckpt

int main(int argc, char** argv) { return cohort::ckpt::Main(argc, argv); }
