// A frame is
//
//   byte 0-1  "co"       a stranger that speaks something else is recognised by its first bytes
//        2    version    1
//        3    kind       index in ControlMessage
//        4-7  length of the body, little-endian
//
// and a body the fields of the message in their order: integers little-endian, a text as a 32-bit length and its bytes.
// The lengths are checked against what is there before anything is taken; a body with bytes left over is refused as
// well.

#include "cohort/runtime/internal/control_message.h"

#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace cohort::internal {
namespace {

constexpr std::string_view kMagic = "co";
constexpr uint8_t kVersion = 1;
constexpr size_t kHeaderBytes = 8;
// Once this many parsed bytes lie before the rest, they are dropped; an empty buffer larger than this is given back.
constexpr size_t kCompactBytes = size_t{64} << 10;

class Writer {
 public:
  explicit Writer(std::string& out) : out_(out) {}

  template <typename T>
  requires std::is_integral_v<T>
  void operator()(T value) {
    auto bits = static_cast<std::make_unsigned_t<T>>(value);
    for (size_t i = 0; i < sizeof(T); ++i) {
      out_.push_back(static_cast<char>(bits >> (8 * i)));
    }
  }
  void operator()(Delivery value) { (*this)(static_cast<uint8_t>(value)); }
  void operator()(absl::Duration value) { (*this)(int64_t{absl::ToInt64Nanoseconds(value)}); }
  void operator()(std::string_view value) {
    (*this)(static_cast<uint32_t>(value.size()));
    out_.append(value);
  }
  void operator()(const absl::Status& value) {
    (*this)(static_cast<uint8_t>(value.code()));
    (*this)(std::string_view(value.message()).substr(0, kMaxTextBytes));
  }
  void operator()(const std::vector<std::string>& value) {
    (*this)(static_cast<uint32_t>(value.size()));
    for (const std::string& item : value) (*this)(std::string_view(item));
  }

 private:
  std::string& out_;
};

// Every operator() leaves the value alone and clears ok() if the bytes do not hold one.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  bool ok() const { return ok_; }
  bool done() const { return ok_ && bytes_.empty(); }

  template <typename T>
  requires std::is_integral_v<T>
  void operator()(T& value) {
    std::string_view taken = Take(sizeof(T));
    if (!ok_) return;
    std::make_unsigned_t<T> bits = 0;
    for (size_t i = 0; i < sizeof(T); ++i) {
      bits |= static_cast<std::make_unsigned_t<T>>(static_cast<uint8_t>(taken[i])) << (8 * i);
    }
    value = static_cast<T>(bits);
  }
  void operator()(Delivery& value) {
    uint8_t number = 0;
    (*this)(number);
    if (number > static_cast<uint8_t>(Delivery::kAllToAll)) ok_ = false;
    if (ok_) value = static_cast<Delivery>(number);
  }
  void operator()(absl::Duration& value) {
    int64_t nanoseconds = 0;
    (*this)(nanoseconds);
    if (ok_) value = absl::Nanoseconds(nanoseconds);
  }
  void operator()(std::string& value) {
    uint32_t size = 0;
    (*this)(size);
    std::string_view taken = Take(size);
    if (ok_) value.assign(taken);
  }
  void operator()(absl::Status& value) {
    uint8_t code = 0;
    std::string text;
    (*this)(code);
    (*this)(text);
    if (code > static_cast<uint8_t>(absl::StatusCode::kUnauthenticated)) ok_ = false;
    if (ok_) value = absl::Status(static_cast<absl::StatusCode>(code), text);
  }
  void operator()(std::vector<std::string>& value) {
    uint32_t count = 0;
    (*this)(count);
    // Grows as items are found, not by `count`.
    for (uint32_t i = 0; i < count && ok_; ++i) (*this)(value.emplace_back());
  }

 private:
  std::string_view Take(size_t size) {
    if (!ok_ || size > bytes_.size()) {
      ok_ = false;
      return {};
    }
    std::string_view taken = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return taken;
  }

  std::string_view bytes_;
  bool ok_ = true;
};

