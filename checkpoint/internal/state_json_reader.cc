// Every JSON object becomes a dict and every array a list, one after the other as they end. An object with a key such
// as "$tuple" is then replaced by what it stands for: its parts are complete by that time.

#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "cohort/checkpoint/internal/duplicate_name.h"
#include "cohort/checkpoint/internal/json_reader.h"
#include "cohort/checkpoint/internal/memory_budget.h"
#include "cohort/checkpoint/internal/quoted.h"
#include "cohort/checkpoint/internal/random_access_file.h"
#include "cohort/checkpoint/internal/state_json.h"
#include "cohort/checkpoint/internal/state_tree.h"

namespace cohort::internal {
namespace {

// A dict takes most: an object, a list, and a list for each item. A complex number in it takes three more.
constexpr int kMaxNesting = 3 * kMaxStateDepth + 3;

absl::Status Error(std::string_view what) { return absl::InvalidArgumentError(what); }

class Builder : public JsonEvents {
 public:
  Builder(absl::flat_hash_map<std::string_view, size_t> places, MemoryBudget& budget)
      : places_(std::move(places)), seen_(places_.size()), budget_(budget) {}

  absl::Status Null() override { return Add({}, 0); }
  absl::Status Bool(bool value) override { return Add({value}, 0); }
  absl::Status Int(int64_t value) override { return Add({value}, 0); }
  absl::Status Double(double value) override { return Add({value}, 0); }
  absl::Status String(std::string value) override {
    ABSL_RETURN_IF_ERROR(budget_.Charge(HeapBytes(value)));
    return Add({std::move(value)}, 0);
  }
  absl::Status Key(std::string key) override {
    ABSL_RETURN_IF_ERROR(budget_.Charge(HeapBytes(key)));
    open_.back().key = std::move(key);
    return absl::OkStatus();
  }
  absl::Status BeginObject() override { return Begin({StateDict{}}); }
  absl::Status BeginArray() override { return Begin({StateList{}}); }

  absl::Status End() override {
    Open ended = std::move(open_.back());
    open_.pop_back();
    int depth = ended.depth + 1;
    if (auto* dict = std::get_if<StateDict>(&ended.container.value)) {
      ABSL_RETURN_IF_ERROR(CheckDistinct(*dict));
      if (HasTag(*dict)) {
        ABSL_ASSIGN_OR_RETURN(ended.container, Untag(*dict, depth));
      }
    }
    // Only of the whole is it known that no object around it still becomes something flatter.
    if (open_.empty() && depth > kMaxStateDepth) {
      return Error(absl::StrCat("containers are nested more than ", kMaxStateDepth, " deep"));
    }
    return Add(std::move(ended.container), depth);
  }

  absl::StatusOr<StateTree> Finish(absl::Span<const std::string> names) {
    for (size_t i = 0; i < seen_.size(); ++i) {
      if (!seen_[i]) return Error(absl::StrCat("it does not say what the tensor ", Quoted(names[i]), " is"));
    }
    return std::move(root_);
  }

 private:
  struct Open {
    StateTree container;
    std::string key;  // of the next item of a dict
    int depth = 0;    // of the deepest item: 0 if none is a container
  };

  absl::Status Begin(StateTree container) {
    if (open_.size() >= kMaxNesting) return Error(absl::StrCat("nested more than ", kMaxNesting, " deep"));
    open_.push_back({std::move(container), "", 0});
    return absl::OkStatus();
  }

  absl::Status Add(StateTree value, int depth) {
    if (open_.empty()) {
      root_ = std::move(value);
      return absl::OkStatus();
    }
    Open& parent = open_.back();
    parent.depth = std::max(parent.depth, depth);
    if (auto* list = std::get_if<StateList>(&parent.container.value)) {
      ABSL_RETURN_IF_ERROR(MakeRoomForOne(list->items, budget_));
      list->items.push_back(std::move(value));
    } else {
      auto& items = std::get<StateDict>(parent.container.value).items;
      ABSL_RETURN_IF_ERROR(MakeRoomForOne(items, budget_));
      items.emplace_back(std::move(parent.key), std::move(value));
    }
    return absl::OkStatus();
  }

  absl::Status CheckDistinct(const StateDict& dict) {
    const int64_t charge = static_cast<int64_t>(dict.items.size() * sizeof(std::string_view));
    ABSL_RETURN_IF_ERROR(budget_.Charge(charge));
    std::vector<int64_t> numbers;
    std::vector<std::string_view> texts;
    for (const auto& [key, value] : dict.items) {
      if (const auto* text = std::get_if<std::string>(&key)) {
        texts.push_back(*text);
      } else {
        numbers.push_back(std::get<int64_t>(key));
      }
    }
    if (const auto twice = DuplicateName(std::move(texts))) {
      return Error(absl::StrCat("the key ", Quoted(*twice), " occurs twice in one dict"));
    }
    std::sort(numbers.begin(), numbers.end());
    const auto twice = std::adjacent_find(numbers.begin(), numbers.end());
    if (twice != numbers.end()) return Error(absl::StrCat("the key ", *twice, " occurs twice in one dict"));
    budget_.Refund(charge);
    return absl::OkStatus();
  }

