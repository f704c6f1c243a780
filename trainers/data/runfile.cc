// A program and its runfiles, in the order in which they are tried:
//   1  P.runfiles, where P is the program as it was started, or as it really is (it may have been started through a
//      symlink)
//   2  the folders that P lies in: P was taken from a tree of runfiles, perhaps a copy under another name
//   3  what the environment says, and manifests: Bazel's own library. Last, because the environment may be another
//      program's (that of the one that started us), and a copied manifest names the place it was copied from.

#include "cohort/trainers/data/runfile.h"

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tools/cpp/runfiles/runfiles.h"

namespace cohort {
namespace {

namespace fs = std::filesystem;

void AddTrees(const fs::path& program, std::vector<fs::path>& trees) {
  trees.push_back(program.string() + ".runfiles");
  for (fs::path folder = program.parent_path(); folder != folder.parent_path(); folder = folder.parent_path()) {
    trees.push_back(folder);
  }
}

}  // namespace

absl::StatusOr<std::string> LocateRunfile(std::string_view argv0, std::string_view name) {
  std::error_code error;
  std::vector<fs::path> trees;
  if (absl::StrContains(argv0, '/')) AddTrees(fs::absolute(argv0, error), trees);
  AddTrees(fs::read_symlink("/proc/self/exe", error), trees);
  for (const fs::path& tree : trees) {
    const fs::path path = tree / name;
    if (fs::is_regular_file(path, error)) return path.string();
  }
  using bazel::tools::cpp::runfiles::Runfiles;
  const std::unique_ptr<Runfiles> runfiles(Runfiles::Create(std::string(argv0)));
  if (runfiles != nullptr) {
    const std::string path = runfiles->Rlocation(std::string(name));
    if (fs::is_regular_file(path, error)) return path;
  }
  return absl::NotFoundError(absl::StrCat(
      "the program's data file ", name, " is in none of: ",
      absl::StrJoin(trees, ", ", [](std::string* out, const fs::path& tree) { absl::StrAppend(out, tree.string()); }),
      ", nor where RUNFILES_DIR or RUNFILES_MANIFEST_FILE say"));
}

}  // namespace cohort
