#include "cohort/tools/launch/line_splitter.h"

#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace cohort::launch {

void LineSplitter::Add(std::string_view bytes, std::string& out) {
  for (size_t newline; (newline = bytes.find('\n')) != std::string_view::npos; bytes.remove_prefix(newline + 1)) {
    AddToLine(bytes.substr(0, newline), out);
    absl::StrAppend(&out, prefix_, partial_, "\n");
    partial_.clear();
  }
  AddToLine(bytes, out);
}

void LineSplitter::Finish(std::string& out) {
  if (!partial_.empty()) Add("\n", out);
}

void LineSplitter::AddToLine(std::string_view bytes, std::string& out) {
  while (partial_.size() + bytes.size() > kMaxLineBytes) {
    const size_t room = kMaxLineBytes - partial_.size();
    absl::StrAppend(&out, prefix_, partial_, bytes.substr(0, room), kContinuedMark, "\n");
    partial_.clear();
    bytes.remove_prefix(room);
  }
  partial_.append(bytes);
}

}  // namespace cohort::launch
