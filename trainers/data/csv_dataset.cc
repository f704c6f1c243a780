#include "cohort/trainers/data/csv_dataset.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"

namespace cohort {
namespace {

// The lines of a file, none longer than kMaxCsvLineBytes.
class LineReader {
 public:
  explicit LineReader(const std::string& path) : path_(path), file_(nullptr, std::fclose) { opened_ = Open(); }

  // Puts the next line, without its end, into `line` and returns true; false after the last one.
  absl::StatusOr<bool> Next(std::string& line) {
    ABSL_RETURN_IF_ERROR(opened_);
    line.clear();
    ++number_;
    while (true) {
      if (begin_ == end_) {
        begin_ = 0;
        end_ = std::fread(buffer_.data(), 1, buffer_.size(), file_.get());
        if (end_ == 0 && std::ferror(file_.get())) return CannotRead();
        if (end_ == 0) return !line.empty();
      }
      const char* from = buffer_.data() + begin_;
      const char* newline = static_cast<const char*>(std::memchr(from, '\n', end_ - begin_));
      const size_t length = newline != nullptr ? newline - from : end_ - begin_;
      if (line.size() + length > kMaxCsvLineBytes) {
        return Error(absl::StrCat("is longer than ", kMaxCsvLineBytes, " bytes, the limit for a line"));
      }
      line.append(from, length);
      begin_ += length;
      if (newline != nullptr) {
        ++begin_;
        return true;
      }
    }
  }

  // The number of lines read.
  int64_t number() const { return number_; }

  absl::Status Error(std::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat(path_, ", line ", number_, ": ", what));
  }

 private:
  absl::Status Open() {
    // Non-blocking: the opening of a pipe would wait for a writer.
    const int fd = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return CannotRead();
    file_.reset(fdopen(fd, "rb"));
    if (file_ == nullptr) {
      close(fd);
      return absl::ResourceExhaustedError(absl::StrCat("cannot read ", path_, ": out of memory"));
    }
    struct stat info;
    if (fstat(fd, &info) != 0) return CannotRead();
    if (S_ISREG(info.st_mode) || S_ISDIR(info.st_mode)) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("cannot read ", path_, ": it is not a regular file; every rank reads all of it"));
  }
  absl::Status CannotRead() const { return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path_)); }

  const std::string path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
  absl::Status opened_;
  std::array<char, 65536> buffer_;
  size_t begin_ = 0;
  size_t end_ = 0;
  int64_t number_ = 0;
};

// A field as it can be shown in a message: what it holds is not trusted to be text, nor to be short.
std::string Shown(std::string_view field) {
  constexpr size_t kMost = 40;
  const std::string escaped = absl::Utf8SafeCHexEscape(field.substr(0, kMost));
  return absl::StrCat("\"", escaped, field.size() > kMost ? "...\"" : "\"");
}

// The fields of a line, without blanks around them.
void Split(std::string_view line, std::vector<std::string_view>& fields) {
  fields.clear();
  for (std::string_view field : absl::StrSplit(line, ',')) fields.push_back(absl::StripAsciiWhitespace(field));
}

// Unlike SimpleAtod alone takes no hexadecimal numbers. What is too large becomes infinity.
bool ParseNumber(std::string_view text, double& value) {
  return !absl::StrContains(text, 'x') && !absl::StrContains(text, 'X') && absl::SimpleAtod(text, &value);
}

// The header's names, checked.
absl::StatusOr<std::vector<std::string>> ReadHeader(LineReader& lines) {
  std::string line;
  ABSL_ASSIGN_OR_RETURN(const bool found, lines.Next(line));
  if (!found) return lines.Error("the file is empty; expected a header with the columns' names, then rows of numbers");
  std::vector<std::string_view> fields;
  Split(absl::StripPrefix(line, "\xEF\xBB\xBF"), fields);  // some programs begin UTF-8 with a mark
  double number;
  const auto is_number = [&](std::string_view field) { return ParseNumber(field, number); };
  if (std::all_of(fields.begin(), fields.end(), is_number)) {
    return lines.Error("expected a header with the columns' names, found only numbers");
  }
  absl::flat_hash_set<std::string_view> seen;
  for (size_t i = 0; i < fields.size(); ++i) {
    const std::string column = absl::StrCat("column ", i + 1);
    if (fields[i].empty()) return lines.Error(absl::StrCat(column, " has no name"));
    if (absl::StrContains(fields[i], '"')) {
      return lines.Error(absl::StrCat(column, " is quoted: ", Shown(fields[i]), "; quotes are not supported"));
    }
    if (is_number(fields[i]))
      return lines.Error(absl::StrCat(column, " is named ", Shown(fields[i]), ": a number is no name"));
    if (!seen.insert(fields[i]).second)
      return lines.Error(absl::StrCat(column, " is named ", Shown(fields[i]), ", as one before it"));
  }
  return std::vector<std::string>(fields.begin(), fields.end());
}

