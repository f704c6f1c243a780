#include "cohort/checkpoint/internal/pickle_writer.h"

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "absl/log/absl_check.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"

namespace cohort::internal {
namespace {

// Operation codes, as in Python's pickle.py.
constexpr char kProto = '\x80';
constexpr char kStop = '.';
constexpr char kNewTrue = '\x88';
constexpr char kNewFalse = '\x89';
constexpr char kBinInt = 'J';
constexpr char kBinInt1 = 'K';
constexpr char kBinInt2 = 'M';
constexpr char kLong1 = '\x8a';
constexpr char kBinUnicode = 'X';
constexpr char kEmptyDict = '}';
constexpr char kEmptyTuple = ')';
constexpr char kMark = '(';
constexpr char kTuple = 't';
constexpr char kSetItems = 'u';
constexpr char kGlobal = 'c';
constexpr char kBinPut = 'q';
constexpr char kBinGet = 'h';
constexpr char kReduce = 'R';
constexpr char kBinPersId = 'Q';

}  // namespace

PickleWriter::PickleWriter() {
  Op(kProto);
  Op(2);
}

void PickleWriter::Bool(bool value) { Op(value ? kNewTrue : kNewFalse); }

void PickleWriter::Int(int64_t value) {
  const auto append = [this](char code, uint64_t bits, int num_bytes) {
    Op(code);
    for (int i = 0; i < num_bytes; ++i) Op(static_cast<char>(bits >> (8 * i)));
  };
  if (value >= 0 && value <= std::numeric_limits<uint8_t>::max()) return append(kBinInt1, value, 1);
  if (value >= 0 && value <= std::numeric_limits<uint16_t>::max()) return append(kBinInt2, value, 2);
  if (value == static_cast<int32_t>(value)) return append(kBinInt, value, 4);
  Op(kLong1);
  append(8, value, 8);
}

void PickleWriter::String(std::string_view utf8) {
  ABSL_CHECK_LE(utf8.size(), std::numeric_limits<uint32_t>::max());
  Op(kBinUnicode);
  for (int i = 0; i < 4; ++i) Op(static_cast<char>(utf8.size() >> (8 * i)));
  program_.append(utf8);
}

void PickleWriter::Ints(absl::Span<const int64_t> values) {
  if (values.empty()) return EmptyTuple();
  Mark();
  for (const int64_t value : values) Int(value);
  Tuple();
}

void PickleWriter::EmptyDict() { Op(kEmptyDict); }
void PickleWriter::EmptyTuple() { Op(kEmptyTuple); }
void PickleWriter::Mark() { Op(kMark); }
void PickleWriter::Tuple() { Op(kTuple); }
void PickleWriter::SetItems() { Op(kSetItems); }
void PickleWriter::Reduce() { Op(kReduce); }
void PickleWriter::PersistentId() { Op(kBinPersId); }

void PickleWriter::Global(std::string_view module, std::string_view name) {
  const std::string global = absl::StrCat(module, "\n", name, "\n");
  const auto [it, is_new] = memo_.emplace(global, static_cast<int>(memo_.size()));
  ABSL_CHECK_LT(it->second, 256);
  if (is_new) {
    Op(kGlobal);
    program_.append(global);
  }
  // Spelled out once and fetched from the reader's memo afterwards: a state has thousands of tensors.
  Op(is_new ? kBinPut : kBinGet);
  Op(static_cast<char>(it->second));
}

std::string PickleWriter::Finish() {
  Op(kStop);
  return std::move(program_);
}

}  // namespace cohort::internal
