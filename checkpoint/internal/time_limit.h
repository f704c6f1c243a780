// File: time_limit.h
//
// TimeLimit: how long the main rank may write while the others wait for it.

#ifndef COHORT_CHECKPOINT_INTERNAL_TIME_LIMIT_H_
#define COHORT_CHECKPOINT_INTERNAL_TIME_LIMIT_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cohort/checkpoint/writable_file.h"

namespace cohort::internal {

// Time since it was made, by a clock that nobody sets.
class Stopwatch {
 public:
  absl::Duration Elapsed() const { return absl::FromChrono(std::chrono::steady_clock::now() - start_); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// InvalidArgument unless `timeout` can be one.
inline absl::Status CheckSaveTimeout(absl::Duration timeout) {
  if (timeout > absl::ZeroDuration()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the save timeout is ", absl::FormatDuration(timeout), "; it must be positive"));
}

// How long the other ranks wait, to hear that the main rank has given up instead of giving up themselves.
inline absl::Duration WithGrace(absl::Duration timeout) {
  return timeout + std::clamp(timeout / 10, absl::Milliseconds(500), absl::Seconds(30));
}

class TimeLimit {
 public:
  explicit TimeLimit(absl::Duration limit) : limit_(limit) {}

  // DeadlineExceeded once the time is over. To be asked before anything that cannot be undone.
  absl::Status Check() const {
    const absl::Duration elapsed = clock_.Elapsed();
    if (elapsed <= limit_) return absl::OkStatus();
    return absl::DeadlineExceededError(absl::StrCat("the save was given up after ", absl::FormatDuration(elapsed),
                                                    "; its timeout is ", absl::FormatDuration(limit_),
                                                    "; what was saved before is as it was"));
  }

 private:
  const absl::Duration limit_;
  const Stopwatch clock_;
};

// What a payload writes into: another file, as long as there is time.
class TimedFile final : public WritableFile {
 public:
  TimedFile(WritableFile& file, const TimeLimit& limit) : file_(file), limit_(limit) {}

  absl::Status Append(std::string_view bytes) override {
    ABSL_RETURN_IF_ERROR(limit_.Check());
    return file_.Append(bytes);
  }
  absl::Status AppendWithCrc32(std::string_view bytes, uint32_t crc32) override {
    ABSL_RETURN_IF_ERROR(limit_.Check());
    return file_.AppendWithCrc32(bytes, crc32);
  }
  absl::Status Reserve(int64_t num_bytes) override {
    ABSL_RETURN_IF_ERROR(limit_.Check());
    return file_.Reserve(num_bytes);
  }
  absl::Status Overwrite(int64_t offset, std::string_view bytes) override {
    ABSL_RETURN_IF_ERROR(limit_.Check());
    return file_.Overwrite(offset, bytes);
  }
  int64_t num_bytes() const override { return file_.num_bytes(); }

 private:
  WritableFile& file_;
  const TimeLimit& limit_;
};

}  // namespace cohort::internal

#endif  // COHORT_CHECKPOINT_INTERNAL_TIME_LIMIT_H_
