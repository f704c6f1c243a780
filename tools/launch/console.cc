#include "cohort/tools/launch/console.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace cohort::launch {
namespace {

// To the first column, and everything from there erased.
constexpr std::string_view kEraseLine = "\r\x1b[K";
// A terminal is writable once it has room for 256 bytes; a line end becomes two.
constexpr size_t kTerminalBytes = 128;

bool IsSameFile(int a, int b) {
  struct stat of_a, of_b;
  return fstat(a, &of_a) == 0 && fstat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
}

}  // namespace

ConsoleFile::ConsoleFile(int fd) : fd_(fd) {
  struct stat status;
  if (fstat(fd, &status) != 0) return;
  is_socket_ = S_ISSOCK(status.st_mode);
  // A pipe or a terminal may make a write wait. Setting O_NONBLOCK on `fd` itself would set it for the shell as well,
  // so the file is opened again. That is refused where it is another user's (sudo, cron, a container with a user of its own).
  if (!S_ISFIFO(status.st_mode) && !S_ISCHR(status.st_mode)) return;
  reopened_ = UniqueFd(open(absl::StrCat("/proc/self/fd/", fd).c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (reopened_) {
    fd_ = reopened_.get();
  } else {
    bytes_at_once_ = S_ISFIFO(status.st_mode) ? PIPE_BUF : kTerminalBytes;
  }
}

bool ConsoleFile::MayWrite(size_t& num_bytes) const {
  if (!bytes_at_once_.has_value()) return true;
  num_bytes = std::min(num_bytes, *bytes_at_once_);
  pollfd request = {.fd = fd_, .events = POLLOUT, .revents = 0};
  return poll(&request, 1, 0) == 1;  // also if the reader has gone, which the write then tells
}

void ConsoleFile::Flush() {
  if (!drawn_status_.empty() && (!pending.empty() || status_.empty())) {
    pending.insert(0, kEraseLine);
    drawn_status_.clear();
    undrawn_.clear();
  }
  Write(pending);
  if (!pending.empty()) return;
  if (drawn_status_ != status_) {
    drawn_status_ = status_;
    undrawn_ = absl::StrCat(kEraseLine, status_);
  }
  Write(undrawn_);
}

void ConsoleFile::Write(std::string& bytes) {
  size_t written = 0;
  while (written < bytes.size() && error_ == 0) {
    const char* data = bytes.data() + written;
    size_t count = bytes.size() - written;
    if (!MayWrite(count)) break;
    const ssize_t result = is_socket_ ? send(fd_, data, count, MSG_DONTWAIT | MSG_NOSIGNAL) : write(fd_, data, count);
    if (result >= 0) {
      written += result;
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      error_ = errno;
    }
  }
  if (error_ != 0) written = bytes.size();
  bytes.erase(0, written);
}

Console::Console(int out_fd, int err_fd) {
  files_.push_back(std::make_unique<ConsoleFile>(out_fd));
  if (!IsSameFile(out_fd, err_fd)) files_.push_back(std::make_unique<ConsoleFile>(err_fd));
  by_stream_ = {files_.front().get(), files_.back().get()};
}

void Console::Flush() {
  for (const auto& file : files_) file->Flush();
}

bool Console::IsEmpty() const {
  return std::all_of(files_.begin(), files_.end(), [](const auto& file) { return file->pending.empty(); });
}

int Console::error() const {
  for (const auto& file : files_) {
    if (file->error() != 0) return file->error();
  }
  return 0;
}

}  // namespace cohort::launch
