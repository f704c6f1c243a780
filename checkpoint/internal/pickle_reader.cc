// Reading, in three steps:
//
//   1. The machine runs and leaves a graph of values. It may share values, which is how Python saves what stands in two
//      places, and may have cycles.
//   2. Everything that the state holds is checked, each value once, however often it is shared. That includes how large
//      the tree will be: a hostile pickle of some hundred bytes can stand for 2^100 values.
//   3. Only then is the tree built.
//
// So whatever is refused is refused before memory is taken for the result. What nothing mentions (attributes of an
// OrderedDict, backward hooks) is not looked at.

#include "cohort/checkpoint/internal/pickle_reader.h"

#include <algorithm>
#include <bit>
#include <compare>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cohort/checkpoint/internal/dtype.h"
#include "cohort/checkpoint/internal/pickle_machine.h"
#include "cohort/checkpoint/internal/quoted.h"
#include "cohort/checkpoint/internal/state_tree.h"
#include "cohort/checkpoint/internal/utf8.h"

namespace cohort::internal {
namespace {

using Kind = PickleKind;
using Function = PickleFunction;

// As many as LibTorch's kernels handle.
constexpr uint32_t kMaxDimensions = 64;

const PickleNode& Item(const PickleGraph& graph, const PickleNode& tuple, uint32_t place) {
  return graph.nodes[graph.items[tuple.low + place]];
}

double DoubleOf(const PickleGraph& graph, const PickleNode& node) { return std::bit_cast<double>(graph.IntOf(node)); }

// The arguments of a tensor, by name. For a parameter, those of the tensor that it is made of.
struct TensorArguments {
  const PickleNode* storage = nullptr;
  const PickleNode* offset = nullptr;
  const PickleNode* sizes = nullptr;
  const PickleNode* strides = nullptr;
  const PickleNode* requires_grad = nullptr;  // null: false
  const PickleNode* dtype = nullptr;          // null: the storage's
  const PickleNode* metadata = nullptr;       // null: none
};

// nullopt if they are too few, too many, or of other kinds than the function takes.
std::optional<TensorArguments> ArgumentsOf(const PickleGraph& graph, const PickleNode& tensor) {
  const PickleNode& tuple = graph.nodes[tensor.low];
  const uint32_t count = tuple.high;
  const auto has = [&](uint32_t place, Kind kind) { return Item(graph, tuple, place).kind == kind; };
  const Function function = static_cast<Function>(tensor.high);
  if (function == Function::kParameter || function == Function::kRebuildParameter ||
      function == Function::kRebuildParameterWithState) {
    // data, requires_grad, hooks, attributes
    const uint32_t expected = function == Function::kParameter ? 2 : function == Function::kRebuildParameter ? 3 : 4;
    if (count != expected || !has(0, Kind::kTensor) || !has(1, Kind::kBool)) return std::nullopt;
    const PickleNode& data = Item(graph, tuple, 0);
    const Function inner = static_cast<Function>(data.high);
    // A parameter of a parameter, and so on, is what Python never writes.
    if (inner != Function::kRebuildTensor && inner != Function::kRebuildTensorV2 &&
        inner != Function::kRebuildTensorV3) {
      return std::nullopt;
    }
    std::optional<TensorArguments> arguments = ArgumentsOf(graph, data);
    if (arguments.has_value()) arguments->requires_grad = &Item(graph, tuple, 1);
    return arguments;
  }

  const bool is_v1 = function == Function::kRebuildTensor;
  const bool is_v3 = function == Function::kRebuildTensorV3;
  const uint32_t required = is_v1 ? 4 : is_v3 ? 7 : 6;
  const bool has_metadata = !is_v1 && count == required + 1;
  if (!(count == required || has_metadata) || !has(0, Kind::kStorage) || !has(1, Kind::kInt) || !has(2, Kind::kTuple) ||
      !has(3, Kind::kTuple) || (!is_v1 && !(has(4, Kind::kBool) && has(5, Kind::kDict)))) {
    return std::nullopt;
  }
  TensorArguments arguments{.storage = &Item(graph, tuple, 0),
                            .offset = &Item(graph, tuple, 1),
                            .sizes = &Item(graph, tuple, 2),
                            .strides = &Item(graph, tuple, 3)};
  if (!is_v1) arguments.requires_grad = &Item(graph, tuple, 4);
  if (is_v3) {
    arguments.dtype = &Item(graph, tuple, 6);
    if (arguments.dtype->kind != Kind::kGlobal || static_cast<Function>(arguments.dtype->low) != Function::kDtype) {
      return std::nullopt;
    }
  }
  if (has_metadata && !has(required, Kind::kNone)) arguments.metadata = &Item(graph, tuple, required);
  return arguments;
}

// Reads a tuple of integers that are not negative; false if it is something else.
bool ReadInts(const PickleGraph& graph, const PickleNode& tuple, std::vector<int64_t>& values) {
  if (tuple.high > kMaxDimensions) return false;
  values.reserve(tuple.high);
  for (uint32_t i = 0; i < tuple.high; ++i) {
    const PickleNode& item = Item(graph, tuple, i);
    if (item.kind != Kind::kInt || graph.IntOf(item) < 0) return false;
    values.push_back(graph.IntOf(item));
  }
  return true;
}

// Sets the marks "conj" and "neg"; false if the metadata are something else.
bool ReadMetadata(const PickleGraph& graph, const PickleNode& metadata, StoredTensor& tensor) {
  if (metadata.kind != Kind::kDict) return false;
  bool is_known = true;
  bool* mark = nullptr;
  graph.ForEachItem(metadata, [&](uint32_t place, uint32_t id) {
    const PickleNode& node = graph.nodes[id];
    if (place >= 4) return is_known = false;
    if (place % 2 == 0) {
      const std::string_view name = node.kind == Kind::kString ? graph.TextOf(node) : "";
      mark = name == "conj" ? &tensor.conjugated : name == "neg" ? &tensor.negated : nullptr;
      is_known = mark != nullptr;
    } else if (node.kind == Kind::kBool) {
      *mark = node.low != 0;
    } else {
      is_known = false;
    }
    return is_known;
  });
  return is_known;
}

bool IsEmpty(const StoredTensor& tensor) {
  return std::find(tensor.sizes.begin(), tensor.sizes.end(), 0) != tensor.sizes.end();
}

// Why a tensor does not fit its storage, or empty.
std::string WhyOutside(const StoredTensor& tensor, int64_t storage_bytes) {
  const int64_t element_bytes = InfoOf(tensor.dtype).num_bytes;
  const int64_t available = storage_bytes / element_bytes;
  int64_t elements = 1;
  bool overflows = false;
  const bool is_empty = IsEmpty(tensor);
  int64_t end = tensor.offset;
  for (size_t i = 0; i < tensor.sizes.size(); ++i) {
    // Of an empty tensor the other sizes count too: LibTorch multiplies them before it comes to the zero.
    overflows |= __builtin_mul_overflow(elements, std::max<int64_t>(tensor.sizes[i], 1), &elements);
    if (is_empty) continue;
    int64_t step;
    overflows |= __builtin_mul_overflow(tensor.sizes[i] - 1, tensor.strides[i], &step);
    overflows |= __builtin_add_overflow(end, step, &end);
  }
  int64_t num_bytes;
  if (!is_empty) overflows |= __builtin_add_overflow(end, 1, &end);
  overflows |= __builtin_mul_overflow(elements, element_bytes, &num_bytes);
  if (overflows) return "has more elements or a larger extent than 64 bits count";
  if (is_empty || end <= available) return "";  // an empty tensor may begin behind its storage
  return absl::StrCat("reaches to element ", end, " of a storage of ", available);
}

// Sizes in memory, in units of 16 bytes; what does not fit is the largest number there is.
using Cost = uint64_t;
constexpr Cost kUnit = 16;
constexpr Cost kMaxCost = std::numeric_limits<uint32_t>::max();
constexpr Cost CostOf(uint64_t bytes) { return (bytes + kUnit - 1) / kUnit; }

Cost CostOfText(const PickleNode& text) { return text.high > 15 ? CostOf(text.high + 1) : 0; }

// Step 2.
class Checker {
 public:
  Checker(PickleGraph& graph, int64_t memory_limit) : graph_(graph), memory_limit_(memory_limit) {}