// The fields of each message, in the order of the wire, for Writer (const messages) and Reader alike.
template <typename Message, typename Coder>
void VisitFields(Message& m, Coder& coder) {
  using T = std::remove_const_t<Message>;
  auto code = [&coder](auto&... fields) { (coder(fields), ...); };
  if constexpr (std::is_same_v<T, Hello>) {
    code(m.token, m.rank, m.world_size, m.run_id, m.pid);
  } else if constexpr (std::is_same_v<T, Arrive>) {
    auto& a = m.arrival;
    code(m.generation, a.operation, a.delivery, a.status, a.timeout, a.payload);
  } else if constexpr (std::is_same_v<T, Report>) {
    code(m.operation, m.error, m.waited);
  } else if constexpr (std::is_same_v<T, Here>) {
    code(m.inquiry, m.operation);
  } else if constexpr (std::is_same_v<T, Goodbye>) {
    code(m.timeout);
  } else if constexpr (std::is_same_v<T, Outcome>) {
    code(m.generation, m.status, m.payloads);
  } else if constexpr (std::is_same_v<T, Poison>) {
    code(m.cause);
  } else if constexpr (std::is_same_v<T, WhereAreYou>) {
    code(m.inquiry);
  } else if constexpr (std::is_same_v<T, Farewell>) {
    code(m.status);
  } else {
    static_assert(std::is_same_v<T, Abort>);
    code(m.why);
  }
}

template <size_t... kKinds>
std::optional<ControlMessage> MessageOfKind(size_t kind, std::index_sequence<kKinds...>) {
  std::optional<ControlMessage> message;
  ((kind == kKinds ? void(message.emplace(std::in_place_index<kKinds>)) : void()), ...);
  return message;
}

absl::StatusOr<ControlMessage> DecodeBody(uint8_t kind, std::string_view body) {
  std::optional<ControlMessage> message =
      MessageOfKind(kind, std::make_index_sequence<std::variant_size_v<ControlMessage>>());
  if (!message.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("unknown kind of control message: ", kind));
  }
  Reader reader(body);
  std::visit([&reader](auto& m) { VisitFields(m, reader); }, *message);
  if (!reader.done()) {
    return absl::InvalidArgumentError(
        absl::StrCat("malformed control message of kind ", kind, ", ", body.size(), " bytes"));
  }
  return *std::move(message);
}

}  // namespace

std::string EncodeFrame(const ControlMessage& message) {
  std::string frame(kMagic);
  Writer writer(frame);
  writer(kVersion);
  writer(static_cast<uint8_t>(message.index()));
  writer(uint32_t{0});  // the length, when it is known
  std::visit([&writer](const auto& m) { VisitFields(m, writer); }, message);
  std::string length;
  Writer write_length(length);
  write_length(static_cast<uint32_t>(frame.size() - kHeaderBytes));
  frame.replace(kHeaderBytes - length.size(), length.size(), length);
  return frame;
}

absl::StatusOr<std::optional<ControlMessage>> FrameParser::Next() {
  std::string_view rest = std::string_view(buffer_).substr(consumed_);
  if (rest.size() < kHeaderBytes) return std::nullopt;
  uint8_t version = 0;
  uint8_t kind = 0;
  uint32_t length = 0;
  Reader header(rest.substr(kMagic.size()));
  header(version);
  header(kind);
  header(length);
  if (!rest.starts_with(kMagic) || version != kVersion) {
    return absl::InvalidArgumentError(absl::StrCat("not a control message of version ", kVersion));
  }
  if (length > max_body_bytes_) {
    return absl::InvalidArgumentError(
        absl::StrCat("a control message of ", length, " bytes; at most ", max_body_bytes_, " are allowed"));
  }
  if (rest.size() - kHeaderBytes < length) return std::nullopt;
  absl::StatusOr<ControlMessage> message = DecodeBody(kind, rest.substr(kHeaderBytes, length));
  if (!message.ok()) return message.status();
  max_body_bytes_ = kMaxBodyBytes;
  consumed_ += kHeaderBytes + length;
  if (consumed_ == buffer_.size() || consumed_ >= kCompactBytes) {
    buffer_.erase(0, consumed_);
    if (buffer_.empty() && buffer_.capacity() > kCompactBytes) buffer_.shrink_to_fit();
    consumed_ = 0;
  }
  return *std::move(message);
}

}  // namespace cohort::internal
