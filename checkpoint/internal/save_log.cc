#include "cohort/checkpoint/internal/save_log.h"

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "cohort/checkpoint/checkpoint_request.h"
#include "nlohmann/json.hpp"

namespace cohort::internal {

std::string SaveLogLine(absl::Time time, int64_t step, const absl::Status& outcome, const CheckpointReport& report,
                        int64_t num_failed_saves) {
  nlohmann::ordered_json line;
  line[kSaveLogFirstKey] = absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", time, absl::UTCTimeZone());
  line["step"] = step;
  line["saved"] = outcome.ok();
  if (outcome.ok()) {
    line["path"] = report.checkpoint.path;
    line["bytes"] = report.num_bytes;
    line["wait_seconds"] = absl::ToDoubleSeconds(report.wait_time);
    line["write_seconds"] = absl::ToDoubleSeconds(report.write_time);
    line["sync_seconds"] = absl::ToDoubleSeconds(report.sync_time);
    line["publish_seconds"] = absl::ToDoubleSeconds(report.publish_time);
    line["retired"] = report.retired;
  } else {
    line["error"] = outcome.ToString();
  }
  line["blocked_seconds"] = absl::ToDoubleSeconds(report.blocked);
  line["failed_saves"] = num_failed_saves;
  // A path need not be UTF-8; JSON must.
  return line.dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace cohort::internal
