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
  pipe_.reset();
  if (is_shown() && !is_behind()) lines_.Finish(*console_);
}

void RankOutput::ShowMore() {
  char buffer[kReadBytes];
  const size_t max_bytes = std::min<size_t>(unshown_bytes_, sizeof(buffer));
  const ssize_t count = pread(file_.get(), buffer, max_bytes, file_bytes_ - unshown_bytes_);
  if (count > 0) {
    lines_.Add({buffer, static_cast<size_t>(count)}, *console_);
    unshown_bytes_ -= count;
  } else {
    unshown_bytes_ = 0;  // somebody has cut the file short: what is not there cannot be shown
  }
  if (!pipe_ && !is_behind()) lines_.Finish(*console_);
}

ssize_t RankOutput::ReadSome(size_t max_bytes) {
  char buffer[kReadBytes];
  const ssize_t count = read(pipe_.get(), buffer, std::min(max_bytes, sizeof(buffer)));
  if (count > 0) {
    const std::string_view bytes(buffer, count);
    WriteToFile(bytes);
    if (is_shown()) Show(bytes);
    tail_.Add(bytes);
  }
  return count;
}

// `bytes` have just been written to the file, if there is one.
void RankOutput::Show(std::string_view bytes) {
  if (may_fall_behind() && (is_behind() || !has_room())) {
    unshown_bytes_ += static_cast<off_t>(bytes.size());
  } else if (!is_behind()) {
    lines_.Add(bytes, *console_);
  }  // else the disk is full, and the console as well: they are lost
}

void RankOutput::WriteToFile(std::string_view bytes) {
  while (file_ && file_error_ == 0 && !bytes.empty()) {
    const ssize_t count = write(file_.get(), bytes.data(), bytes.size());
    if (count >= 0) {
      bytes.remove_prefix(count);
      file_bytes_ += count;
    } else if (errno != EINTR) {
      file_error_ = errno;
    }
  }
}

}  // namespace cohort::launch
