// The library reads characters from a stream buffer of ours, which hands it the file in chunks:
//
//   1. The text is never in memory as a whole.
//   2. The library keeps the token that it is in, twice, and copies it again into the message of an error. So the
//      buffer looks how long each string is before the library sees it, and charges for the copies.
//   3. The library takes a zero byte for the end of the text. The buffer refuses one.
//
// What the buffer refuses it throws, as nothing else leads out of the library's loop.

#include "cohort/checkpoint/internal/json_reader.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <istream>
#include <limits>
#include <memory>
#include <streambuf>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cohort/checkpoint/internal/memory_budget.h"
#include "cohort/checkpoint/internal/random_access_file.h"
#include "nlohmann/json.hpp"

namespace cohort::internal {
namespace {

using Json = nlohmann::json;

struct Refused {
  absl::Status status;
};

// Longest number or word.
constexpr int64_t kMaxWord = 1024;
// Copies of the token that the library is in: two, each of which is copied once more as it grows, or, if there is an
// error, two and the parts of its message. The place of one of them is kept for the next tokens.
constexpr int64_t kCopies = 6;
constexpr int64_t kKeptCopies = 2;

class Source : public std::streambuf {
 public:
  Source(const RandomAccessFile& file, int64_t offset, int64_t num_bytes, MemoryBudget& budget)
      : file_(file), begin_(offset), offset_(offset), end_(offset + num_bytes), budget_(budget) {}
  ~Source() override { budget_.Refund(charged_); }

 protected:
  int_type underflow() override {
    if (offset_ == end_) return traits_type::eof();
    const int64_t num_bytes = std::min(kChunk, end_ - offset_);
    Check(file_.Read(offset_, num_bytes, chunk_.get()));
    Inspect(std::string_view(chunk_.get(), num_bytes));
    ChargeStrings();
    offset_ += num_bytes;
    setg(chunk_.get(), chunk_.get(), chunk_.get() + num_bytes);
    return traits_type::to_int_type(chunk_[0]);
  }

 private:
  static constexpr int64_t kChunk = 64 << 10;

  static void Check(const absl::Status& status) {
    if (!status.ok()) throw Refused{status};
  }

  void Refuse(const char* at, std::string_view what) const {
    Check(absl::InvalidArgumentError(absl::StrCat("byte ", offset_ - begin_ + (at - chunk_.get()), ": ", what)));
  }

  // Follows strings, no more: whether it is JSON the library says.
  void Inspect(std::string_view chunk) {
    for (const char& c : chunk) {
      if (c == '\0') Refuse(&c, "a zero byte, which no JSON text has");
      ++length_;
      if (in_string_) {
        const bool escaped = std::exchange(after_backslash_, !after_backslash_ && c == '\\');
        if (escaped || c != '"') continue;
        longest_here_ = std::max(longest_here_, length_);
        in_string_ = false;
        length_ = 0;
      } else if (c == '"') {
        in_string_ = true;
        length_ = 0;
      } else if (std::string_view("{}[]:, \n\r\t").find(c) != std::string_view::npos) {
        length_ = 0;
      } else if (length_ > kMaxWord) {
        Refuse(&c, absl::StrCat("a number or word of more than ", kMaxWord, " characters"));
      }
    }
  }

  // For the strings that end in this chunk or go on after it, before the library sees them. It is through with those
  // that ended before.
  void ChargeStrings() {
    const int64_t longest_now = std::max(longest_here_, in_string_ ? length_ : 0);
    const int64_t wanted = kKeptCopies * longest_ + kCopies * longest_now;
    Check(budget_.Charge(wanted - charged_));
    charged_ = wanted;
    longest_ = std::max(longest_, std::exchange(longest_here_, 0));
  }

  const RandomAccessFile& file_;
  const int64_t begin_;
  int64_t offset_;  // of what follows the chunk
  const int64_t end_;
  MemoryBudget& budget_;
  const std::unique_ptr<char[]> chunk_ = std::make_unique<char[]>(kChunk);

  bool in_string_ = false;
  bool after_backslash_ = false;
  int64_t length_ = 0;        // of the string or word that the last byte is part of
  int64_t longest_ = 0;       // string that ended before this chunk
  int64_t longest_here_ = 0;  // string that ended in this chunk
  int64_t charged_ = 0;
};

// What the library calls; false ends the reading.
class Sax {
 public:
  explicit Sax(JsonEvents& events) : events_(events) {}

  bool null() { return Continue(events_.Null()); }
  bool boolean(bool value) { return Continue(events_.Bool(value)); }
  bool number_integer(int64_t value) { return Continue(events_.Int(value)); }
  bool number_unsigned(uint64_t value) {
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return TooLarge(absl::StrCat(value));
    return Continue(events_.Int(static_cast<int64_t>(value)));
  }
  // Also integers that do not fit 64 bits.
  bool number_float(double value, const std::string& text) {
    if (text.find_first_of(".eE") == std::string::npos) return TooLarge(text);
    return Continue(events_.Double(value));
  }
  bool string(std::string& value) { return Continue(events_.String(std::move(value))); }
  bool binary(Json::binary_t& /*value*/) { return false; }  // not in JSON text
  bool start_object(size_t /*unknown*/) { return Continue(events_.BeginObject()); }
  bool key(std::string& key) { return Continue(events_.Key(std::move(key))); }
  bool end_object() { return Continue(events_.End()); }
  bool start_array(size_t /*unknown*/) { return Continue(events_.BeginArray()); }
  bool end_array() { return Continue(events_.End()); }

  // Its message holds the last token, which may be long; and what was expected is plain from the place.
  bool parse_error(size_t position, const std::string& /*token*/, const std::exception& /*error*/) {
    status_ = absl::InvalidArgumentError(absl::StrCat("byte ", position, ": it is not JSON from here on"));
    return false;
  }

  const absl::Status& status() const { return status_; }

 private:
  bool Continue(absl::Status status) {
    if (!status.ok()) status_ = std::move(status);
    return status_.ok();
  }
  bool TooLarge(const std::string& text) {
    return Continue(
        absl::InvalidArgumentError(absl::StrCat("the integer ", text.substr(0, 40), " does not fit 64 bits")));
  }

  JsonEvents& events_;
  absl::Status status_;
};

}  // namespace

absl::Status ReadJson(const RandomAccessFile& file, int64_t offset, int64_t num_bytes, MemoryBudget& budget,
                      JsonEvents& events) {
  Source source(file, offset, num_bytes, budget);
  std::istream stream(&source);
  Sax sax(events);
  try {
    Json::sax_parse(stream, &sax);
  } catch (const Refused& refused) {
    return refused.status;
  }
  return sax.status();
}

absl::Status ReadJson(std::string_view json, JsonEvents& events) {
  if (const size_t zero = json.find('\0'); zero != std::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat("byte ", zero, ": a zero byte, which no JSON text has"));
  }
  Sax sax(events);
  Json::sax_parse(json.data(), json.data() + json.size(), &sax);
  return sax.status();
}

}  // namespace cohort::internal
