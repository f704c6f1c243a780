// File: console.h
//
// Where the launcher and its ranks print: standard output and standard error, without ever waiting for who reads them.

#ifndef COHORT_TOOLS_LAUNCH_CONSOLE_H_
#define COHORT_TOOLS_LAUNCH_CONSOLE_H_

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cohort/tools/launch/unique_fd.h"

namespace cohort::launch {

enum class Stream { kOut = 0, kErr = 1 };

// One file that is printed to. Bytes are appended to `pending` and leave it in order.
class ConsoleFile {
 public:
  // `fd` stays the caller's, and its flags as they are: other programs share them.
  explicit ConsoleFile(int fd);

  std::string pending;

  // A line that stands below everything printed, on a terminal: it is erased before anything is printed, and drawn
  // again after that. Without a newline; empty: none. `pending` must be whole lines then.
  void SetStatus(std::string status) { status_ = std::move(status); }

  // Writes what can be written at once. After an error (the reader has gone, the disk is full) everything is dropped.
  void Flush();

  // Becomes writable when Flush() can go on. Only of interest while something is pending.
  int poll_fd() const { return fd_; }
  // The errno of the first write that failed, or 0.
  int error() const { return error_; }

 private:
  // Takes from the front of `bytes` what can be written at once.
  void Write(std::string& bytes);

  // Whether a write of `num_bytes` would be done at once; less of it may be written then.
  bool MayWrite(size_t& num_bytes) const;

  // Set if `fd` could be opened a second time, so that O_NONBLOCK is ours alone.
  UniqueFd reopened_;
  int fd_;
  // Where writes may wait: what fits once the file is writable at all. Otherwise everything may be tried.
  std::optional<size_t> bytes_at_once_;
  bool is_socket_ = false;
  int error_ = 0;
  std::string status_;
  // What stands on the terminal, and what of it could not be written yet.
  std::string drawn_status_;
  std::string undrawn_;
};

// Standard output and standard error. Where both are one file (a terminal, 2>&1), they are one queue, so that a line
// that could be written only in part is finished before a line of the other stream begins.
class Console {
 public:
  // Above this many pending bytes the ranks' output should be left in their pipes: HasRoom() is false.
  static constexpr size_t kMaxPendingBytes = size_t{1} << 20;

  Console(int out_fd, int err_fd);

  // Append whole lines to this.
  std::string& pending(Stream stream) { return file(stream).pending; }
  bool HasRoom(Stream stream) { return pending(stream).size() < kMaxPendingBytes; }

  // A line below the output, on standard error; see ConsoleFile.
  void SetStatus(std::string status) { file(Stream::kErr).SetStatus(std::move(status)); }

  // Writes what can be written at once.
  void Flush();
  bool IsEmpty() const;
  // The errno of the first write that failed, or 0.
  int error() const;

  // The distinct files: one or two.
  const std::vector<std::unique_ptr<ConsoleFile>>& files() const { return files_; }

 private:
  ConsoleFile& file(Stream stream) { return *by_stream_[static_cast<size_t>(stream)]; }

  std::vector<std::unique_ptr<ConsoleFile>> files_;
  std::array<ConsoleFile*, 2> by_stream_;
};

}  // namespace cohort::launch

#endif  // COHORT_TOOLS_LAUNCH_CONSOLE_H_
