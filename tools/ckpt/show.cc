#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "c10/core/ScalarType.h"
#include "cohort/checkpoint/state_file.h"
#include "cohort/tools/ckpt/commands.h"
#include "cohort/tools/ckpt/report.h"
#include "cohort/tools/ckpt/values.h"
#include "nlohmann/json.hpp"

namespace cohort::ckpt {
namespace {

using NamedValues = std::vector<std::pair<std::string, std::string>>;

int64_t NumBytes(const TensorHeader& tensor) {
  auto num_bytes = static_cast<int64_t>(c10::elementSize(tensor.dtype));
  for (const int64_t size : tensor.sizes) num_bytes *= size;
  return num_bytes;
}

const char* FormatName(const StateFile& file) {
  return file.format() == StateFormat::kTorch ? "torch" : "safetensors";
}

void PrintJson(const StateFile& file, const NamedValues& values) {
  // Keeps the order.
  using Json = nlohmann::ordered_json;
  Json tensors = Json::array();
  for (const TensorHeader& tensor : file.tensors()) {
    tensors.push_back(Json{{"name", tensor.name},
                           {"dtype", DtypeName(tensor.dtype)},
                           {"shape", tensor.sizes},
                           {"bytes", NumBytes(tensor)}});
  }
  Json others = Json::array();
  for (const auto& [name, text] : values) others.push_back(Json{{"name", name}, {"value", text}});
  Json metadata = Json::object();
  for (const auto& [name, text] : file.metadata()) metadata[name] = text;
  const Json all = {{"path", file.path()},         {"format", FormatName(file)}, {"checksums", file.has_checksums()},
                    {"metadata", metadata},        {"tensors", tensors},         {"values", others}};
  absl::PrintF("%s\n", all.dump(1, ' ', false, Json::error_handler_t::replace));
}

void PrintText(const StateFile& file, const NamedValues& values) {
  absl::PrintF("%s: %s, %s\n", Printable(file.path()), FormatName(file),
               file.has_checksums() ? "with checksums" : "no checksums");
  for (const auto& [name, text] : file.metadata()) {
    absl::PrintF("metadata  %s = %s\n", Printable(name), Printable(text));
  }
  std::vector<std::vector<std::string>> rows = {{"TENSOR", "DTYPE", "SHAPE", "BYTES"}};
  int64_t total = 0;
  for (const TensorHeader& tensor : file.tensors()) {
    total += NumBytes(tensor);
    rows.push_back(
        {Printable(tensor.name), DtypeName(tensor.dtype), Shape(tensor.sizes), absl::StrCat(NumBytes(tensor))});
  }
  rows.push_back({absl::StrCat(file.tensors().size(), " in all"), "", "", Size(total)});
  absl::PrintF("\n");
  PrintTable(rows);
  if (values.empty()) return;
  rows = {{"VALUE", ""}};
  for (const auto& [name, text] : values) rows.push_back({Printable(name), text});
  absl::PrintF("\n");
  PrintTable(rows);
}

}  // namespace

int Show(const std::string& path, bool as_json) {
  const absl::StatusOr<StateFile> file = StateFile::Open(path);
  if (!file.ok()) return Report(file.status());
  const absl::StatusOr<NamedValues> values = Values(*file);
  if (!values.ok()) return Report(values.status());
  as_json ? PrintJson(*file, *values) : PrintText(*file, *values);
  return kGood;
}

}  // namespace cohort::ckpt