  absl::Status Check() {
    ABSL_RETURN_IF_ERROR(Visit(graph_.root, 0));
    const Cost cost = graph_.nodes[graph_.root].cost;
    const Cost cost_of_sharing = cost - std::min(cost, cost_if_unshared_);
    if (cost < kMaxCost && cost_of_sharing + cost_of_dimensions_ <= MaxCost()) return absl::OkStatus();
    return RefuseCost();
  }

 private:
  struct Step {
    uint32_t container = 0;
    uint32_t place = 0;  // of the item
    uint32_t key = 0;    // of a dict: node
  };

  Cost MaxCost() const { return static_cast<Cost>(memory_limit_) / kUnit; }
  absl::Status RefuseCost() const {
    return absl::InvalidArgumentError(
        absl::StrCat("pickle: its values stand in so many places that they take more memory than the ", memory_limit_,
                     " bytes allowed"));
  }

  // Checks the value and what it holds, unless that was done before.
  absl::Status Visit(uint32_t id, int depth) {
    PickleNode& node = graph_.nodes[id];
    if (node.visit == PickleNode::kOpen) return Refuse("holds itself");
    if (depth + node.height > kMaxStateDepth) {
      return Refuse(absl::StrCat("stands deeper than ", kMaxStateDepth, " containers in containers"));
    }
    if (node.visit == PickleNode::kDone) return absl::OkStatus();
    node.visit = PickleNode::kOpen;
    Cost cost = 0;
    ABSL_RETURN_IF_ERROR(CheckItself(node, cost));
    cost_if_unshared_ += cost;
    if (node.kind == Kind::kDict) {
      ABSL_RETURN_IF_ERROR(VisitValues(id, depth, cost));
    } else if (node.kind == Kind::kList || node.kind == Kind::kTuple) {
      ABSL_RETURN_IF_ERROR(VisitItems(id, depth, cost));
    }
    node.cost = static_cast<uint32_t>(std::min(cost, kMaxCost));
    node.visit = PickleNode::kDone;
    return absl::OkStatus();
  }

