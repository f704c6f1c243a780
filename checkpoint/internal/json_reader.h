// File: json_reader.h
//
// ReadJson: JSON from a file of unknown origin, event by event. No document is built: one takes many times its text.

#ifndef COHORT_CHECKPOINT_INTERNAL_JSON_READER_H_
#define COHORT_CHECKPOINT_INTERNAL_JSON_READER_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "cohort/checkpoint/internal/memory_budget.h"
#include "cohort/checkpoint/internal/random_access_file.h"

namespace cohort::internal {

// Is told what the text holds, in its order. An error ends the reading and is returned.
class JsonEvents {
 public:
  virtual ~JsonEvents() = default;

  virtual absl::Status Null() = 0;
  virtual absl::Status Bool(bool value) = 0;
  virtual absl::Status Int(int64_t value) = 0;         // a number without fraction and exponent
  virtual absl::Status Double(double value) = 0;       // finite; any other number
  virtual absl::Status String(std::string value) = 0;  // UTF-8
  virtual absl::Status Key(std::string key) = 0;       // of the value that follows; UTF-8
  virtual absl::Status BeginObject() = 0;
  virtual absl::Status BeginArray() = 0;
  virtual absl::Status End() = 0;  // of the object or array that began last and has not ended
};

// Reads the `num_bytes` of `file` from `offset` on, which the caller has checked, as one JSON value: RFC 8259, without
// comments, and white space around it. Keys that occur twice are for `events` to see.
//
// Memory: a fixed amount, and what the longest string needs, which is charged to `budget` meanwhile. Nothing recurses;
// what nesting is allowed `events` decides.
//
// Errors: InvalidArgument, with the place in the text; those of `events`, of `budget` and of RandomAccessFile::Read.
absl::Status ReadJson(const RandomAccessFile& file, int64_t offset, int64_t num_bytes, MemoryBudget& budget,
                      JsonEvents& events);

// The same of a text in memory. It takes a few times the text's length: for texts whose length has been checked.
absl::Status ReadJson(std::string_view json, JsonEvents& events);

}  // namespace cohort::internal

#endif  // COHORT_CHECKPOINT_INTERNAL_JSON_READER_H_
