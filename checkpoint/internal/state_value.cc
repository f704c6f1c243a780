#include "cohort/checkpoint/internal/state_value.h"

#include <complex>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "ATen/core/Dict.h"
#include "ATen/core/List.h"
#include "ATen/core/Tensor.h"
#include "ATen/core/ivalue.h"
#include "ATen/core/jit_type.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "cohort/checkpoint/internal/quoted.h"
#include "cohort/checkpoint/internal/saved_tensor.h"
#include "cohort/checkpoint/internal/state_tree.h"
#include "cohort/checkpoint/internal/utf8.h"

namespace cohort::internal {
namespace {

// The place of a value, as a message shows it.
std::string Place(std::string_view name) {
  return name.empty() ? "the state itself" : absl::StrCat("value ", Quoted(name));
}

// Far beyond any name, far below what the formats can say.
constexpr size_t kMaxStringBytes = size_t{1} << 30;

absl::Status TooLong(std::string_view what, std::string_view text) {
  return absl::InvalidArgumentError(
      absl::StrCat(what, " is a string of ", text.size(), " bytes; at most ", kMaxStringBytes, " are allowed"));
}

class Taker {
 public:
  // Values of every kind: containers by their items, everything else as it is.
  absl::StatusOr<StateTree> Take(const std::string& name, const c10::IValue& value, int depth) {
    if (depth > kMaxStateDepth) {
      return absl::InvalidArgumentError(
          absl::StrCat(Place(name), " lies deeper than ", kMaxStateDepth, " containers in each other"));
    }
    if (value.isNone()) return StateTree{};
    if (value.isBool()) return StateTree{value.toBool()};
    if (value.isInt()) return StateTree{value.toInt()};
    if (value.isDouble()) return StateTree{value.toDouble()};
    if (value.isComplexDouble()) {
      const auto number = value.toComplexDouble();
      return StateTree{std::complex<double>(number.real(), number.imag())};
    }
    if (value.isString()) return TakeString(name, value.toStringRef());
    if (value.isTensor()) return TakeTensor(name, value.toTensor());
    if (value.isGenericDict()) return TakeDict(name, value.toGenericDict(), depth);
    if (value.isList()) return TakeItems<StateList>(name, value.toListRef(), depth);
    if (value.isTuple()) return TakeItems<StateTuple>(name, value.toTupleRef().elements(), depth);
    return absl::UnimplementedError(absl::StrCat(Place(name), " is of type ", value.tagKind(),
                                                 "; a state holds dicts, lists, tuples, tensors, strings, numbers, "
                                                 "bools and None"));
  }

  absl::StatusOr<StateTree> TakeTensor(const std::string& name, const at::Tensor& tensor) {
    ABSL_ASSIGN_OR_RETURN(SavedTensor saved, Savable(name, tensor));
    size_t index = parts_.tensors.size();
    if (tensor.numel() > 0) {
      // Memory that is seen in the same way; its sizes and strides as one vector.
      std::vector<int64_t> shape(tensor.sizes().begin(), tensor.sizes().end());
      shape.insert(shape.end(), tensor.strides().begin(), tensor.strides().end());
      const auto [same, is_new] =
          seen_.try_emplace(std::tuple(saved.tensor.storage().unsafeGetStorageImpl(), saved.begin, saved.dtype,
                                       saved.conjugated, saved.negated, std::move(shape)),
                            index);
      if (!is_new) return StateTree{TensorIndex{same->second}};
    }
    parts_.tensors.push_back(std::move(saved));
    parts_.names.push_back(name);
    return StateTree{TensorIndex{index}};
  }

  StateParts Finish(StateTree tree) {
    parts_.tree = std::move(tree);
    return std::move(parts_);
  }

 private:
  static absl::StatusOr<StateTree> TakeString(const std::string& name, const std::string& text) {
    if (!IsUtf8(text)) return absl::InvalidArgumentError(absl::StrCat(Place(name), " is a string that is not UTF-8"));
    if (text.size() > kMaxStringBytes) return TooLong(Place(name), text);
    return StateTree{text};
  }

  static absl::StatusOr<StateKey> TakeKey(const std::string& name, const c10::IValue& key) {
    if (key.isInt()) return key.toInt();
    if (!key.isString()) {
      return absl::InvalidArgumentError(
          absl::StrCat(Place(name), " has a key of type ", key.tagKind(), "; allowed are str and int"));
    }
    if (!IsUtf8(key.toStringRef())) {
      return absl::InvalidArgumentError(
          absl::StrCat(Place(name), " has the key ", Quoted(key.toStringRef()), ", which is not UTF-8"));
    }
    if (key.toStringRef().size() > kMaxStringBytes) return TooLong("a key", key.toStringRef());
    return key.toStringRef();
  }

  absl::StatusOr<StateTree> TakeDict(const std::string& name, const c10::impl::GenericDict& dict, int depth) {
    StateDict result;
    result.items.reserve(dict.size());
    for (const auto& item : dict) {
      ABSL_ASSIGN_OR_RETURN(StateKey key, TakeKey(name, item.key()));
      ABSL_ASSIGN_OR_RETURN(StateTree value, Take(NameBelow(name, key), item.value(), depth + 1));
      result.items.emplace_back(std::move(key), std::move(value));
    }
    return StateTree{std::move(result)};
  }

