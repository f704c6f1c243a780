// File: log_directory.h
//
// Where a launch keeps the files of its ranks, laid out as torchrun lays them out:
//
//   BASE/RUN-ID_XXXXXX/attempt_K/LOCAL-RANK/{stdout.log,stderr.log,error.json}

#ifndef COHORT_TOOLS_LAUNCH_LOG_DIRECTORY_H_
#define COHORT_TOOLS_LAUNCH_LOG_DIRECTORY_H_

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cohort/tools/launch/unique_fd.h"

namespace cohort::launch {

inline constexpr std::string_view kStdoutLog = "stdout.log";
inline constexpr std::string_view kStderrLog = "stderr.log";
// Where a rank writes why it failed.
inline constexpr std::string_view kErrorFile = "error.json";

// A directory that is new for each launch and that nobody else may enter (0700), so that BASE may be shared: with
// earlier launches, with other machines, with users who would plant a symlink. Movable, not thread-safe.
class LogDirectory {
 public:
  // Makes `base` with its parents if it is not there, and the new directory in it. Nothing that is there is touched.
  //
  // Errors: by errno, with the path (`base` is no directory, may not be written, the disk is full).
  static absl::StatusOr<LogDirectory> Create(const std::string& base, std::string_view run_id);

  // Makes the new directory in `base`, which must exist, and removes it, with all that is in it, when the result dies.
  //
  // Errors: as above.
  static absl::StatusOr<LogDirectory> CreateTemporary(const std::string& base);

  LogDirectory(LogDirectory&&) = default;
  LogDirectory& operator=(LogDirectory&& other) noexcept;
  ~LogDirectory();

  // The new directory, as an absolute path.
  const std::string& path() const { return path_; }

  // Makes the directories of an attempt, one for each local rank. To be called once for each attempt, before the rest.
  //
  // Errors: by errno, with the path.
  absl::Status AddAttempt(int attempt, int num_ranks);

  // Makes a file of a rank (kStdoutLog, kStderrLog) and opens it for writing and reading. The descriptor is close-on-exec.
  //
  // Errors: by errno, with the path.
  absl::StatusOr<UniqueFd> MakeFile(int attempt, int local_rank, std::string_view name);

  // Where that is; kErrorFile (TORCHELASTIC_ERROR_FILE) is the rank's own to make.
  std::string FilePath(int attempt, int local_rank, std::string_view name) const;

 private:
  LogDirectory(std::string path, UniqueFd directory, bool is_temporary)
      : path_(std::move(path)), directory_(std::move(directory)), is_temporary_(is_temporary) {}

  static absl::StatusOr<LogDirectory> CreateIn(const std::string& base, std::string_view prefix, bool is_temporary);

  std::string path_;
  // Everything is opened from here, wherever the path leads meanwhile.
  UniqueFd directory_;
  bool is_temporary_;
};

}  // namespace cohort::launch

#endif  // COHORT_TOOLS_LAUNCH_LOG_DIRECTORY_H_
