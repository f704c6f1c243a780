// File: rank_output.h

#ifndef COHORT_TOOLS_LAUNCH_RANK_OUTPUT_H_
#define COHORT_TOOLS_LAUNCH_RANK_OUTPUT_H_

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cohort/tools/launch/console.h"
#include "cohort/tools/launch/line_splitter.h"
#include "cohort/tools/launch/output_tail.h"
#include "cohort/tools/launch/unique_fd.h"

namespace cohort::launch {

// One stream of one rank: from the pipe that the rank writes into, line by line, to the console, and byte by byte to a
// file.
//
// A rank is never given the file itself: what it starts may open its output again ("echo >/dev/stderr" in a shell), and
// would cut the file short; and it would be left to the rank to notice a full disk. The price is that a disk which
// stands still holds us up.
class RankOutput {
 public:
  // Reads of `pipe` must not block. `console` gets whole lines and must outlive this; nullptr if they are not shown.
  // `file` can be read as well; it is empty if there is none.
  RankOutput(UniqueFd pipe, std::string prefix, std::string* console, UniqueFd file)
      : pipe_(std::move(pipe)), file_(std::move(file)), lines_(std::move(prefix)), console_(console) {}
  RankOutput(UniqueFd pipe, std::string prefix, std::string& console)
      : RankOutput(std::move(pipe), std::move(prefix), &console, UniqueFd()) {}

  // -1 once the stream has ended.
  int fd() const { return pipe_ ? pipe_.get() : -1; }

  // Whether Read() may be called: not while the console is full, if it is needed.
  bool may_read() const { return !is_shown() || has_room() || may_fall_behind(); }

  // Whether the file has more than the console was given, because that was full. ShowMore() gives it a bounded amount
  // of that; to be called while it has room.
  bool is_behind() const { return unshown_bytes_ > 0; }
  bool has_room() const { return console_->size() < Console::kMaxPendingBytes; }
  void ShowMore();

  // The errno of the first write to the file that failed, or 0. What comes after that is not written to it: no file has
  // a hole.
  int file_error() const { return file_error_; }

  // Reads once, a bounded amount. False at the end of the stream: the pipe should be closed then.
  bool Read();

  // Reads what is in the pipe now, and not what may come: a process that outlives the rank could write for ever.
  void Drain();

  // The last of it: closes the pipe and prints an unfinished line, unless something is behind: then after that.
  void Finish();

  std::vector<std::string> LastLines(int max_lines) const { return tail_.LastLines(max_lines); }

 private:
  bool is_shown() const { return console_ != nullptr; }
  // What was not shown can be read again.
  bool may_fall_behind() const { return file_ && file_error_ == 0; }
  // Reads at most `max_bytes`; returns what read() does.
  ssize_t ReadSome(size_t max_bytes);
  void Show(std::string_view bytes);
  void WriteToFile(std::string_view bytes);

  UniqueFd pipe_;
  UniqueFd file_;
  int file_error_ = 0;
  off_t file_bytes_ = 0;
  // The last of these, which the console was not given yet.
  off_t unshown_bytes_ = 0;
  LineSplitter lines_;
  OutputTail tail_;
  std::string* console_;
};

}  // namespace cohort::launch

#endif  // COHORT_TOOLS_LAUNCH_RANK_OUTPUT_H_