  absl::Status VisitItems(uint32_t id, int depth, Cost& cost) {
    absl::Status status;
    graph_.ForEachItem(graph_.nodes[id], [&](uint32_t place, uint32_t item) {
      path_.push_back({.container = id, .place = place});
      status = VisitItem(id, item, depth, cost);
      path_.pop_back();
      return status.ok();
    });
    return status;
  }

  absl::Status VisitValues(uint32_t id, int depth, Cost& cost) {
    absl::Status status;
    uint32_t key = 0;
    graph_.ForEachItem(graph_.nodes[id], [&](uint32_t place, uint32_t item) {
      if (place % 2 == 0) {
        key = item;
        return true;
      }
      path_.push_back({.container = id, .place = place, .key = key});
      cost += graph_.nodes[key].cost;
      status = VisitItem(id, item, depth, cost);
      path_.pop_back();
      return status.ok();
    });
    return status;
  }

  absl::Status VisitItem(uint32_t id, uint32_t item, int depth, Cost& cost) {
    ABSL_RETURN_IF_ERROR(Visit(item, depth + 1));
    PickleNode& node = graph_.nodes[id];
    node.height = std::max<uint8_t>(node.height, graph_.nodes[item].height + 1);
    cost = std::min(cost + graph_.nodes[item].cost, kMaxCost);
    return absl::OkStatus();
  }

