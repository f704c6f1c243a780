#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "ATen/core/ivalue.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cohort/checkpoint/state_file.h"
#include "cohort/tools/ckpt/commands.h"
#include "cohort/tools/ckpt/report.h"

namespace cohort::ckpt {
namespace {

namespace fs = std::filesystem;

// The whole number under `key`, if there is one.
std::string Count(const StateFile& file, const char* key) {
  const absl::StatusOr<StateFile> part = file.At(key);
  if (!part.ok()) return "-";
  const absl::StatusOr<c10::IValue> value = part->Read({.map = true});
  return value.ok() && value->isInt() ? absl::StrCat(value->toInt()) : "-";
}

std::vector<std::string> Row(const fs::path& path) {
  std::error_code error;
  const auto size = static_cast<int64_t>(fs::file_size(path, error));
  std::vector<std::string> row = {Printable(path.filename().string()), error ? "-" : Size(size)};
  const absl::StatusOr<StateFile> file = StateFile::Open(path.string());
  if (!file.ok()) {
    row.insert(row.end(), {"-", "-", "-", "-", Printable(file.status().message())});
    return row;
  }
  row.insert(row.end(), {file->format() == StateFormat::kTorch ? "torch" : "safetensors",
                         absl::StrCat(file->tensors().size()), Count(*file, "step"), Count(*file, "epoch")});
  return row;
}

}  // namespace

int List(const std::string& directory) {
  std::error_code error;
  std::vector<fs::path> paths;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    const fs::path extension = entry->path().extension();
    std::error_code unreachable;  // then it is listed, with the reason
    const bool is_folder = entry->is_directory(unreachable);
    if (!is_folder && (extension == ".pt" || extension == ".pth" || extension == ".safetensors")) {
      paths.push_back(entry->path());
    }
  }
  if (error) return Report(absl::ErrnoToStatus(error.value(), absl::StrCat("cannot list ", Printable(directory))));
  std::sort(paths.begin(), paths.end());
  if (paths.empty()) {
    absl::PrintF("no .pt, .pth or .safetensors file in %s\n", Printable(directory));
    return kGood;
  }
  std::vector<std::vector<std::string>> rows = {{"NAME", "SIZE", "FORMAT", "TENSORS", "STEP", "EPOCH"}};
  for (const fs::path& path : paths) rows.push_back(Row(path));
  PrintTable(rows);
  const bool all_read = std::all_of(rows.begin(), rows.end(), [](const auto& row) { return row.size() == 6; });
  return all_read ? kGood : kBad;
}

}  // namespace cohort::ckpt
