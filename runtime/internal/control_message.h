// File: control_message.h
//
// ControlMessage: what the ranks and the coordinator say to each other, and its bytes on the wire.

#ifndef COHORT_RUNTIME_INTERNAL_CONTROL_MESSAGE_H_
#define COHORT_RUNTIME_INTERNAL_CONTROL_MESSAGE_H_

#if __cplusplus < 202002L
#error "cohort needs C++20: build with --cxxopt=-std=c++20"
#endif

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cohort/runtime/internal/backend.h"

namespace cohort::internal {

// ---- From a rank to the coordinator ----

// The first message of a connection.
struct Hello {
  std::string token;  // proves that the sender has read what rank 0 published
  int32_t rank = 0;
  int32_t world_size = 0;
  std::string run_id;
  int64_t pid = 0;
};

// The rank is at a rendezvous and waits for its Outcome.
struct Arrive {
  uint64_t generation = 0;  // 1 for the rank's first rendezvous, 2 for its second, ...
  Arrival arrival;
};

// A data-plane operation failed on the rank. It waits to be told why, by a Poison.
struct Report {
  std::string operation;
  absl::Status error;  // DeadlineExceeded if the operation ran out of time
  absl::Duration waited;
};

// Answers WhereAreYou.
struct Here {
  uint64_t inquiry = 0;
  std::string operation;  // empty: in none
};

// The rank cannot go on, for a reason of its own, and nobody is to wait for it. It waits to be told so, by a Poison.
struct Abort {
  absl::Status why;  // not OK
};

// The rank will start no further operation. It waits at most `timeout` for its Farewell.
struct Goodbye {
  absl::Duration timeout;
};

// ---- From the coordinator to a rank ----

// The end of the rendezvous with this generation.
struct Outcome {
  uint64_t generation = 0;
  absl::Status status;
  std::vector<std::string> payloads;
};

// The group is of no more use, for this cause.
struct Poison {
  absl::Status cause;
};

// To be answered at once, whatever the rank is waiting for.
struct WhereAreYou {
  uint64_t inquiry = 0;
};

// Answers Goodbye: the rank may exit.
struct Farewell {
  absl::Status status;
};

// The order is that of the wire: append only.
using ControlMessage =
    std::variant<Hello, Arrive, Report, Here, Goodbye, Outcome, Poison, WhereAreYou, Farewell, Abort>;

// Most bytes of an operation, an error's text, a token and so on. Longer error texts are cut when they are encoded.
inline constexpr size_t kMaxTextBytes = size_t{16} << 10;
// What the body of one frame may hold: the largest payload and the texts beside it. A gathered Outcome, which only ever
// passes through memory, may be larger.
inline constexpr size_t kMaxBodyBytes = static_cast<size_t>(kMaxPayloadBytes) + 4 * kMaxTextBytes;
// The same for a Hello: what a stranger may send.
inline constexpr size_t kMaxHelloBytes = size_t{4} << 10;

// Returns one whole frame.
std::string EncodeFrame(const ControlMessage& message);

// Cuts a stream of bytes into messages. The bytes may come from anybody: nothing is allocated by a length that has not
// been checked, and never more than has arrived.
class FrameParser {
 public:
  // Refuses a first frame with a body of more than `max_first_body_bytes`, and later ones of more than kMaxBodyBytes.
  explicit FrameParser(size_t max_first_body_bytes) : max_body_bytes_(max_first_body_bytes) {}

  void Append(std::string_view bytes) { buffer_.append(bytes); }

  // Returns the next message, or nullopt if it has not arrived completely.
  //
  // Errors: InvalidArgument if these are not frames of this protocol. The stream cannot be read any further then.
  absl::StatusOr<std::optional<ControlMessage>> Next();

 private:
  size_t max_body_bytes_;
  std::string buffer_;
  size_t consumed_ = 0;  // bytes of buffer_ that have been parsed
};

}  // namespace cohort::internal

#endif  // COHORT_RUNTIME_INTERNAL_CONTROL_MESSAGE_H_
