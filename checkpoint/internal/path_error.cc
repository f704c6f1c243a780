#include "cohort/checkpoint/internal/path_error.h"

#include <cerrno>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cohort/checkpoint/internal/quoted.h"

namespace cohort::internal {
namespace {

// absl's table, but for causes that it leaves vague or that mean something more precise of a path.
absl::StatusCode CodeOf(int error) {
  switch (error) {
    case EFBIG:
      return absl::StatusCode::kResourceExhausted;
    case EIO:
      return absl::StatusCode::kUnavailable;
    case ELOOP:
    case ENOTDIR:
    case EISDIR:
      return absl::StatusCode::kInvalidArgument;
    default:
      return absl::ErrnoToStatusCode(error);
  }
}

}  // namespace

absl::Status PathError(int error, std::string_view operation, std::string_view path) {
  const absl::Status plain = absl::ErrnoToStatus(error, absl::StrCat(operation, " ", Quoted(path)));
  const std::string_view hint =
      error == EFBIG ? " (a limit of the process, see `ulimit -f`, or of the file system)" : "";
  return absl::Status(CodeOf(error), absl::StrCat(plain.message(), hint));
}

}  // namespace cohort::internal
