#include "cohort/trainers/resume_from.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "cohort/checkpoint/internal/quoted.h"
#include "cohort/checkpoint/run_directory.h"
#include "cohort/trainers/typed_path.h"

namespace cohort {
namespace {

namespace fs = std::filesystem;

// A path comes from outside: it may hold a newline.

bool Exists(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

absl::Status Missing(const fs::path& place, std::string_view why) {
  return absl::NotFoundError(absl::StrCat(internal::Quoted(place.string()), why));
}

// The way it goes now if it goes through a link, such as "latest".
absl::StatusOr<fs::path> WithoutLinks(const fs::path& directory) {
  std::error_code error;
  fs::path settled = fs::canonical(directory, error);
  if (error) return Missing(directory, absl::StrCat(": ", error.message()));
  return settled;
}

absl::StatusOr<std::string> LocateNow(fs::path place) {
  std::error_code error;
  const fs::file_status status = fs::status(place, error);
  if (!fs::exists(status)) return Missing(place, absl::StrCat(": ", error.message()));
  // Free of links, so that all ranks come to the same file, also while "latest" moves on.
  if (!fs::is_directory(status)) {
    ABSL_ASSIGN_OR_RETURN(const fs::path directory, WithoutLinks(place.parent_path()));
    return (directory / place.filename()).string();
  }
  ABSL_ASSIGN_OR_RETURN(place, WithoutLinks(place));
  if (!Exists(place / "manifest.json")) {
    ABSL_ASSIGN_OR_RETURN(const RunDirectory run, ReadRunDirectory(place.string()));
    if (run.checkpoints.empty()) {
      return Missing(place,
                     " is neither the directory of a checkpoint (it has no manifest.json) nor that of a run (it has no "
                     "complete checkpoint)");
    }
    place = run.checkpoints.front().path;
  }
  for (const char* name : {"state.pt", "state.safetensors"}) {
    if (Exists(place / name)) return (place / name).string();
  }
  return Missing(place, " has neither state.pt nor state.safetensors");
}

// What the links say that a job which saves there moves on.
std::string LinksOf(const fs::path& place) {
  std::error_code error;
  return absl::StrCat(fs::read_symlink(place, error).string(), "\n",
                      fs::read_symlink(place.parent_path(), error).string());
}

}  // namespace

absl::StatusOr<ResumeFrom> ParseResumeFrom(std::string_view text) {
  constexpr std::string_view kAllowed = "must be auto, none, the number of a step, or a path";
  if (text.empty()) return absl::InvalidArgumentError(kAllowed);
  if (text == "auto") return ResumeFrom{.kind = ResumeFrom::Kind::kAuto};
  if (text == "none") return ResumeFrom{.kind = ResumeFrom::Kind::kNone};
  if (!std::all_of(text.begin(), text.end(), absl::ascii_isdigit)) {
    return ResumeFrom{.kind = ResumeFrom::Kind::kPath, .path = std::string(text)};
  }
  ResumeFrom from{.kind = ResumeFrom::Kind::kStep};
  if (absl::SimpleAtoi(text, &from.step)) return from;
  return absl::InvalidArgumentError("is too large for a step; a file of that name is written with ./ before it");
}

std::string ShowResumeFrom(const ResumeFrom& from) {
  switch (from.kind) {
    case ResumeFrom::Kind::kAuto:
      return "auto";
    case ResumeFrom::Kind::kNone:
      return "none";
    case ResumeFrom::Kind::kStep:
      return absl::StrCat(from.step);
    case ResumeFrom::Kind::kPath:
      return from.path;
  }
  return "";
}

// A job may save there meanwhile, and remove what it does not keep. Of what leads to it the kernel may find one part before, and
// the next one after: then something is missing that is there at every instant. It is looked for again, until two looks find the
// same.
absl::StatusOr<std::string> LocateStateFile(std::string_view path) {
  constexpr int kMaxTries = 1000;
  std::error_code error;
  const fs::path place = fs::absolute(TypedPath(path), error);
  std::string seen_before;
  for (int i = 0;; ++i) {
    const std::string links = LinksOf(place);
    absl::StatusOr<std::string> located = LocateNow(place);
    if (!absl::IsNotFound(located.status()) || i == kMaxTries) return located;
    const std::string seen = absl::StrCat(links, "\n", LinksOf(place), "\n", located.status().message());
    if (seen == seen_before) return located;
    seen_before = seen;
  }
}

}  // namespace cohort
