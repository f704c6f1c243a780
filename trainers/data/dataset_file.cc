// Rows are read and not mapped, unless somebody asks for it: a page of a mapped file that cannot be had is a signal,
// and a read that fails is an error, which can be that of a batch. Both are copies from the system's cache of the file;
// for 64 rows of 4 KiB they take the same time, for 64 of 256 bytes a read costs 0.3 us a row more.

#include "cohort/trainers/data/dataset_file.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/core/ivalue.h"
#include "absl/crc/crc32c.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "c10/core/ScalarType.h"
#include "cohort/checkpoint/internal/quoted.h"
#include "cohort/checkpoint/safetensors_file.h"
#include "cohort/checkpoint/state_file.h"
#include "cohort/checkpoint/tensor_header.h"
#include "cohort/checkpoint/writable_file.h"
#include "cohort/trainers/data/row_source.h"

namespace cohort {
namespace {

using internal::Quoted;

constexpr char kFeatures[] = "features", kTargets[] = "targets";

struct Places {
  size_t features = 0, targets = 0;
};

class FileRows : public RowSource {
 public:
  FileRows(RowSourceInfo info, StateFile file, Places places, bool map)
      : RowSource(std::move(info)), file_(std::move(file)), places_(places), reading_({.map = map}) {}

 private:
  absl::Status ReadInto(absl::Span<const int64_t> rows, RowBatch& batch) const override {
    ABSL_RETURN_IF_ERROR(file_.ReadRows(places_.features, rows, batch.features, reading_));
    return file_.ReadRows(places_.targets, rows, batch.targets, reading_);
  }

  const StateFile file_;
  const Places places_;
  const ReadOptions reading_;
};

absl::StatusOr<size_t> Find(const StateFile& file, std::string_view name) {
  std::vector<std::string> names;
  for (size_t i = 0; i < file.tensors().size(); ++i) {
    if (file.tensors()[i].name == name) return i;
    if (names.size() < 20) names.push_back(Quoted(file.tensors()[i].name));
  }
  return absl::NotFoundError(absl::StrCat(Quoted(file.path()), ": a data set has a tensor ", Quoted(name),
                                          "; this file has ", names.empty() ? "none" : absl::StrJoin(names, ", ")));
}

absl::StatusOr<int64_t> NumRows(const StateFile& file, const Places& places) {
  const std::vector<int64_t>& features = file.tensors()[places.features].sizes;
  const std::vector<int64_t>& targets = file.tensors()[places.targets].sizes;
  if (!features.empty() && !targets.empty() && features[0] == targets[0] && features[0] > 0) return features[0];
  return absl::InvalidArgumentError(absl::StrCat(
      Quoted(file.path()), ": \"features\" has sizes [", absl::StrJoin(features, ", "), "] and \"targets\" [",
      absl::StrJoin(targets, ", "), "]; the first of each must be the number of rows, the same and at least 1"));
}

RowFormat FormatOf(const TensorHeader& header) {
  return {.sizes = {header.sizes.begin() + 1, header.sizes.end()}, .dtype = header.dtype};
}

absl::crc32c_t Extend(absl::crc32c_t crc, const at::Tensor& values) {
  return absl::ExtendCrc32c(crc, std::string_view(static_cast<const char*>(values.const_data_ptr()), values.nbytes()));
}

// `count` rows, at least 2, from the first to the last one; all of them if there are no more.
std::vector<int64_t> SampledRows(int64_t num_rows, int64_t count) {
  std::vector<int64_t> rows(std::min(num_rows, count));
  std::iota(rows.begin(), rows.end(), 0);
  if (num_rows <= count) return rows;
  // Multiplied by parts: num_rows may be large.
  const int64_t last = num_rows - 1, steps = count - 1;
  for (int64_t& row : rows) row = last / steps * row + last % steps * row / steps;
  return rows;
}

// What the tensors without a checksum say instead of it. One row after the other: a row may be large.
absl::StatusOr<absl::crc32c_t> Sample(const RowSource& source, bool features, bool targets) {
  absl::crc32c_t crc{0};
  ABSL_ASSIGN_OR_RETURN(const RowBatch first, source.Read({0}));
  const auto row_bytes = static_cast<int64_t>(first.features.nbytes() + first.targets.nbytes());
  const int64_t count = std::clamp<int64_t>(kSampledBytes / std::max<int64_t>(row_bytes, 1), 2, kSampledRows);
  for (const int64_t row : SampledRows(source.num_rows(), count)) {
    ABSL_ASSIGN_OR_RETURN(const RowBatch values, source.Read({row}));
    if (features) crc = Extend(crc, values.features);
    if (targets) crc = Extend(crc, values.targets);
  }
  return crc;
}

absl::StatusOr<uint32_t> ChecksumOf(const RowSource& source, const StateFile& file, const Places& places) {
  absl::crc32c_t crc{0};
  for (const size_t place : {places.features, places.targets}) {
    const TensorHeader& header = file.tensors()[place];
    crc = absl::ExtendCrc32c(
        crc, absl::StrCat(header.name, " ", at::toString(header.dtype), " ", absl::StrJoin(header.sizes, ","), " ",
                          file.checksum(place).value_or(0), "\n"));
  }
  const bool no_features = !file.checksum(places.features), no_targets = !file.checksum(places.targets);
  if (no_features || no_targets) {
    ABSL_ASSIGN_OR_RETURN(const absl::crc32c_t sample, Sample(source, no_features, no_targets));
    crc = absl::ExtendCrc32c(crc, absl::StrCat(static_cast<uint32_t>(sample)));
  }
  return static_cast<uint32_t>(crc);
}

}  // namespace

absl::StatusOr<std::unique_ptr<RowSource>> OpenDatasetFile(const std::string& path, const DatasetFileOptions& options) {
  ABSL_ASSIGN_OR_RETURN(const StateFile file, StateFile::Open(path));
  Places places;
  ABSL_ASSIGN_OR_RETURN(places.features, Find(file, kFeatures));
  ABSL_ASSIGN_OR_RETURN(places.targets, Find(file, kTargets));
  ABSL_ASSIGN_OR_RETURN(const int64_t num_rows, NumRows(file, places));
  RowSourceInfo info = {.name = path,
                        .num_rows = num_rows,
                        .features = FormatOf(file.tensors()[places.features]),
                        .targets = FormatOf(file.tensors()[places.targets])};
  if (options.verify) {
    ABSL_RETURN_IF_ERROR(file.Verify());
  }
  ABSL_ASSIGN_OR_RETURN(info.checksum, ChecksumOf(FileRows(info, file, places, options.map), file, places));
  return std::make_unique<FileRows>(std::move(info), file, places, options.map);
}

absl::Status WriteDatasetFile(const RowSource& source, WritableFile& file) {
  std::vector<int64_t> rows(source.num_rows());
  std::iota(rows.begin(), rows.end(), 0);
  ABSL_ASSIGN_OR_RETURN(const RowBatch all, source.Read(rows));
  c10::impl::GenericDict dict(c10::StringType::get(), c10::TensorType::get());
  dict.insert(kFeatures, all.features);
  dict.insert(kTargets, all.targets);
  return WriteSafetensorsFile(c10::IValue(std::move(dict)), {}, file);
}

}  // namespace cohort