  static bool HasTag(const StateDict& dict) {
    for (const auto& [key, value] : dict.items) {
      if (absl::StartsWith(std::get<std::string>(key), "$")) return true;
    }
    return false;
  }

  // What {"$tag": value} stands for. `depth` is that of the object, and becomes that of what is returned.
  absl::StatusOr<StateTree> Untag(StateDict& dict, int& depth) {
    const std::string tag = std::get<std::string>(dict.items[0].key);
    StateTree value = std::move(dict.items[0].value);
    if (dict.items.size() > 1) return Error("a key that begins with \"$\" is not alone in its object");
    budget_.Refund(HeapBytes(dict.items));
    if (auto* list = std::get_if<StateList>(&value.value)) {
      if (tag == "$tuple") {
        depth -= 1;
        return StateTree{StateTuple{std::move(list->items)}};
      }
      if (tag == "$dict") {
        depth = std::max(depth - 2, 1);
        return ItemsToDict(*list);
      }
      if (tag == "$complex") {
        depth = 0;
        return ToComplex(*list);
      }
    }
    if (const auto* text = std::get_if<std::string>(&value.value)) {
      depth = 0;
      if (tag == "$tensor") return ToTensor(*text);
      if (tag == "$float") return ToFloat(*text);
    }
    return Error(absl::StrCat(Quoted(tag), " with what follows it stands for nothing"));
  }

  absl::StatusOr<StateTree> ItemsToDict(StateList& list) {
    StateDict dict;
    ABSL_RETURN_IF_ERROR(ReserveExactly(dict.items, list.items.size(), budget_));
    for (StateTree& item : list.items) {
      auto* pair = std::get_if<StateList>(&item.value);
      if (pair == nullptr || pair->items.size() != 2) return Error("an item of a \"$dict\" is not [key, value]");
      std::variant<int64_t, std::string> key;
      if (auto* text = std::get_if<std::string>(&pair->items[0].value)) {
        key = std::move(*text);
      } else if (const auto* number = std::get_if<int64_t>(&pair->items[0].value)) {
        key = *number;
      } else {
        return Error("a key of a \"$dict\" is neither a string nor an integer");
      }
      budget_.Refund(HeapBytes(pair->items));
      dict.items.emplace_back(std::move(key), std::move(pair->items[1]));
    }
    budget_.Refund(HeapBytes(list.items));
    ABSL_RETURN_IF_ERROR(CheckDistinct(dict));
    return StateTree{std::move(dict)};
  }

  absl::StatusOr<StateTree> ToComplex(const StateList& list) {
    if (list.items.size() == 2) {
      const auto* real = std::get_if<double>(&list.items[0].value);
      const auto* imaginary = std::get_if<double>(&list.items[1].value);
      budget_.Refund(HeapBytes(list.items));
      if (real != nullptr && imaginary != nullptr) return StateTree{std::complex<double>(*real, *imaginary)};
    }
    return Error("a \"$complex\" is not [float, float]");
  }

  absl::StatusOr<StateTree> ToTensor(const std::string& name) {
    const auto found = places_.find(name);
    if (found == places_.end()) return Error(absl::StrCat("the file has no tensor ", Quoted(name)));
    seen_[found->second] = true;
    budget_.Refund(HeapBytes(name));
    return StateTree{TensorIndex{found->second}};
  }

  absl::StatusOr<StateTree> ToFloat(std::string_view text) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    if (text == "nan") return StateTree{std::numeric_limits<double>::quiet_NaN()};
    if (text == "inf") return StateTree{kInfinity};
    if (text == "-inf") return StateTree{-kInfinity};
    std::string_view digits = text;
    uint64_t bits = 0;
    if (absl::ConsumePrefix(&digits, "0x") && digits.size() == 16 && absl::SimpleHexAtoi(digits, &bits)) {
      const double value = std::bit_cast<double>(bits);
      if (std::isnan(value)) return StateTree{value};
    }
    return Error(
        absl::StrCat("a \"$float\" is neither \"nan\", \"inf\", \"-inf\" nor the bits of a NaN: ", Quoted(text)));
  }

  const absl::flat_hash_map<std::string_view, size_t> places_;
  std::vector<bool> seen_;
  MemoryBudget& budget_;
  std::vector<Open> open_;
  StateTree root_;
};

}  // namespace

absl::StatusOr<StateTree> StateFromJson(std::string_view json, absl::Span<const std::string> names,
                                        MemoryBudget& budget) {
  // A table has at most twice as many places as are taken, and a byte beside each.
  const int64_t charge = static_cast<int64_t>(names.size()) * 2 * (sizeof(std::string_view) + sizeof(size_t) + 1);
  ABSL_RETURN_IF_ERROR(budget.Charge(charge));
  absl::flat_hash_map<std::string_view, size_t> places;
  places.reserve(names.size());
  for (size_t i = 0; i < names.size(); ++i) places.emplace(names[i], i);
  Builder builder(std::move(places), budget);
  ABSL_RETURN_IF_ERROR(ReadJson(*MemoryAsFile(json), 0, static_cast<int64_t>(json.size()), budget, builder));
  budget.Refund(charge);
  return builder.Finish(names);
}

}  // namespace cohort::internal
