#include "cohort/checkpoint/target_path.h"

#include <limits.h>

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cohort/checkpoint/file_system.h"
#include "cohort/checkpoint/internal/quoted.h"

namespace cohort {
namespace {

using internal::Quoted;

// As many as Linux follows.
constexpr int kMaxSymlinks = 40;
// Room for the temporary file beside the target, whose name may be longer than the target's.
constexpr size_t kMaxPathBytes = PATH_MAX - 1 - NAME_MAX;

// Walks a path as the kernel does, but goes on where nothing exists yet.
class Walk {
 public:
  Walk(FileSystem& file_system, std::string_view path) : file_system_(file_system), path_(path) {}

  absl::StatusOr<std::string> Run() {
    Push(path_);
    while (!pending_.empty()) {
      const std::string name = std::move(pending_.back());
      pending_.pop_back();
      ABSL_RETURN_IF_ERROR(Step(name));
      if (Here().size() > kMaxPathBytes) {
        return Invalid(absl::StrCat("is ", Here().size(), " bytes long; at most ", kMaxPathBytes, " are allowed"));
      }
    }
    return Here();
  }

 private:
  std::string Here() const { return absl::StrCat("/", absl::StrJoin(resolved_, "/")); }

  absl::Status Invalid(std::string_view why) const {
    return absl::InvalidArgumentError(absl::StrCat("path ", Quoted(path_), " ", why));
  }
  absl::Status IsDirectory() const { return Invalid("names a directory; name a file"); }

  // Puts the components of `path` before all that is pending. "dir/" means "dir/.", and "/" means "/.".
  void Push(std::string_view path) {
    std::vector<std::string> names = absl::StrSplit(path, '/', absl::SkipEmpty());
    if (path.ends_with('/')) names.push_back(".");
    pending_.insert(pending_.end(), names.rbegin(), names.rend());
  }

  absl::Status Step(const std::string& name) {
    const bool is_last = pending_.empty();
    if (name == "." || name == "..") {
      if (is_last) return IsDirectory();
      if (name == ".." && !resolved_.empty()) resolved_.pop_back();
      if (missing_from_.has_value() && resolved_.size() < *missing_from_) missing_from_.reset();
      return absl::OkStatus();
    }
    if (name.size() > NAME_MAX) {
      return Invalid(absl::StrCat("has a name of ", name.size(), " bytes; at most ", NAME_MAX, " are allowed"));
    }
    resolved_.push_back(name);
    if (missing_from_.has_value()) return absl::OkStatus();  // below what does not exist, nothing does

    absl::StatusOr<FileInfo> info = file_system_.Inspect(Here());
    if (absl::IsNotFound(info.status())) {
      missing_from_ = resolved_.size();
      return absl::OkStatus();
    }
    ABSL_RETURN_IF_ERROR(info.status());
    if (info->type == FileType::kSymlink) return Follow();
    if (is_last && info->type == FileType::kDirectory) return IsDirectory();
    if (is_last && info->type == FileType::kOther) return Invalid("is neither a file nor a directory; name a file");
    if (!is_last && info->type != FileType::kDirectory) {
      return Invalid(absl::StrCat("lies under ", Quoted(Here()), ", which is not a directory"));
    }
    return absl::OkStatus();
  }

  // Replaces the symlink where we stand by what it says.
  absl::Status Follow() {
    if (++num_symlinks_ > kMaxSymlinks) {
      return Invalid(
          absl::StrCat("leads through more than ", kMaxSymlinks, " symlinks, probably in a loop at ", Quoted(Here())));
    }
    ABSL_ASSIGN_OR_RETURN(const std::string target, file_system_.ReadLink(Here()));
    if (target.starts_with('/')) {
      resolved_.clear();
    } else {
      resolved_.pop_back();
    }
    Push(target);
    return absl::OkStatus();
  }

  FileSystem& file_system_;
  const std::string_view path_;
  std::vector<std::string> pending_;    // components still to be walked, the next one last
  std::vector<std::string> resolved_;   // the components of where we stand
  std::optional<size_t> missing_from_;  // as many components as this one names something that does not exist
  int num_symlinks_ = 0;
};

}  // namespace

absl::StatusOr<std::string> AbsolutePath(std::string_view path, const std::string& base_directory) {
  if (path.empty()) return absl::InvalidArgumentError("the path is empty; name a file");
  if (path.find('\0') != path.npos) {
    return absl::InvalidArgumentError(absl::StrCat("path ", Quoted(path), " holds a zero byte"));
  }
  if (path.starts_with('/')) return std::string(path);
  std::filesystem::path base = base_directory;
  if (base_directory.empty()) {
    const char* const build_working_directory = std::getenv("BUILD_WORKING_DIRECTORY");
    if (build_working_directory != nullptr) base = build_working_directory;
  }
  if (!base.is_absolute()) {
    std::error_code error;
    const std::filesystem::path current = std::filesystem::current_path(error);
    if (error) return absl::ErrnoToStatus(error.value(), "there is no working directory");
    base = base.empty() ? current : current / base;
  }
  return absl::StrCat(base.string(), "/", path);
}

absl::StatusOr<std::string> ResolveTarget(FileSystem& file_system, std::string_view path) {
  return Walk(file_system, path).Run();
}

}  // namespace cohort
