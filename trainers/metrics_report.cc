#include "cohort/trainers/metrics_report.h"

#include <charconv>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cohort/checkpoint/internal/report_file.h"
#include "cohort/trainers/typed_path.h"

namespace cohort {
namespace {

constexpr double kMaxExact = static_cast<double>(int64_t{1} << 53);

std::string Number(double value) {
  if (!std::isfinite(value)) return "null";
  if (value == std::floor(value) && std::abs(value) <= kMaxExact) return absl::StrCat(static_cast<int64_t>(value));
  char digits[32];
  return std::string(digits, std::to_chars(digits, digits + sizeof(digits), value).ptr);
}

}  // namespace

std::string MetricsLine(const std::vector<std::pair<std::string, double>>& values) {
  std::string line = "{";
  for (const auto& [name, value] : values) {
    absl::StrAppend(&line, line.size() > 1 ? "," : "", "\"", name, "\":", Number(value));
  }
  return line + "}";
}

absl::StatusOr<std::unique_ptr<MetricsReport>> MetricsReport::Open(std::string_view path,
                                                                   std::string_view checkpoint_dir) {
  ABSL_RETURN_IF_ERROR(internal::CheckIsNotOfRun(checkpoint_dir, "metrics_report", path));
  auto report = absl::WrapUnique(new MetricsReport(TypedPath(path)));
  const absl::Status usable = report->file_.Check();
  if (!usable.ok()) return absl::Status(usable.code(), absl::StrCat("metrics_report: ", usable.message()));
  return report;
}

absl::Status MetricsReport::Append(const std::vector<std::pair<std::string, double>>& values) {
  return file_.Append(MetricsLine(values) + "\n");
}

}  // namespace cohort
