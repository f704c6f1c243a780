#include "cohort/trainers/agree_on_same.h"

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cohort/runtime/process_group.h"

namespace cohort {

absl::Status AgreeOnSame(ProcessGroup& group, std::string_view name, absl::StatusOr<std::string> mine) {
  ABSL_ASSIGN_OR_RETURN(const std::string mains, group.BroadcastBytes(name, mine));
  return group.Agree(name, *mine == mains ? absl::OkStatus()
                                          : absl::InvalidArgumentError(absl::StrCat(
                                                name, " differs between ranks: here ", *mine, "; on rank 0 ", mains)));
}

}  // namespace cohort