  // All but the items of a container; `cost` is what it takes beside the place where it stands, without its items' own.
  absl::Status CheckItself(const PickleNode& node, Cost& cost) {
    switch (node.kind) {
      case Kind::kNone:
      case Kind::kBool:
      case Kind::kInt:
      case Kind::kDouble:
      case Kind::kComplex:
      case Kind::kDevice:
        return absl::OkStatus();
      case Kind::kString:
        cost = CostOfText(node);
        return IsUtf8(graph_.TextOf(node)) ? absl::OkStatus() : Refuse("is a string that is not UTF-8");
      case Kind::kTuple:
      case Kind::kList:
        graph_.ForEachItem(node, [&](uint32_t, uint32_t) { return ++cost, true; });
        cost = CostOf(cost * sizeof(StateTree));
        return absl::OkStatus();
      case Kind::kDict:
        return CheckKeys(node, cost);
      case Kind::kTensor:
        return CheckTensor(node);
      case Kind::kStorage:
        return Refuse("is a storage; only tensors are held");
      case Kind::kGlobal:
        return Refuse(static_cast<Function>(node.low) == Function::kDtype ? "is a torch.dtype"
                                                                          : "is a function or class");
      case Kind::kRefused:
        return Refuse(absl::StrCat("is ", RefusedKind(node)));
    }
    return Refuse("is of an unknown kind");
  }

  absl::Status CheckKeys(const PickleNode& dict, Cost& cost) {
    std::vector<uint32_t> keys;
    absl::Status status;
    graph_.ForEachItem(dict, [&](uint32_t place, uint32_t id) {
      if (place % 2 != 0) return true;
      keys.push_back(id);
      status = CheckKey(graph_.nodes[id], cost);
      return status.ok();
    });
    ABSL_RETURN_IF_ERROR(status);
    // A sorted vector takes a fraction of the memory of a hash set.
    std::sort(keys.begin(), keys.end(), [&](uint32_t a, uint32_t b) { return KeyOf(a) < KeyOf(b); });
    const auto twin =
        std::adjacent_find(keys.begin(), keys.end(), [&](uint32_t a, uint32_t b) { return KeyOf(a) == KeyOf(b); });
    if (twin == keys.end()) return absl::OkStatus();
    const Key key = KeyOf(*twin);
    return Refuse(
        absl::StrCat("has two items with the key ", key.is_text ? Quoted(key.text) : absl::StrCat(key.number)));
  }

  struct Key {
    bool is_text = false;
    std::string_view text;
    int64_t number = 0;
    auto operator<=>(const Key&) const = default;
  };

  Key KeyOf(uint32_t id) const {
    const PickleNode& node = graph_.nodes[id];
    if (node.kind == Kind::kInt) return {.number = graph_.IntOf(node)};
    return {.is_text = true, .text = graph_.TextOf(node)};
  }

  absl::Status CheckKey(PickleNode& key, Cost& cost) {
    cost += CostOf(sizeof(StateItem));
    if (key.kind == Kind::kInt) return absl::OkStatus();
    if (key.kind != Kind::kString) {
      return Refuse(absl::StrCat("is a dict with a key that is ", DescriptionOf(key), "; only str and int are held"));
    }
    // A long key can stand in many dicts. Looking at it takes time as well as memory, so this cannot wait for the end.
    if (key.visit == PickleNode::kDone) {
      cost_of_shared_keys_ += CostOfText(key);
      return cost_of_shared_keys_ > MaxCost() ? RefuseCost() : absl::OkStatus();
    }
    const std::string_view text = graph_.TextOf(key);
    if (!IsUtf8(text)) return Refuse(absl::StrCat("has the key ", Quoted(text), ", which is not UTF-8"));
    key.cost = static_cast<uint32_t>(std::min(CostOfText(key), kMaxCost));
    key.visit = PickleNode::kDone;
    cost_if_unshared_ += key.cost;
    return absl::OkStatus();
  }

  static std::string_view DescriptionOf(const PickleNode& key) {
    switch (key.kind) {
      case Kind::kNone:
        return "None";
      case Kind::kBool:
        return "a bool";
      case Kind::kDouble:
        return "a float";
      case Kind::kComplex:
        return "a complex number";
      case Kind::kTuple:
        return "a tuple";
      case Kind::kTensor:
        return "a tensor";
      case Kind::kRefused:
        return RefusedKind(key);
      default:
        return "of another type";
    }
  }

