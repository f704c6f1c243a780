#include "cohort/tools/launch/log_directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/strings/str_cat.h"

namespace cohort::launch {
namespace {

// Of the run's name: what is left of a file name's 255 bytes must hold "_XXXXXX".
constexpr size_t kMaxPrefixBytes = 200;
// As for what any program makes: the user's umask decides. The directory above all of them is 0700.
constexpr mode_t kDirectoryMode = 0777;
constexpr mode_t kFileMode = 0666;

std::string RankPath(int attempt, int local_rank) { return absl::StrCat("attempt_", attempt, "/", local_rank); }

absl::Status CannotMake(int error, std::string_view path) {
  return absl::ErrnoToStatus(error, absl::StrCat("cannot make ", path));
}

// mkdtemp() makes a directory that is new and ours alone; but who may write in the directory above could have put
// something else in its place before it is opened.
absl::StatusOr<UniqueFd> OpenNewDirectory(const std::string& path) {
  UniqueFd directory(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat status;
  if (!directory || fstat(directory.get(), &status) != 0) return CannotMake(errno, path);
  if (status.st_uid != geteuid() || (status.st_mode & 077) != 0) return CannotMake(EPERM, path);
  return directory;
}

}  // namespace

absl::StatusOr<LogDirectory> LogDirectory::CreateIn(const std::string& base, std::string_view prefix,
                                                    bool is_temporary) {
  // Ranks may go to another working directory.
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(base, error);
  if (error) return CannotMake(error.value(), base);
  std::string path = (absolute / absl::StrCat(prefix.substr(0, kMaxPrefixBytes), "_XXXXXX")).string();
  if (mkdtemp(path.data()) == nullptr) return CannotMake(errno, path);
  absl::StatusOr<UniqueFd> directory = OpenNewDirectory(path);
  if (!directory.ok()) {
    rmdir(path.c_str());  // goes only if it is empty
    return directory.status();
  }
  return LogDirectory(std::move(path), *std::move(directory), is_temporary);
}

absl::StatusOr<LogDirectory> LogDirectory::Create(const std::string& base, std::string_view run_id) {
  std::error_code error;
  std::filesystem::create_directories(base, error);
  if (error) return CannotMake(error.value(), base);
  return CreateIn(base, run_id, /*is_temporary=*/false);
}

absl::StatusOr<LogDirectory> LogDirectory::CreateTemporary(const std::string& base) {
  return CreateIn(base, "launch", /*is_temporary=*/true);
}

LogDirectory& LogDirectory::operator=(LogDirectory&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(directory_, other.directory_);
  std::swap(is_temporary_, other.is_temporary_);
  return *this;
}

LogDirectory::~LogDirectory() {
  std::error_code ignored;  // a rank's files must not make a job fail that has ended
  if (is_temporary_ && directory_) std::filesystem::remove_all(path_, ignored);
}

absl::Status LogDirectory::AddAttempt(int attempt, int num_ranks) {
  auto make = [this](const std::string& name) -> absl::Status {
    if (mkdirat(directory_.get(), name.c_str(), kDirectoryMode) == 0) return absl::OkStatus();
    return CannotMake(errno, absl::StrCat(path_, "/", name));
  };
  ABSL_RETURN_IF_ERROR(make(absl::StrCat("attempt_", attempt)));
  for (int local_rank = 0; local_rank < num_ranks; ++local_rank) {
    ABSL_RETURN_IF_ERROR(make(RankPath(attempt, local_rank)));
  }
  return absl::OkStatus();
}

absl::StatusOr<UniqueFd> LogDirectory::MakeFile(int attempt, int local_rank, std::string_view name) {
  const std::string file = absl::StrCat(RankPath(attempt, local_rank), "/", name);
  constexpr int kFlags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  UniqueFd fd(openat(directory_.get(), file.c_str(), kFlags, kFileMode));
  if (!fd) return CannotMake(errno, absl::StrCat(path_, "/", file));
  return fd;
}

std::string LogDirectory::FilePath(int attempt, int local_rank, std::string_view name) const {
  return absl::StrCat(path_, "/", RankPath(attempt, local_rank), "/", name);
}

}  // namespace cohort::launch
