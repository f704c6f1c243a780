#include "cohort/tools/launch/error_report.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cohort/tools/launch/unique_fd.h"
#include "nlohmann/json.hpp"

namespace cohort::launch {
namespace {

constexpr size_t kMaxBytes = 64 << 10;

// The first kMaxBytes + 1 bytes of a regular file. nullopt, and errno, if it cannot be read.
std::optional<std::string> ReadBeginning(const std::string& path) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file) return std::nullopt;
  struct stat info;
  if (fstat(file.get(), &info) != 0) return std::nullopt;
  if (!S_ISREG(info.st_mode)) {
    errno = EINVAL;
    return std::nullopt;
  }
  std::string text(kMaxBytes + 1, '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t count = read(file.get(), text.data() + size, text.size() - size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return std::nullopt;
    if (count == 0) break;
    size += count;
  }
  text.resize(size);
  return text;
}

// nullopt if it is no report.
std::optional<std::string> MessageIn(std::string_view text) {
  // Nesting costs the parser no stack, but building and destroying what is nested does.
  constexpr int kMaxDepth = 16;
  const auto shallow = [](int depth, nlohmann::json::parse_event_t, nlohmann::json&) { return depth < kMaxDepth; };
  const nlohmann::json report = nlohmann::json::parse(text, shallow, /*allow_exceptions=*/false);
  if (!report.is_object() || !report.contains("message")) return std::nullopt;
  const nlohmann::json& outer = report["message"];
  const nlohmann::json& message = outer.is_object() && outer.contains("message") ? outer["message"] : outer;
  if (!message.is_string()) return std::nullopt;
  return message.get<std::string>();
}

std::string Shown(std::string_view line) {
  std::string shown(line);
  std::replace_if(
      shown.begin(), shown.end(), [](char c) { return absl::ascii_iscntrl(c) && c != '\t'; }, '?');
  return shown;
}

}  // namespace

std::vector<std::string> ReadErrorReport(const std::string& path, int max_lines) {
  const std::optional<std::string> text = ReadBeginning(path);
  if (!text.has_value()) {
    if (errno == ENOENT || errno == ENOTDIR) return {};
    return {absl::StrCat("(its error file cannot be read: ", strerror(errno), ")")};
  }
  if (text->size() > kMaxBytes) return {absl::StrCat("(its error file has more than ", kMaxBytes, " bytes)")};
  const std::optional<std::string> message = MessageIn(*text);
  if (!message.has_value()) return {"(what it wrote into its error file is no report of an error)"};
  if (absl::StripAsciiWhitespace(*message).empty()) return {"(its error file has no message)"};
  std::vector<std::string> lines;
  for (const std::string_view line : absl::StrSplit(absl::StripTrailingAsciiWhitespace(*message), '\n')) {
    if (static_cast<int>(lines.size()) == max_lines) {
      lines.back() = "...";
      break;
    }
    lines.push_back(Shown(line));
  }
  return lines;
}

}  // namespace cohort::launch
