#include "cohort/checkpoint/internal/pickle_writer.h"

#include <bit>
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
constexpr char kNone = 'N';
constexpr char kNewTrue = '\x88';
constexpr char kNewFalse = '\x89';
constexpr char kBinInt = 'J';
constexpr char kBinInt1 = 'K';
constexpr char kBinInt2 = 'M';
constexpr char kLong1 = '\x8a';
constexpr char kBinFloat = 'G';
constexpr char kBinUnicode = 'X';
constexpr char kEmptyDict = '}';
constexpr char kEmptyList = ']';
constexpr char kEmptyTuple = ')';
constexpr char kMark = '(';
constexpr char kTuple = 't';
constexpr char kAppends = 'e';
constexpr char kSetItems = 'u';
constexpr char kGlobal = 'c';
constexpr char kBinPut = 'q';
constexpr char kLongBinPut = 'r';
constexpr char kBinGet = 'h';
constexpr char kLongBinGet = 'j';
constexpr char kReduce = 'R';
constexpr char kBinPersId = 'Q';

}  // namespace

PickleWriter::PickleWriter() {
  Op(kProto);
  Op(2);
}

void PickleWriter::Number(uint64_t bits, int num_bytes) {
  for (int i = 0; i < num_bytes; ++i) Op(static_cast<char>(bits >> (8 * i)));
}

void PickleWriter::None() { Op(kNone); }
void PickleWriter::Bool(bool value) { Op(value ? kNewTrue : kNewFalse); }

void PickleWriter::Int(int64_t value) {
  const auto append = [this](char code, uint64_t bits, int num_bytes) {
    Op(code);
    Number(bits, num_bytes);
  };
  if (value >= 0 && value <= std::numeric_limits<uint8_t>::max()) return append(kBinInt1, value, 1);
  if (value >= 0 && value <= std::numeric_limits<uint16_t>::max()) return append(kBinInt2, value, 2);
  if (value == static_cast<int32_t>(value)) return append(kBinInt, value, 4);
  Op(kLong1);
  append(8, value, 8);
}

// The one number that is written with its highest byte first.
void PickleWriter::Double(double value) {
  Op(kBinFloat);
  Number(__builtin_bswap64(std::bit_cast<uint64_t>(value)), 8);
}

void PickleWriter::String(std::string_view utf8) {
  ABSL_CHECK_LE(utf8.size(), std::numeric_limits<uint32_t>::max());
  Op(kBinUnicode);
  Number(utf8.size(), 4);
  program_.append(utf8);
}

void PickleWriter::SharedString(std::string_view utf8) {
  if (GetIfKnown(absl::StrCat(std::string_view(&kBinUnicode, 1), utf8))) return;
  String(utf8);
  Put();
}

void PickleWriter::Ints(absl::Span<const int64_t> values) {
  if (values.empty()) return EmptyTuple();
  Mark();
  for (const int64_t value : values) Int(value);
  Tuple();
}

void PickleWriter::EmptyDict() { Op(kEmptyDict); }
void PickleWriter::EmptyList() { Op(kEmptyList); }
void PickleWriter::EmptyTuple() { Op(kEmptyTuple); }
void PickleWriter::Mark() { Op(kMark); }
void PickleWriter::Tuple() { Op(kTuple); }
void PickleWriter::Appends() { Op(kAppends); }
void PickleWriter::SetItems() { Op(kSetItems); }
void PickleWriter::Reduce() { Op(kReduce); }
void PickleWriter::PersistentId() { Op(kBinPersId); }

void PickleWriter::Global(std::string_view module, std::string_view name) {
  const std::string operation = absl::StrCat(std::string_view(&kGlobal, 1), module, "\n", name, "\n");
  if (GetIfKnown(operation)) return;
  program_.append(operation);
  Put();
}

// Spelled out once and fetched from the reader's memo afterwards: a state has thousands of tensors.
bool PickleWriter::GetIfKnown(std::string_view operation) {
  const auto [it, is_new] = memo_.try_emplace(operation, num_put_);
  if (!is_new) Get(it->second);
  return !is_new;
}

uint32_t PickleWriter::Put() {
  const uint32_t memo = num_put_++;
  const bool is_short = memo <= std::numeric_limits<uint8_t>::max();
  Op(is_short ? kBinPut : kLongBinPut);
  Number(memo, is_short ? 1 : 4);
  return memo;
}

void PickleWriter::Get(uint32_t memo) {
  const bool is_short = memo <= std::numeric_limits<uint8_t>::max();
  Op(is_short ? kBinGet : kLongBinGet);
  Number(memo, is_short ? 1 : 4);
}

std::string PickleWriter::Finish() {
  Op(kStop);
  return std::move(program_);
}

}  // namespace cohort::internal
