#include "cohort/tools/launch/rank_output.h"

#include <sys/ioctl.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

namespace cohort::launch {
namespace {

// A pipe holds this much, if nobody has changed it.
constexpr size_t kReadBytes = 65536;

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