// Of each column: its place among the targets, or -1 for a feature.
absl::StatusOr<std::vector<int>> PlaceColumns(const std::string& path, const std::vector<std::string>& columns,
                                              absl::Span<const std::string> targets) {
  std::vector<int> place(columns.size(), -1);
  if (targets.empty()) place.back() = 0;
  for (size_t i = 0; i < targets.size(); ++i) {
    const auto found = std::find(columns.begin(), columns.end(), targets[i]);
    if (found == columns.end()) {
      return absl::InvalidArgumentError(absl::StrCat("target ", Shown(targets[i]), " is not a column of ", path,
                                                     "; its columns are: ", absl::StrJoin(columns, ", ")));
    }
    int& mine = place[found - columns.begin()];
    if (mine >= 0) return absl::InvalidArgumentError(absl::StrCat("target ", Shown(targets[i]), " is named twice"));
    mine = static_cast<int>(i);
  }
  if (std::find(place.begin(), place.end(), -1) == place.end()) {
    const std::string all = columns.size() == 1 ? absl::StrCat("its header has one column, ", Shown(columns[0]),
                                                               "; commas separate columns")
                                                : absl::StrCat("all ", columns.size(), " are targets");
    return absl::InvalidArgumentError(absl::StrCat("no column of ", path, " is left as a feature: ", all));
  }
  return place;
}

absl::StatusOr<double> ParseField(std::string_view field) {
  double value;
  if (field.empty()) return absl::InvalidArgumentError("is empty; expected a number");
  if (!ParseNumber(field, value)) return absl::InvalidArgumentError(absl::StrCat(Shown(field), " is not a number"));
  if (std::isnan(value)) return absl::InvalidArgumentError(absl::StrCat(Shown(field), " is not a finite number"));
  if (std::abs(value) > std::numeric_limits<float>::max()) {
    return absl::InvalidArgumentError(absl::StrCat(Shown(field), " is not finite or too large for a float (3.4e38)"));
  }
  return value;
}

}  // namespace

absl::StatusOr<Dataset> ReadCsvDataset(const std::string& path, absl::Span<const std::string> targets) {
  LineReader lines(path);
  ABSL_ASSIGN_OR_RETURN(const std::vector<std::string> columns, ReadHeader(lines));
  ABSL_ASSIGN_OR_RETURN(const std::vector<int> place, PlaceColumns(path, columns, targets));

  Dataset data;
  data.source = path;
  data.target_names.resize(std::max<size_t>(targets.size(), 1));
  for (size_t i = 0; i < columns.size(); ++i) {
    if (place[i] < 0) data.feature_names.push_back(columns[i]);
    if (place[i] >= 0) data.target_names[place[i]] = columns[i];
  }

  std::string line;
  std::vector<std::string_view> fields;
  std::vector<double> row_targets(data.target_names.size());
  while (true) {
    ABSL_ASSIGN_OR_RETURN(const bool found, lines.Next(line));
    if (!found) break;
    Split(line, fields);
    if (fields.size() != columns.size()) {
      if (fields.size() == 1 && fields[0].empty()) return lines.Error("is empty");
      return lines.Error(absl::StrCat("expected ", columns.size(), " fields, as in the header; found ", fields.size()));
    }
    for (size_t i = 0; i < fields.size(); ++i) {
      const absl::StatusOr<double> value = ParseField(fields[i]);
      if (!value.ok())
        return lines.Error(absl::StrCat("column ", i + 1, " (", columns[i], "): ", value.status().message()));
      if (place[i] < 0) data.features.push_back(*value);
      if (place[i] >= 0) row_targets[place[i]] = *value;
    }
    data.targets.insert(data.targets.end(), row_targets.begin(), row_targets.end());
    ++data.num_rows;
  }
  if (data.num_rows == 0) return lines.Error("expected a row of numbers after the header; the file ends here");
  return data;
}

}  // namespace cohort
