#include "cohort/checkpoint/internal/random_access_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/log/absl_check.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cohort/checkpoint/internal/path_error.h"
#include "cohort/checkpoint/internal/quoted.h"

namespace cohort::internal {
namespace {

class PosixFile : public RandomAccessFile {
 public:
  PosixFile(int fd, int64_t num_bytes, std::string path) : fd_(fd), num_bytes_(num_bytes), path_(std::move(path)) {}
  PosixFile(const PosixFile&) = delete;
  ~PosixFile() override { close(fd_); }

  int64_t num_bytes() const override { return num_bytes_; }

  absl::Status Read(int64_t offset, int64_t num_bytes, char* buffer) const override {
    ABSL_DCHECK(offset >= 0 && num_bytes >= 0 && offset <= num_bytes_ - num_bytes);
    while (num_bytes > 0) {
      const ssize_t got = pread(fd_, buffer, num_bytes, offset);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return PathError(errno, "read", path_);
      if (got == 0) {
        return absl::DataLossError(absl::StrCat("read ", Quoted(path_), ": it was ", num_bytes_,
                                                " bytes long when it was opened, and now ends at ", offset));
      }
      buffer += got;
      offset += got;
      num_bytes -= got;
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::shared_ptr<char>> Map() const override {
    if (num_bytes_ == 0) return std::make_shared<char>();
    void* memory = mmap(nullptr, num_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, fd_, 0);
    if (memory == MAP_FAILED) return PathError(errno, "map", path_);
    return std::shared_ptr<char>(static_cast<char*>(memory), [n = num_bytes_](char* p) { munmap(p, n); });
  }

 private:
  const int fd_;
  const int64_t num_bytes_;
  const std::string path_;
};

class MemoryFile : public RandomAccessFile {
 public:
  explicit MemoryFile(std::string_view contents) : contents_(contents) {}

  int64_t num_bytes() const override { return static_cast<int64_t>(contents_.size()); }

  absl::Status Read(int64_t offset, int64_t num_bytes, char* buffer) const override {
    ABSL_CHECK(offset >= 0 && num_bytes >= 0 && offset <= this->num_bytes() - num_bytes);
    if (num_bytes > 0) std::memcpy(buffer, contents_.data() + offset, num_bytes);
    return absl::OkStatus();
  }

  absl::StatusOr<std::shared_ptr<char>> Map() const override {
    std::shared_ptr<char> copy(new char[contents_.size() + 1], std::default_delete<char[]>());
    std::copy(contents_.begin(), contents_.end(), copy.get());
    return copy;
  }

 private:
  const std::string_view contents_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenRandomAccessFile(const std::string& path) {
  if (path.find('\0') != std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat("open ", Quoted(path), ": a path cannot hold a zero byte"));
  }
  // Non-blocking: the opening of a pipe would wait for a writer.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return PathError(errno, "open", path);
  absl::Cleanup closer = [fd] { close(fd); };
  struct stat info;
  if (fstat(fd, &info) != 0) return PathError(errno, "inspect", path);
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat("open ", Quoted(path), ": it is ", S_ISDIR(info.st_mode) ? "a directory" : "not a regular file"));
  }
  std::move(closer).Cancel();
  return std::make_unique<PosixFile>(fd, info.st_size, path);
}

std::unique_ptr<RandomAccessFile> MemoryAsFile(std::string_view contents) {
  return std::make_unique<MemoryFile>(contents);
}

}  // namespace cohort::internal
