#include "cohort/checkpoint/safetensors_file.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/core/ivalue.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "cohort/checkpoint/internal/append_and_checksum.h"
#include "cohort/checkpoint/internal/crc32.h"
#include "cohort/checkpoint/internal/dtype.h"
#include "cohort/checkpoint/internal/quoted.h"
#include "cohort/checkpoint/internal/safetensors_layout.h"
#include "cohort/checkpoint/internal/saved_tensor.h"
#include "cohort/checkpoint/internal/state_value.h"
#include "cohort/checkpoint/writable_file.h"
#include "cohort/runtime/torch_status.h"

namespace cohort {
namespace {

using internal::SafetensorsLayout;
using internal::SavedTensor;
using internal::StateParts;

// The values, and not what a mark says of them: the format has no marks.
at::Tensor Values(const SavedTensor& saved) {
  at::Tensor values = saved.tensor;
  if (saved.conjugated) values = values._conj();
  if (saved.negated) values = values._neg_view();
  return values.resolve_conj().resolve_neg();
}

// LibTorch lacks the negative of some dtypes. Found out with one element, before anything is written.
absl::Status CheckMarks(const SavedTensor& saved, std::string_view name) {
  if (!saved.conjugated && !saved.negated) return absl::OkStatus();
  SavedTensor element = saved;
  element.tensor = saved.tensor.new_zeros({1});
  const absl::Status status = InvokeTorch([&] { Values(element); });
  if (status.ok()) return status;
  return absl::UnimplementedError(absl::StrCat("tensor ", internal::Quoted(name),
                                               " is marked as negated or conjugated, and LibTorch does not do that to ",
                                               internal::InfoOf(saved.dtype).name));
}

absl::Status Write(const c10::IValue& state, absl::Span<const std::pair<std::string, std::string>> metadata,
                   WritableFile& file) {
  ABSL_ASSIGN_OR_RETURN(const StateParts parts, internal::TakeApart(state));
  std::vector<internal::TensorShape> shapes;
  shapes.reserve(parts.tensors.size());
  for (size_t i = 0; i < parts.tensors.size(); ++i) {
    const SavedTensor& saved = parts.tensors[i];
    ABSL_RETURN_IF_ERROR(CheckMarks(saved, parts.names[i]));
    shapes.push_back({saved.dtype, saved.tensor.sizes().vec()});
  }
  ABSL_ASSIGN_OR_RETURN(const SafetensorsLayout layout,
                        internal::LayOutSafetensors(parts.tree, shapes, {metadata.begin(), metadata.end()}));

  std::vector<uint32_t> crc32s(parts.tensors.size());
  const std::string_view header = layout.header;
  const size_t reserved = layout.Checksums(crc32s).bytes.size();
  ABSL_RETURN_IF_ERROR(file.Append(header.substr(0, layout.checksums_offset)));
  ABSL_RETURN_IF_ERROR(file.Reserve(static_cast<int64_t>(reserved)));
  ABSL_RETURN_IF_ERROR(file.Append(header.substr(layout.checksums_offset + reserved)));
  for (const size_t i : layout.order) {
    const auto append = [&](std::string_view bytes) -> absl::Status {
      ABSL_ASSIGN_OR_RETURN(const uint32_t crc32, internal::AppendAndChecksum(bytes, file));
      crc32s[i] = internal::CombineCrc32(crc32s[i], crc32, static_cast<int64_t>(bytes.size()));
      return absl::OkStatus();
    };
    ABSL_RETURN_IF_ERROR(internal::AppendElements(Values(parts.tensors[i]), append));
  }
  const SafetensorsLayout::Overwrite checksums = layout.Checksums(crc32s);
  return file.Overwrite(checksums.offset, checksums.bytes);
}

}  // namespace

absl::Status WriteSafetensorsFile(const c10::IValue& state,
                                  absl::Span<const std::pair<std::string, std::string>> metadata, WritableFile& file) {
  return InvokeTorch([&] { return Write(state, metadata, file); });
}

}  // namespace cohort
