#include "cohort/tools/launch/rank_output.h"

#include <sys/ioctl.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::launch {
namespace {

// A pipe holds this much, if nobody has changed it.
constexpr size_t kReadBytes = 65536;

// The end of `file`, as much as a tail remembers.
OutputTail TailOf(const UniqueFd& file) {
  OutputTail tail;
  char buffer[OutputTail::kRememberedBytes];
  const off_t size = lseek(file.get(), 0, SEEK_END);
  const off_t begin = std::max<off_t>(size - static_cast<off_t>(sizeof(buffer)), 0);
  const ssize_t count = pread(file.get(), buffer, sizeof(buffer), begin);
  if (count > 0) tail.Add({buffer, static_cast<size_t>(count)});
  return tail;
}

}  // namespace

bool RankOutput::Read() {
  const ssize_t count = ReadSome(kReadBytes);
  return count > 0 || (count < 0 && (errno == EAGAIN || errno == EINTR));
}

void RankOutput::Drain() {
  int waiting = 0;
  if (!pipe_ || ioctl(pipe_.get(), FIONREAD, &waiting) != 0) return;
  while (waiting > 0) {
    const ssize_t count = ReadSome(waiting);
    if (count <= 0) return;
    waiting -= static_cast<int>(count);
  }
}

void RankOutput::Finish() {
  if (is_shown()) lines_.Finish(*console_);
  pipe_.reset();
}

std::vector<std::string> RankOutput::LastLines(int max_lines) const {
  const bool rank_has_written_it = tail_.is_empty() && file_;
  return (rank_has_written_it ? TailOf(file_) : tail_).LastLines(max_lines);
}

ssize_t RankOutput::ReadSome(size_t max_bytes) {
  char buffer[kReadBytes];
  const ssize_t count = read(pipe_.get(), buffer, std::min(max_bytes, sizeof(buffer)));
  if (count > 0) {
    const std::string_view bytes(buffer, count);
    WriteToFile(bytes);
    if (is_shown()) lines_.Add(bytes, *console_);
    tail_.Add(bytes);
  }
  return count;
}

void RankOutput::WriteToFile(std::string_view bytes) {
  while (file_ && file_error_ == 0 && !bytes.empty()) {
    const ssize_t count = write(file_.get(), bytes.data(), bytes.size());
    if (count >= 0) {
      bytes.remove_prefix(count);
    } else if (errno != EINTR) {
      file_error_ = errno;
    }
  }
}

}  // namespace cohort::launch