  absl::Status CheckTensor(const PickleNode& node) {
    const std::optional<TensorArguments> arguments = ArgumentsOf(graph_, node);
    if (!arguments.has_value()) return Refuse("is a tensor made of other things than torch.save writes");
    const PickleStorage& storage = graph_.storages[arguments->storage->low];
    StoredTensor tensor{.offset = graph_.IntOf(*arguments->offset)};
    if (!ReadInts(graph_, *arguments->sizes, tensor.sizes) || !ReadInts(graph_, *arguments->strides, tensor.strides) ||
        tensor.sizes.size() != tensor.strides.size() || tensor.offset < 0) {
      return Refuse(absl::StrCat("is a tensor whose offset, sizes or strides are not what a tensor has: at most ",
                                 kMaxDimensions, " sizes, as many strides, and nothing negative"));
    }
    if (arguments->dtype == nullptr && !storage.dtype.has_value()) return Refuse("is a tensor without a dtype");
    tensor.dtype = arguments->dtype != nullptr ? static_cast<Dtype>(arguments->dtype->high) : *storage.dtype;
    if (storage.dtype.value_or(tensor.dtype) != tensor.dtype) {
      return Refuse(
          absl::StrCat("is a tensor of ", InfoOf(tensor.dtype).name, " in a storage of ", InfoOf(*storage.dtype).name));
    }
    if (arguments->metadata != nullptr && !ReadMetadata(graph_, *arguments->metadata, tensor)) {
      return Refuse("is a tensor with metadata other than \"conj\" and \"neg\"");
    }
    const bool is_complex =
        tensor.dtype == Dtype::kComplex32 || tensor.dtype == Dtype::kComplex64 || tensor.dtype == Dtype::kComplex128;
    if (tensor.conjugated && !is_complex) return Refuse("is a tensor of real numbers that is marked as conjugated");
    const std::string outside = WhyOutside(tensor, storage.num_bytes);
    if (!outside.empty()) return Refuse(absl::StrCat("is a tensor that ", outside));
    // Two tensors can share the tuples that hold their sizes and strides, but have vectors of their own for them.
    if (tensor.sizes.size() > 8) cost_of_dimensions_ += CostOf((tensor.sizes.size() - 8) * 16);
    return absl::OkStatus();
  }

  // Where the value stands, as `optimizer.param_groups[0].lr`.
  absl::Status Refuse(std::string_view why) const {
    std::string path;
    for (const Step& step : path_) {
      const PickleNode& key = graph_.nodes[step.key];
      if (graph_.nodes[step.container].kind != Kind::kDict) {
        absl::StrAppend(&path, "[", step.place, "]");
      } else if (key.kind == Kind::kInt) {
        absl::StrAppend(&path, "[", graph_.IntOf(key), "]");
      } else {
        absl::StrAppend(&path, path.empty() ? "" : ".", graph_.TextOf(key).substr(0, 1000));
      }
    }
    return absl::InvalidArgumentError(path_.empty() ? absl::StrCat("the value of the file ", why)
                                                    : absl::StrCat("value ", Quoted(path), " ", why));
  }

  PickleGraph& graph_;
  const int64_t memory_limit_;
  std::vector<Step> path_;
  Cost cost_if_unshared_ = 0;
  Cost cost_of_dimensions_ = 0;
  Cost cost_of_shared_keys_ = 0;
};

// Step 3. Of a graph that was checked: recursion is no deeper than kMaxStateDepth.
class Builder {
 public:
  explicit Builder(const PickleGraph& graph) : graph_(graph), storage_places_(graph.storages.size(), kNoRun) {}

  StoredState Build() {
    state_.tree = TreeOf(graph_.root);
    return std::move(state_);
  }

 private:
  StateTree TreeOf(uint32_t id) {
    const PickleNode& node = graph_.nodes[id];
    switch (node.kind) {
      case Kind::kBool:
        return {node.low != 0};
      case Kind::kInt:
        return {graph_.IntOf(node)};
      case Kind::kDouble:
        return {DoubleOf(graph_, node)};
      case Kind::kComplex:
        return {
            std::complex<double>(DoubleOf(graph_, graph_.nodes[node.low]), DoubleOf(graph_, graph_.nodes[node.high]))};
      case Kind::kString:
        return {std::string(graph_.TextOf(node))};
      case Kind::kTuple:
        return {StateTuple{ItemsOf(node)}};
      case Kind::kList:
        return {StateList{ItemsOf(node)}};
      case Kind::kDict:
        return {DictOf(node)};
      case Kind::kTensor:
        return {TensorOf(id)};
      case Kind::kDevice:
        return {DeviceOf(graph_.nodes[node.low])};
      default:
        return {};
    }
  }

