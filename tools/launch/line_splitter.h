// File: line_splitter.h
//
// Turns what a rank writes into lines that can stand beside those of other ranks.

#ifndef COHORT_TOOLS_LAUNCH_LINE_SPLITTER_H_
#define COHORT_TOOLS_LAUNCH_LINE_SPLITTER_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace cohort::launch {

// Gathers the bytes of one stream of one rank into whole lines, each with a prefix.
class LineSplitter {
 public:
  // A line is held until it is whole, but no more of it than this: a longer one is printed in pieces.
  static constexpr size_t kMaxLineBytes = size_t{1} << 20;
  // Stands at the end of each piece but the last.
  static constexpr std::string_view kContinuedMark = " [line continues]";

  explicit LineSplitter(std::string prefix) : prefix_(std::move(prefix)) {}

  // Appends the lines that `bytes` completes to `out`, and keeps the rest.
  void Add(std::string_view bytes, std::string& out);

  // Nothing follows: appends what is left, with the newline that it lacks.
  void Finish(std::string& out);

 private:
  // `bytes` has no newline.
  void AddToLine(std::string_view bytes, std::string& out);

  std::string prefix_;
  // The beginning of a line, without a newline, never longer than kMaxLineBytes.
  std::string partial_;
};

}  // namespace cohort::launch

#endif  // COHORT_TOOLS_LAUNCH_LINE_SPLITTER_H_
