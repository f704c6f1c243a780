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

absl::StatusOr<std::string> LocateStateFile(std::string_view path) {
  std::error_code error;
  fs::path place = fs::absolute(TypedPath(path), error);
  const fs::file_status status = fs::status(place, error);
  if (!fs::exists(status))
    return absl::NotFoundError(absl::StrCat(internal::Quoted(place.string()), ": ", error.message()));
  if (!fs::is_directory(status)) return place.string();
  if (!Exists(place / "manifest.json")) {
    ABSL_ASSIGN_OR_RETURN(const RunDirectory run, ReadRunDirectory(place.string()));
    if (run.checkpoints.empty()) {
      return absl::NotFoundError(absl::StrCat(internal::Quoted(place.string()),
                                              " is neither the directory of a checkpoint (it has no "
                                              "manifest.json) nor that of a run (it has no complete checkpoint)"));
    }
    place = run.checkpoints.front().path;
  }
  for (const char* name : {"state.pt", "state.safetensors"}) {
    if (Exists(place / name)) return (place / name).string();
  }
  return absl::NotFoundError(
      absl::StrCat(internal::Quoted(place.string()), " has neither state.pt nor state.safetensors"));
}

}  // namespace cohort
