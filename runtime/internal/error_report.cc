// What torch.distributed.elastic makes of the file (torch 1.13 to 2.13): {"message": {"message": TEXT, "extraInfo":
// {"timestamp": SECONDS}}}. It shows extraInfo's py_callstack, or TEXT where there is none, so we write none. The
// timestamp is a string of whole seconds, and the earliest of all failed ranks makes the root cause; of equal ones that of
// the lowest rank. A file that it cannot parse, or without one of these keys, makes the agent itself fail with a stack
// trace: hence whole or not at all.

#include "cohort/runtime/internal/error_report.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace cohort::internal {
namespace {

// Cohort's launcher reads no more than 64 KiB of a file, and a byte of text takes six at most.
constexpr size_t kMaxTextBytes = 8 << 10;
constexpr char32_t kReplacement = 0xfffd;

// Takes the first character off `text`, which is not empty. A byte that begins no valid one is U+FFFD.
char32_t TakeCharacter(std::string_view& text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  size_t length = 1;
  if (byte(0) >= 0xc2) length = 2;
  if (byte(0) >= 0xe0) length = 3;
  if (byte(0) >= 0xf0) length = 4;
  char32_t character = length == 1 ? byte(0) : byte(0) & (0x7f >> length);
  bool is_valid = (length > 1 || byte(0) < 0x80) && length <= text.size();
  for (size_t i = 1; is_valid && i < length; ++i) {
    is_valid = (byte(i) & 0xc0) == 0x80;
    character = (character << 6) | (byte(i) & 0x3f);
  }
  const bool is_overlong = (length == 3 && character < 0x800) || (length == 4 && character < 0x10000);
  const bool is_surrogate = character >= 0xd800 && character < 0xe000;
  is_valid = is_valid && !is_overlong && !is_surrogate && character <= 0x10ffff;
  text.remove_prefix(is_valid ? length : 1);
  return is_valid ? character : kReplacement;
}

// Of control characters only the end of a line stays what it is: torchrun prints the text to a terminal as it stands.
bool IsControl(char32_t character) {
  return (character < 0x20 && character != '\n') || (character >= 0x7f && character < 0xa0);
}

void AppendEscaped(char32_t character, std::string& json) {
  if (character == '"' || character == '\\') {
    json += {'\\', static_cast<char>(character)};
  } else if (IsControl(character)) {
    absl::StrAppendFormat(&json, "\\\\x%02x", static_cast<uint32_t>(character));
  } else if (character >= 0x20 && character < 0x7f) {
    json += static_cast<char>(character);
  } else if (character < 0x10000) {
    absl::StrAppendFormat(&json, "\\u%04x", static_cast<uint32_t>(character));
  } else {
    const uint32_t rest = character - 0x10000;
    absl::StrAppendFormat(&json, "\\u%04x\\u%04x", 0xd800 + (rest >> 10), 0xdc00 + (rest & 0x3ff));
  }
}

std::string JsonString(std::string_view text) {
  std::string json = "\"";
  for (std::string_view rest = text.substr(0, kMaxTextBytes); !rest.empty();) AppendEscaped(TakeCharacter(rest), json);
  return absl::StrCat(json, text.size() > kMaxTextBytes ? "..." : "", "\"");
}

// While it lives, a file size limit is an error of write() in this thread, and no signal that ends the process.
class NoFileSizeSignal {
 public:
  NoFileSizeSignal() {
    sigemptyset(&signal_);
    sigaddset(&signal_, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  ~NoFileSizeSignal() {
    if (sigismember(&before_, SIGXFSZ) == 1) return;
    const timespec no_time = {};
    while (sigtimedwait(&signal_, nullptr, &no_time) < 0 && errno == EINTR) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t signal_;
  sigset_t before_;
};

absl::Status WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return absl::ErrnoToStatus(errno, "write");
    text.remove_prefix(written);
  }
  return absl::OkStatus();
}

// Gives the file `from` the name `to`, if nobody has it. Some file systems can do only one of the two.
absl::Status NameIfFree(const std::string& from, const std::string& to) {
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return absl::OkStatus();
  if (errno != EINVAL && errno != ENOSYS) return absl::ErrnoToStatus(errno, to);
  if (link(from.c_str(), to.c_str()) != 0) return absl::ErrnoToStatus(errno, to);
  unlink(from.c_str());
  return absl::OkStatus();
}

}  // namespace

std::string ErrorReport(const absl::Status& error, absl::Time when) {
  const std::string text = absl::StrCat(absl::StatusCodeToString(error.code()), ": ", error.message());
  return absl::StrCat("{\"message\": {\"message\": ", JsonString(text), ", \"extraInfo\": {\"timestamp\": \"",
                      absl::ToUnixSeconds(when), "\"}}}\n");
}

absl::Status CreateErrorFile(const std::string& path, std::string_view text) {
  struct stat there;
  if (lstat(path.c_str(), &there) == 0) return absl::AlreadyExistsError(path);
  const std::string draft = absl::StrCat(path, ".", getpid(), ".tmp");
  const int fd = open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return absl::ErrnoToStatus(errno, draft);
  absl::Cleanup remove = [&] { unlink(draft.c_str()); };
  const NoFileSizeSignal no_signal;
  absl::Status status = WriteAll(fd, text);
  // The umask takes bits away, and must not take all.
  if (status.ok() && fchmod(fd, 0600) != 0) status = absl::ErrnoToStatus(errno, draft);
  if (close(fd) != 0 && status.ok()) status = absl::ErrnoToStatus(errno, draft);
  if (status.ok()) status = NameIfFree(draft, path);
  if (status.ok()) std::move(remove).Cancel();
  return status;
}

}  // namespace cohort::internal
