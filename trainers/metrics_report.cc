#include "cohort/trainers/metrics_report.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
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
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cohort/checkpoint/internal/quoted.h"
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

absl::StatusOr<std::unique_ptr<MetricsReport>> MetricsReport::Open(std::string_view path) {
  std::string typed = TypedPath(path);
  const int fd = open(typed.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("metrics_report ", internal::Quoted(typed)));
  return absl::WrapUnique(new MetricsReport(fd, std::move(typed)));
}

MetricsReport::~MetricsReport() { close(fd_); }

absl::Status MetricsReport::Append(const std::vector<std::pair<std::string, double>>& values) {
  const std::string line = MetricsLine(values) + "\n";
  std::string_view rest = line;
  while (!rest.empty()) {
    const ssize_t written = write(fd_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return absl::ErrnoToStatus(errno, absl::StrCat("metrics_report ", internal::Quoted(path_)));
    rest.remove_prefix(written);
  }
  return absl::OkStatus();
}

}  // namespace cohort
