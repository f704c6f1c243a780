#include "cohort/trainers/data/row_subset.h"

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/crc/crc32c.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "cohort/checkpoint/internal/quoted.h"
#include "cohort/trainers/data/row_source.h"

namespace cohort {
namespace {

class RowSubset : public RowSource {
 public:
  RowSubset(RowSourceInfo info, const RowSource& source, std::vector<int64_t> rows)
      : RowSource(std::move(info)), source_(source), rows_(std::move(rows)) {}

 private:
  absl::Status ReadInto(absl::Span<const int64_t> rows, RowBatch& batch) const override {
    std::vector<int64_t> wanted;
    wanted.reserve(rows.size());
    for (const int64_t row : rows) wanted.push_back(rows_[row]);
    ABSL_ASSIGN_OR_RETURN(batch, source_.Read(wanted));
    return absl::OkStatus();
  }

  const RowSource& source_;
  const std::vector<int64_t> rows_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RowSource>> MakeRowSubset(const RowSource& source, std::vector<int64_t> rows) {
  RowSourceInfo info = source.info();
  const auto refuse = [&](const auto&... why) {
    return absl::InvalidArgumentError(absl::StrCat(internal::Quoted(info.name), ": ", why...));
  };
  if (rows.empty()) return refuse("a part of no rows");
  for (const int64_t row : rows) {
    if (row < 0 || row >= info.num_rows) {
      return refuse("there is no row ", row, "; there are ", info.num_rows, ", from 0 on");
    }
  }
  info.num_rows = static_cast<int64_t>(rows.size());
  info.checksum = static_cast<uint32_t>(
      absl::ExtendCrc32c(absl::crc32c_t{info.checksum},
                         std::string_view(reinterpret_cast<const char*>(rows.data()), rows.size() * sizeof(int64_t))));
  return std::make_unique<RowSubset>(std::move(info), source, std::move(rows));
}

}  // namespace cohort
