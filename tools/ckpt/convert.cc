// SRC is verified before anything is written, then mapped: its tensors go from the file to the file.

#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "ATen/core/ivalue.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "cohort/checkpoint/internal/quoted.h"
#include "cohort/checkpoint/main_only_saver.h"
#include "cohort/checkpoint/safetensors_file.h"
#include "cohort/checkpoint/state_file.h"
#include "cohort/checkpoint/tensor_header.h"
#include "cohort/checkpoint/torch_file.h"
#include "cohort/checkpoint/writable_file.h"
#include "cohort/runtime/process_group.h"
#include "cohort/tools/ckpt/commands.h"
#include "cohort/tools/ckpt/console.h"
#include "cohort/tools/ckpt/state_text.h"
#include "cohort/tools/ckpt/text.h"

namespace cohort::ckpt {
namespace {

using Metadata = std::vector<std::pair<std::string, std::string>>;

// Shows how much of `total` has been written.
class WatchedFile final : public WritableFile {
 public:
  WatchedFile(WritableFile& file, int64_t total, ProgressBar& bar) : file_(file), total_(total), bar_(bar) {}

  absl::Status Append(std::string_view bytes) override {
    ABSL_RETURN_IF_ERROR(file_.Append(bytes));
    bar_.Show(num_bytes(), total_);
    return absl::OkStatus();
  }
  absl::Status Overwrite(int64_t offset, std::string_view bytes) override { return file_.Overwrite(offset, bytes); }
  int64_t num_bytes() const override { return file_.num_bytes(); }

 private:
  WritableFile& file_;
  const int64_t total_;
  ProgressBar& bar_;
};

// A file that is converted onto itself, by whatever name, would be the only copy.
bool IsSameFile(const std::string& a, const std::string& b) {
  struct stat info_a, info_b;
  return stat(a.c_str(), &info_a) == 0 && stat(b.c_str(), &info_b) == 0 && info_a.st_dev == info_b.st_dev &&
         info_a.st_ino == info_b.st_ino;
}

// A directory, a pipe or a device.
bool IsNoFile(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode);
}

// The texts that DST gets. "format" = "pt" says in safetensors files who wrote the tensors, and some readers insist on
// it: it comes and goes with the format.
absl::StatusOr<Metadata> TargetMetadata(const StateFile& source, const Conversion& conversion) {
  if (conversion.format == StateFormat::kSafetensors) {
    if (source.format() == StateFormat::kTorch) return Metadata{{"format", "pt"}};
    return Metadata(source.metadata().begin(), source.metadata().end());
  }
  for (const auto& [key, text] : source.metadata()) {
    if (key == "format" || conversion.drop_metadata) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(internal::Quoted(source.path()), ": a .pt file has no place for the metadata ",
                     Shortened(internal::Quoted(key)), "; --drop-metadata leaves it out"));
  }
  return Metadata();
}

// safetensors has no views: a tensor of one element that is shown a million times becomes a million elements, and a small file
// one that fills the disk.
absl::Status CheckSpace(const StateFile& source, const Conversion& conversion) {
  if (conversion.format != StateFormat::kSafetensors) return absl::OkStatus();
  double needed = 0;
  for (const TensorHeader& header : source.tensors()) needed += static_cast<double>(NumBytes(header));
  std::error_code error;
  const std::filesystem::path directory = std::filesystem::absolute(conversion.target, error).parent_path();
  const std::filesystem::space_info space = std::filesystem::space(directory, error);
  if (error || needed <= static_cast<double>(space.available)) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(internal::Quoted(conversion.target), " would have ",
                                                   BytesText(static_cast<int64_t>(std::min(needed, 9e18))), ", and ",
                                                   BytesText(static_cast<int64_t>(space.available)), " are free"));
}

absl::StatusOr<SaveReport> Write(const StateFile& source, const Conversion& conversion, const Metadata& metadata,
                                 ProgressBar& bar) {
  ABSL_ASSIGN_OR_RETURN(const c10::IValue state, source.Read({.verify = false, .map = true}));
  int64_t total = 0;
  for (const TensorHeader& header : source.tensors()) total += NumBytes(header);
  const std::unique_ptr<ProcessGroup> group = ProcessGroup::WorldOfOne();
  // A person who waits may stop it; a clock should not.
  MainOnlySaver saver(group.get(), {.timeout = absl::Hours(24 * 365)});
  return saver.Save(conversion.target, [&](WritableFile& file) {
    WatchedFile watched(file, total, bar);
    const absl::Status written = conversion.format == StateFormat::kTorch
                                     ? WriteTorchFile(state, watched)
                                     : WriteSafetensorsFile(state, metadata, watched);
    if (!IsBadFile(written) && !absl::IsUnimplemented(written)) return written;
    return absl::Status(written.code(), absl::StrCat(internal::Quoted(source.path()), " does not fit into ",
                                                     FormatText(conversion.format), ": ", written.message()));
  });
}

absl::Status Convert(const Conversion& conversion) {
  ABSL_ASSIGN_OR_RETURN(const StateFile source, OpenState(conversion.source));
  if (IsSameFile(conversion.source, conversion.target)) {
    return absl::FailedPreconditionError(absl::StrCat(internal::Quoted(conversion.target), " is the same file as ",
                                                      internal::Quoted(conversion.source)));
  }
  if (IsNoFile(conversion.target)) {
    return absl::FailedPreconditionError(
        absl::StrCat(internal::Quoted(conversion.target), " is there, and is no file"));
  }
  ABSL_ASSIGN_OR_RETURN(const Metadata metadata, TargetMetadata(source, conversion));
  ABSL_RETURN_IF_ERROR(CheckSpace(source, conversion));
  absl::StatusOr<SaveReport> report;
  {
    ProgressBar bar(absl::StrCat(NameText(conversion.source), " to ", NameText(conversion.target)));
    ABSL_RETURN_IF_ERROR(source.Verify([&](int64_t done, int64_t total) { bar.Show(done, total); }));
    report = Write(source, conversion, metadata, bar);
  }
  ABSL_RETURN_IF_ERROR(report.status());
  Print(absl::StrCat("wrote ", NameText(report->path), ": ", FormatText(conversion.format), ", ",
                     source.tensors().size(), source.tensors().size() == 1 ? " tensor, " : " tensors, ",
                     BytesText(report->num_bytes), "\n"));
  return absl::OkStatus();
}

}  // namespace

int ConvertFile(const Conversion& conversion) {
  const absl::Status status = Convert(conversion);
  if (status.ok()) return kExitGood;
  Complain(absl::StripPrefix(status.message(), "rank 0: "));
  return IsBadFile(status) || absl::IsUnimplemented(status) ? kExitBad : kExitTrouble;
}

}  // namespace cohort::ckpt
