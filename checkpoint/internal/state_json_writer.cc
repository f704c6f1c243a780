#include <bit>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "cohort/checkpoint/internal/json_writer.h"
#include "cohort/checkpoint/internal/quoted.h"
#include "cohort/checkpoint/internal/state_json.h"
#include "cohort/checkpoint/internal/state_tree.h"
#include "cohort/checkpoint/internal/utf8.h"

namespace cohort::internal {
namespace {

// Where a value is: keys of dicts, and places in lists and tuples, from the root on.
using Path = std::vector<StateKey>;

std::string Joined(const Path& path) {
  std::string name;
  for (size_t i = 0; i < path.size(); ++i) {
    if (i > 0) name += '.';
    std::visit([&](const auto& key) { absl::StrAppend(&name, key); }, path[i]);
  }
  return name;
}

// As Python would write it.
std::string Place(const Path& path) {
  std::string place = "state";
  for (const StateKey& key : path) {
    const std::string* text = std::get_if<std::string>(&key);
    absl::StrAppend(&place, "[", text == nullptr ? absl::StrCat(std::get<int64_t>(key)) : Quoted(*text), "]");
  }
  return place;
}

// Makes `path` the first place of the tensor, and returns true, if `tree` has it.
bool FindPlace(const StateTree& tree, size_t index, Path& path) {
  const auto find_at = [&](const StateKey& key, const StateTree& value) {
    path.push_back(key);
    if (FindPlace(value, index, path)) return true;
    path.pop_back();
    return false;
  };
  const auto find_in = [&](const std::vector<StateTree>& items) {
    for (size_t i = 0; i < items.size(); ++i) {
      if (find_at(static_cast<int64_t>(i), items[i])) return true;
    }
    return false;
  };
  if (const auto* tensor = std::get_if<TensorIndex>(&tree.value)) return tensor->index == index;
  if (const auto* list = std::get_if<StateList>(&tree.value)) return find_in(list->items);
  if (const auto* tuple = std::get_if<StateTuple>(&tree.value)) return find_in(tuple->items);
  if (const auto* dict = std::get_if<StateDict>(&tree.value)) {
    for (const auto& [key, value] : dict->items) {
      if (find_at(key, value)) return true;
    }
  }
  return false;
}

class Namer {
 public:
  explicit Namer(const StateTree& root) : root_(root) {}

  absl::Status Visit(const StateTree& tree) {
    if (const auto* text = std::get_if<std::string>(&tree.value)) {
      if (!IsUtf8(*text)) return Error("a string that is not UTF-8: ", Quoted(*text));
    } else if (const auto* tensor = std::get_if<TensorIndex>(&tree.value)) {
      return Name(*tensor);
    } else if (const auto* list = std::get_if<StateList>(&tree.value)) {
      return VisitItems(list->items);
    } else if (const auto* tuple = std::get_if<StateTuple>(&tree.value)) {
      return VisitItems(tuple->items);
    } else if (const auto* dict = std::get_if<StateDict>(&tree.value)) {
      return VisitDict(*dict);
    }
    return absl::OkStatus();
  }

  std::vector<NamedTensor> TakeNames() { return std::move(named_); }

 private:
  template <typename... Parts>
  absl::Status Error(const Parts&... parts) const {
    return absl::InvalidArgumentError(absl::StrCat(Place(path_), ": ", parts...));
  }

  absl::Status VisitItems(const std::vector<StateTree>& items) {
    ABSL_RETURN_IF_ERROR(CheckDepth());
    for (size_t i = 0; i < items.size(); ++i) ABSL_RETURN_IF_ERROR(VisitAt(static_cast<int64_t>(i), items[i]));
    return absl::OkStatus();
  }

  absl::Status VisitDict(const StateDict& dict) {
    ABSL_RETURN_IF_ERROR(CheckDepth());
    ABSL_RETURN_IF_ERROR(CheckKeys(dict));
    for (const auto& [key, value] : dict.items) ABSL_RETURN_IF_ERROR(VisitAt(key, value));
    return absl::OkStatus();
  }

  absl::Status VisitAt(const StateKey& key, const StateTree& value) {
    path_.push_back(key);
    const absl::Status status = Visit(value);
    path_.pop_back();
    return status;
  }

  absl::Status CheckDepth() const {
    if (path_.size() < kMaxStateDepth) return absl::OkStatus();
    return Error("containers are nested more than ", kMaxStateDepth, " deep");
  }

  absl::Status CheckKeys(const StateDict& dict) const {
    for (const auto& [key, value] : dict.items) {
      const auto* text = std::get_if<std::string>(&key);
      if (text != nullptr && !IsUtf8(*text)) return Error("a key that is not UTF-8: ", Quoted(*text));
    }
    return absl::OkStatus();
  }