  template <typename Sequence, typename Items>
  absl::StatusOr<StateTree> TakeItems(const std::string& name, const Items& items, int depth) {
    Sequence result;
    result.items.reserve(items.size());
    for (const c10::IValue& item : items) {
      const auto place = static_cast<int64_t>(result.items.size());
      ABSL_ASSIGN_OR_RETURN(StateTree value, Take(NameBelow(name, place), item, depth + 1));
      result.items.push_back(std::move(value));
    }
    return StateTree{std::move(result)};
  }

  StateParts parts_;
  absl::flat_hash_map<std::tuple<const void*, int64_t, Dtype, bool, bool, std::vector<int64_t>>, size_t> seen_;
};

// What std::visit calls with each kind of value.
struct Putter {
  absl::FunctionRef<absl::StatusOr<at::Tensor>(size_t)> tensor;

  absl::StatusOr<c10::IValue> Put(const StateTree& tree) { return std::visit(*this, tree.value); }

  absl::StatusOr<c10::IValue> operator()(std::monostate) { return c10::IValue(); }
  absl::StatusOr<c10::IValue> operator()(bool value) { return c10::IValue(value); }
  absl::StatusOr<c10::IValue> operator()(int64_t value) { return c10::IValue(value); }
  absl::StatusOr<c10::IValue> operator()(double value) { return c10::IValue(value); }
  absl::StatusOr<c10::IValue> operator()(const std::complex<double>& value) {
    return c10::IValue(c10::complex<double>(value.real(), value.imag()));
  }
  absl::StatusOr<c10::IValue> operator()(const std::string& value) { return c10::IValue(value); }
  absl::StatusOr<c10::IValue> operator()(TensorIndex index) {
    ABSL_ASSIGN_OR_RETURN(at::Tensor value, tensor(index.index));
    return c10::IValue(std::move(value));
  }
  absl::StatusOr<c10::IValue> operator()(const StateList& list) {
    c10::impl::GenericList result(c10::AnyType::get());
    result.reserve(list.items.size());
    for (const StateTree& item : list.items) {
      ABSL_ASSIGN_OR_RETURN(c10::IValue value, Put(item));
      result.push_back(std::move(value));
    }
    return c10::IValue(std::move(result));
  }
  absl::StatusOr<c10::IValue> operator()(const StateTuple& tuple) {
    std::vector<c10::IValue> items;
    items.reserve(tuple.items.size());
    for (const StateTree& item : tuple.items) {
      ABSL_ASSIGN_OR_RETURN(c10::IValue value, Put(item));
      items.push_back(std::move(value));
    }
    return c10::IValue(c10::ivalue::Tuple::create(std::move(items)));
  }
  absl::StatusOr<c10::IValue> operator()(const StateDict& dict) {
    c10::impl::GenericDict result(c10::AnyType::get(), c10::AnyType::get());
    result.reserve(dict.items.size());
    for (const auto& [key, item] : dict.items) {
      ABSL_ASSIGN_OR_RETURN(c10::IValue value, Put(item));
      result.insert(std::visit([](const auto& k) { return c10::IValue(k); }, key), std::move(value));
    }
    return c10::IValue(std::move(result));
  }
};

}  // namespace

std::string NameBelow(std::string_view name, const StateKey& key) {
  const std::string last = std::visit([](const auto& k) { return absl::StrCat(k); }, key);
  return name.empty() ? last : absl::StrCat(name, ".", last);
}

absl::StatusOr<StateParts> TakeApart(const c10::IValue& state) {
  Taker taker;
  ABSL_ASSIGN_OR_RETURN(StateTree tree, taker.Take("", state, 0));
  return taker.Finish(std::move(tree));
}

absl::StatusOr<StateParts> TakeApart(absl::Span<const std::pair<std::string, at::Tensor>> tensors) {
  Taker taker;
  absl::flat_hash_set<std::string_view> seen;
  StateDict dict;
  dict.items.reserve(tensors.size());
  for (const auto& [name, tensor] : tensors) {
    if (!seen.insert(name).second) {
      return absl::InvalidArgumentError(absl::StrCat("two tensors are named ", Quoted(name)));
    }
    if (!IsUtf8(name)) {
      return absl::InvalidArgumentError(absl::StrCat("tensor ", Quoted(name), " has a name that is not UTF-8"));
    }
    if (name.size() > kMaxStringBytes) return TooLong("a name", name);
    ABSL_ASSIGN_OR_RETURN(StateTree value, taker.TakeTensor(name, tensor));
    dict.items.emplace_back(name, std::move(value));
  }
  return taker.Finish(StateTree{std::move(dict)});
}

absl::StatusOr<c10::IValue> PutTogether(const StateTree& tree,
                                        absl::FunctionRef<absl::StatusOr<at::Tensor>(size_t)> tensor) {
  return Putter{tensor}.Put(tree);
}

}  // namespace cohort::internal
