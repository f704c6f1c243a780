// ls, show, verify: what needs no tensor's values.

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cohort/checkpoint/internal/quoted.h"
#include "cohort/checkpoint/state_file.h"
#include "cohort/checkpoint/tensor_header.h"
#include "cohort/tools/ckpt/commands.h"
#include "cohort/tools/ckpt/console.h"
#include "cohort/tools/ckpt/state_text.h"
#include "cohort/tools/ckpt/text.h"
#include "nlohmann/json.hpp"

namespace cohort::ckpt {
namespace {

// The names of checkpoint files, sorted.
absl::StatusOr<std::vector<std::string>> CheckpointsIn(const std::string& directory) {
  DIR* const dir = opendir(directory.c_str());
  if (dir == nullptr) return absl::ErrnoToStatus(errno, absl::StrCat("open ", internal::Quoted(directory)));
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = readdir(dir)) {
    const std::string_view name = entry->d_name;
    const auto ends_with = [&](std::string_view suffix) { return absl::EndsWith(name, suffix); };
    if (ends_with(".pt") || ends_with(".pth") || ends_with(".safetensors")) names.emplace_back(name);
  }
  const int error = errno;
  closedir(dir);
  if (error != 0) return absl::ErrnoToStatus(error, absl::StrCat("read ", internal::Quoted(directory)));
  std::sort(names.begin(), names.end());
  return names;
}

std::string OptionalText(const std::optional<int64_t>& number) {
  return number.has_value() ? absl::StrCat(*number) : "-";
}

int64_t FileBytes(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 ? info.st_size : 0;
}

int64_t TotalBytes(const StateFile& file) {
  int64_t total = 0;
  for (const TensorHeader& header : file.tensors()) total += NumBytes(header);
  return total;
}

std::string Count(size_t number, std::string_view what) {
  return absl::StrCat(number, " ", what, number == 1 ? "" : "s");
}

std::string ShowText(const StateFile& file, const std::vector<Value>& values) {
  const int64_t total = TotalBytes(file);
  std::string out = absl::StrCat(NameText(file.path()), ": ", FormatText(file.format()), ", ",
                                 BytesText(FileBytes(file.path())), file.has_checksums() ? "" : ", no checksums", "\n");
  Table metadata;
  for (const auto& [key, text] : file.metadata())
    metadata.Add({Shortened(NameText(key)), Shortened(internal::Quoted(text))});
  if (!metadata.empty()) absl::StrAppend(&out, "\nmetadata\n", metadata.Text("  "));
  Table tensors({3});
  for (const TensorHeader& header : file.tensors()) {
    tensors.Add(
        {Shortened(NameText(header.name)), DtypeText(header), ShapeText(header), absl::StrCat(NumBytes(header))});
  }
  absl::StrAppend(&out, "\n", Count(file.tensors().size(), "tensor"), ", ", BytesText(total), "\n", tensors.Text("  "));
  Table others;
  for (const Value& value : values) {
    if (value.is_split || (value.name.empty() && value.text == "{}")) continue;
    others.Add({Shortened(NameText(value.name)), Shortened(value.text)});
  }
  if (!others.empty()) absl::StrAppend(&out, "\nother values\n", others.Text("  "));
  return out;
}

// In ASCII, a line for each tensor and value: for jq, and for a person as well.
std::string ShowJson(const StateFile& file, const std::vector<Value>& values) {
  using Json = nlohmann::ordered_json;
  const auto dump = [](const Json& json) { return json.dump(-1, ' ', true, Json::error_handler_t::replace); };
  Json metadata = Json::object();
  for (const auto& [key, text] : file.metadata()) metadata[key] = text;
  std::string out = absl::StrCat(
      "{\"file\": ", dump(file.path()),
      ",\n \"format\": ", file.format() == StateFormat::kTorch ? "\"torch\"" : "\"safetensors\"",
      ",\n \"bytes\": ", FileBytes(file.path()), ",\n \"checksums\": ", file.has_checksums() ? "true" : "false",
      ",\n \"metadata\": ", dump(metadata), ",\n \"tensors\": [");
  std::string_view separator = "\n  ";
  for (const TensorHeader& header : file.tensors()) {
    absl::StrAppend(&out, separator, "{\"name\": ", dump(header.name), ", \"dtype\": \"", DtypeText(header),
                    "\", \"shape\": ", ShapeText(header), ", \"bytes\": ", NumBytes(header), "}");
    separator = ",\n  ";
  }
  absl::StrAppend(&out, "],\n \"tensor_bytes\": ", TotalBytes(file), ",\n \"values\": [");
  separator = "\n  ";
  for (const Value& value : values) {
    if (value.is_split) continue;
    absl::StrAppend(&out, separator, "{\"name\": ", dump(value.name), ", \"type\": \"", value.type,
                    "\", \"value\": ", value.json, "}");
    separator = ",\n  ";
  }
  return absl::StrCat(out, "]}\n");
}

}  // namespace

int ListDirectory(const std::string& directory) {
  const absl::StatusOr<std::vector<std::string>> names = CheckpointsIn(directory);
  if (!names.ok()) {
    Complain(names.status().message());
    return kExitTrouble;
  }
  Table table({2, 3, 4, 5});
  if (!names->empty()) table.Add({"NAME", "FORMAT", "SIZE", "TENSORS", "STEP", "EPOCH"});
  int exit_code = kExitGood;
  for (const std::string& name : *names) {
    const std::string path = absl::StrCat(directory, "/", name);
    const absl::StatusOr<StateFile> file = OpenState(path);
    if (!file.ok()) {
      table.Add({NameText(name), Reason(file.status(), path)});
      exit_code = std::max(exit_code, IsBadFile(file.status()) ? kExitBad : kExitTrouble);
      continue;
    }
    table.Add({NameText(name), FormatText(file->format()), BytesText(FileBytes(path)),
               absl::StrCat(file->tensors().size()), OptionalText(IntegerAt(*file, "step")),
               OptionalText(IntegerAt(*file, "epoch"))});
  }
  Print(table.Text());
  return exit_code;
}

int ShowFile(const std::string& path, bool as_json) {
  const absl::StatusOr<StateFile> file = OpenState(path);
  const absl::StatusOr<std::vector<Value>> values = file.ok() ? ValuesOf(*file) : file.status();
  if (!values.ok()) {
    Complain(absl::StrCat(NameText(path), ": ", Reason(values.status(), path)));
    return IsBadFile(values.status()) ? kExitBad : kExitTrouble;
  }
  Print(as_json ? ShowJson(*file, *values) : ShowText(*file, *values));
  return kExitGood;
}

int VerifyFile(const std::string& path) {
  const auto say = [&](std::string_view result) { Print(absl::StrCat(NameText(path), ": ", result, "\n")); };
  const absl::StatusOr<StateFile> file = OpenState(path);
  absl::Status status = file.status();
  if (file.ok()) {
    ProgressBar bar(NameText(path));
    status = file->Verify([&](int64_t done, int64_t total) { bar.Show(done, total); });
  }
  if (status.ok()) {
    say(file->has_checksums() ? "ok" : "no checksums");
    return kExitGood;
  }
  if (IsBadFile(status)) {
    say(Reason(status, path));
    return kExitBad;
  }
  Complain(absl::StrCat(NameText(path), ": ", Reason(status, path)));
  return kExitTrouble;
}

}  // namespace cohort::ckpt