  absl::Status Name(TensorIndex tensor) {
    if (!seen_.insert(tensor.index).second) return absl::OkStatus();
    std::string name = Joined(path_);
    if (name == "__metadata__") return Error("no tensor can be called \"__metadata__\" in a safetensors file");
    if (const auto [it, is_new] = by_name_.try_emplace(name, tensor.index); !is_new) {
      Path other;
      FindPlace(root_, it->second, other);
      return Error("this tensor and ", Place(other), " would both be called ", Quoted(name));
    }
    named_.push_back({tensor, std::move(name)});
    return absl::OkStatus();
  }

  Path path_;
  const StateTree& root_;
  absl::flat_hash_set<size_t> seen_;  // indices
  absl::flat_hash_map<std::string, size_t> by_name_;
  std::vector<NamedTensor> named_;
};

class Writer {
 public:
  explicit Writer(absl::Span<const NamedTensor> tensors) {
    for (const NamedTensor& tensor : tensors) names_.emplace(tensor.tensor.index, tensor.name);
  }

  void Write(const StateTree& tree) {
    std::visit([this](const auto& value) { Append(value); }, tree.value);
  }

  std::string TakeJson() { return std::move(json_); }

 private:
  void Append(std::monostate) { json_ += "null"; }
  void Append(bool value) { json_ += value ? "true" : "false"; }
  void Append(int64_t value) { absl::StrAppend(&json_, value); }
  void Append(const std::string& value) { AppendJsonString(value, json_); }

  void Append(double value) {
    if (std::isfinite(value)) return AppendJsonDouble(value, json_);
    json_ += R"({"$float":")";
    constexpr uint64_t kNan = std::bit_cast<uint64_t>(std::numeric_limits<double>::quiet_NaN());
    if (std::isinf(value)) {
      json_ += value > 0 ? "inf" : "-inf";
    } else if (const uint64_t bits = std::bit_cast<uint64_t>(value); bits == kNan) {
      json_ += "nan";
    } else {
      absl::StrAppendFormat(&json_, "0x%016x", bits);
    }
    json_ += R"("})";
  }

  void Append(const std::complex<double>& value) {
    json_ += R"({"$complex":[)";
    Append(value.real());
    json_ += ',';
    Append(value.imag());
    json_ += "]}";
  }

  void Append(const TensorIndex& tensor) {
    json_ += R"({"$tensor":)";
    AppendJsonString(names_.at(tensor.index), json_);
    json_ += '}';
  }

  void Append(const StateList& list) { AppendItems(list.items); }

  void Append(const StateTuple& tuple) {
    json_ += R"({"$tuple":)";
    AppendItems(tuple.items);
    json_ += '}';
  }

  void AppendItems(const std::vector<StateTree>& items) {
    json_ += '[';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) json_ += ',';
      Write(items[i]);
    }
    json_ += ']';
  }

  void Append(const StateDict& dict) {
    const bool is_object = IsObject(dict);
    json_ += is_object ? "{" : R"({"$dict":[)";
    for (size_t i = 0; i < dict.items.size(); ++i) {
      const auto& [key, value] = dict.items[i];
      absl::StrAppend(&json_, i > 0 ? "," : "", is_object ? "" : "[");
      std::visit([this](const auto& text_or_number) { Append(text_or_number); }, key);
      json_ += is_object ? ':' : ',';
      Write(value);
      if (!is_object) json_ += ']';
    }
    json_ += is_object ? "}" : "]}";
  }

  static bool IsObject(const StateDict& dict) {
    for (const auto& [key, value] : dict.items) {
      const auto* text = std::get_if<std::string>(&key);
      if (text == nullptr || absl::StartsWith(*text, "$")) return false;
    }
    return true;
  }

  absl::flat_hash_map<size_t, std::string_view> names_;
  std::string json_;
};

}  // namespace

absl::StatusOr<std::vector<NamedTensor>> NameTensors(const StateTree& tree) {
  Namer namer(tree);
  ABSL_RETURN_IF_ERROR(namer.Visit(tree));
  return namer.TakeNames();
}

bool IsOnlyTensors(const StateTree& tree, absl::Span<const NamedTensor> tensors) {
  const auto* dict = std::get_if<StateDict>(&tree.value);
  if (dict == nullptr || dict->items.size() != tensors.size()) return false;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto& [key, value] = dict->items[i];
    const auto* name = std::get_if<std::string>(&key);
    if (name == nullptr || *name != tensors[i].name || !std::holds_alternative<TensorIndex>(value.value)) return false;
  }
  return true;
}

std::string StateToJson(const StateTree& tree, absl::Span<const NamedTensor> tensors) {
  Writer writer(tensors);
  writer.Write(tree);
  return writer.TakeJson();
}

}  // namespace cohort::internal