  std::vector<StateTree> ItemsOf(const PickleNode& node) {
    size_t count = 0;
    graph_.ForEachItem(node, [&](uint32_t, uint32_t) { return ++count, true; });
    std::vector<StateTree> items;
    items.reserve(count);
    graph_.ForEachItem(node, [&](uint32_t, uint32_t item) {
      items.push_back(TreeOf(item));
      return true;
    });
    return items;
  }

  StateDict DictOf(const PickleNode& node) {
    size_t count = 0;
    graph_.ForEachItem(node, [&](uint32_t, uint32_t) { return ++count, true; });
    StateDict dict;
    dict.items.reserve(count / 2);
    graph_.ForEachItem(node, [&](uint32_t place, uint32_t id) {
      if (place % 2 != 0) {
        dict.items.back().value = TreeOf(id);
        return true;
      }
      const PickleNode& key = graph_.nodes[id];
      if (key.kind == Kind::kInt) {
        dict.items.emplace_back(graph_.IntOf(key), StateTree{});
      } else {
        dict.items.emplace_back(std::string(graph_.TextOf(key)), StateTree{});
      }
      return true;
    });
    return dict;
  }

  std::string DeviceOf(const PickleNode& arguments) const {
    const std::string_view type = graph_.TextOf(Item(graph_, arguments, 0));
    if (arguments.high == 1) return std::string(type);
    return absl::StrCat(type, ":", graph_.IntOf(Item(graph_, arguments, 1)));
  }

  TensorIndex TensorOf(uint32_t id) {
    const auto [it, is_new] = tensor_places_.try_emplace(id, state_.tensors.size());
    if (!is_new) return {it->second};
    const TensorArguments arguments = *ArgumentsOf(graph_, graph_.nodes[id]);
    const uint32_t storage = arguments.storage->low;
    if (storage_places_[storage] == kNoRun) {
      storage_places_[storage] = static_cast<uint32_t>(state_.storages.size());
      state_.storages.push_back(graph_.storages[storage].bytes);
    }
    StoredTensor tensor{.offset = graph_.IntOf(*arguments.offset), .storage = storage_places_[storage]};
    tensor.dtype =
        arguments.dtype != nullptr ? static_cast<Dtype>(arguments.dtype->high) : *graph_.storages[storage].dtype;
    ReadInts(graph_, *arguments.sizes, tensor.sizes);
    ReadInts(graph_, *arguments.strides, tensor.strides);
    const int64_t available = graph_.storages[storage].num_bytes / InfoOf(tensor.dtype).num_bytes;
    if (IsEmpty(tensor) && tensor.offset > available) tensor.offset = 0;
    if (arguments.metadata != nullptr) ReadMetadata(graph_, *arguments.metadata, tensor);
    tensor.requires_grad = arguments.requires_grad != nullptr && arguments.requires_grad->low != 0;
    state_.tensors.push_back(std::move(tensor));
    return {it->second};
  }

  const PickleGraph& graph_;
  std::vector<uint32_t> storage_places_;  // in the result; kNoRun: not yet
  absl::flat_hash_map<uint32_t, size_t> tensor_places_;
  StoredState state_;
};

}  // namespace

absl::StatusOr<StoredState> ReadPickle(std::string_view pickle, int64_t memory_limit, FindStorage find_storage) {
  ABSL_ASSIGN_OR_RETURN(PickleGraph graph, RunPickle(pickle, memory_limit, find_storage));
  ABSL_RETURN_IF_ERROR(Checker(graph, memory_limit).Check());
  return Builder(graph).Build();
}

}  // namespace cohort::internal
