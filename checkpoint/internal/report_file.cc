#include "cohort/checkpoint/internal/report_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <ctime>
#include <string>
#include <string_view>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "cohort/checkpoint/file_system.h"
#include "cohort/checkpoint/internal/checkpoint_name.h"
#include "cohort/checkpoint/internal/directories.h"
#include "cohort/checkpoint/internal/path_error.h"
#include "cohort/checkpoint/internal/quoted.h"
#include "cohort/checkpoint/internal/run_file.h"
#include "cohort/checkpoint/internal/temporary_name.h"
#include "cohort/checkpoint/target_path.h"

namespace cohort::internal {
namespace {

constexpr int kFlags = O_CLOEXEC | O_NONBLOCK | O_NOCTTY;

// write(2), but that a pipe without a reader is an error alone. It is a signal to this thread, too, which must neither end the
// process nor stay pending.
ssize_t WriteWithoutSignal(int fd, std::string_view text) {
  sigset_t broken_pipe, before;
  sigemptyset(&broken_pipe);
  sigaddset(&broken_pipe, SIGPIPE);
  sigset_t pending;
  sigpending(&pending);
  pthread_sigmask(SIG_BLOCK, &broken_pipe, &before);
  ssize_t written;
  do {
    written = write(fd, text.data(), text.size());
  } while (written < 0 && errno == EINTR);
  const int error = errno;
  if (written < 0 && error == EPIPE && sigismember(&pending, SIGPIPE) == 0) {
    const timespec at_once = {};
    sigtimedwait(&broken_pipe, nullptr, &at_once);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return written;
}

absl::Status NobodyReads(std::string_view operation, const std::string& path) {
  return absl::FailedPreconditionError(absl::StrCat(operation, " ", Quoted(path), ": it is a pipe that nobody reads"));
}

struct Ends {
  std::string beginning;
  bool is_cut = false;
};

// Of a regular file that is not empty.
absl::StatusOr<Ends> LookAt(const std::string& path, size_t num_bytes, off_t file_bytes) {
  const int fd = open(path.c_str(), O_RDONLY | kFlags);
  if (fd < 0) return PathError(errno, "open", path);
  const absl::Cleanup close_fd = [&] { close(fd); };
  std::string beginning(num_bytes, '\0');
  char last = '\n';
  const ssize_t size = pread(fd, beginning.data(), num_bytes, 0);
  if (size < 0 || pread(fd, &last, 1, file_bytes - 1) < 0) return PathError(errno, "read", path);
  beginning.resize(size);
  return Ends{.beginning = std::move(beginning), .is_cut = last != '\n'};
}

}  // namespace

ReportFile::ReportFile(std::string path, std::string_view first_key)
    : path_(std::move(path)), beginning_(absl::StrCat("{\"", first_key, "\":")) {}

ReportFile::~ReportFile() { Close(); }

absl::Status ReportFile::Check() {
  const absl::Status opened = Open(O_WRONLY | O_APPEND);
  Close();
  if (!absl::IsNotFound(opened)) return opened;
  // The file may be missing, if its directory is not.
  const std::string directory = path_.substr(0, path_.rfind('/') + 1);
  if (access(directory.empty() ? "." : directory.c_str(), W_OK | X_OK) != 0) return PathError(errno, "open", path_);
  return absl::OkStatus();
}

absl::Status ReportFile::Append(std::string_view line) {
  if (fd_ < 0) {
    ABSL_RETURN_IF_ERROR(Open(O_WRONLY | O_APPEND | O_CREAT));
  }
  const std::string text = absl::StrCat(is_cut_ ? "\n" : "", line);
  const ssize_t written = WriteWithoutSignal(fd_, text);
  const int error = errno;
  if (written == static_cast<ssize_t>(text.size())) {
    is_cut_ = false;
    return absl::OkStatus();
  }
  Close();
  if (written < 0 && error == EPIPE) return NobodyReads("write", path_);
  if (written < 0 && error != EAGAIN) return PathError(error, "write", path_);
  return absl::ResourceExhaustedError(
      absl::StrCat("write ", Quoted(path_), ": ", written < 0 ? 0 : written, " bytes of ", text.size(), " fitted"));
}

absl::Status ReportFile::Open(int flags) {
  fd_ = open(path_.c_str(), flags | kFlags, 0666);
  if (fd_ < 0 && errno == ENXIO) return NobodyReads("open", path_);
  if (fd_ < 0) return PathError(errno, "open", path_);
  absl::Cleanup close_fd = [this] { Close(); };
  struct stat info;
  if (fstat(fd_, &info) != 0) return PathError(errno, "inspect", path_);
  is_cut_ = false;
  if (S_ISREG(info.st_mode) && info.st_size > 0) {
    ABSL_ASSIGN_OR_RETURN(const Ends ends, LookAt(path_, beginning_.size(), info.st_size));
    if (ends.beginning != beginning_) {
      return absl::InvalidArgumentError(absl::StrCat(Quoted(path_), " begins with ", Quoted(ends.beginning),
                                                     " and is no such report, which begins with ", Quoted(beginning_),
                                                     "; lines are added to a report, a new file or an empty one"));
    }
    is_cut_ = ends.is_cut;
  }
  std::move(close_fd).Cancel();
  return absl::OkStatus();
}

void ReportFile::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

absl::Status CheckIsNotOfRun(std::string_view directory, std::string_view what, std::string_view report) {
  FileSystem& files = *FileSystem::Posix();
  const auto resolved = [&](std::string_view path) -> absl::StatusOr<std::string> {
    ABSL_ASSIGN_OR_RETURN(const std::string absolute, AbsolutePath(path));
    return ResolveTarget(files, absolute);
  };
  // What is no place for files is refused by whoever makes them.
  const absl::StatusOr<std::string> in_run = resolved(absl::StrCat(directory, "/x"));
  absl::StatusOr<std::string> target = resolved(report);
  if (!target.ok()) {
    // An existing directory is no target.
    target = resolved(absl::StrCat(report, "/x"));
    if (target.ok()) target = std::string(DirectoryOf(*target));
  }
  if (!in_run.ok() || !target.ok()) return absl::OkStatus();
  const std::string_view run = DirectoryOf(*in_run);
  std::string_view name = *target;
  if (!absl::ConsumePrefix(&name, run) || (!name.empty() && !absl::ConsumePrefix(&name, "/"))) return absl::OkStatus();
  if (!name.empty() && name != kRunFileName && name != kLatestName && !absl::StartsWith(name, kHiddenPrefix) &&
      !absl::StartsWith(name, kCheckpointPrefix)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(what, " ", Quoted(report), " is a name of the run itself; allowed is any other file"));
}

}  // namespace cohort::internal
