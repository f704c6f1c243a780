#include "cohort/checkpoint/internal/state_pickle.h"

#include <complex>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cohort/checkpoint/internal/dtype.h"
#include "cohort/checkpoint/internal/pickle_writer.h"
#include "cohort/checkpoint/internal/state_tree.h"

namespace cohort::internal {
namespace {

class StatePickler {
 public:
  explicit StatePickler(const StoredState& state) : state_(state), memo_of_tensor_(state.tensors.size()) {}

  std::string Pickle() {
    Tree(state_.tree);
    return pickle_.Finish();
  }

 private:
  void Tree(const StateTree& tree) {
    std::visit([this](const auto& value) { Value(value); }, tree.value);
  }

  void Value(std::monostate) { pickle_.None(); }
  void Value(bool value) { pickle_.Bool(value); }
  void Value(int64_t value) { pickle_.Int(value); }
  void Value(double value) { pickle_.Double(value); }
  void Value(const std::string& value) { pickle_.String(value); }
  void Value(const std::complex<double>& value) {
    pickle_.Global("builtins", "complex");
    pickle_.Mark();
    pickle_.Double(value.real());
    pickle_.Double(value.imag());
    pickle_.Tuple();
    pickle_.Reduce();
  }
  void Value(const StateTuple& tuple) {
    if (tuple.items.empty()) return pickle_.EmptyTuple();
    pickle_.Mark();
    for (const StateTree& item : tuple.items) Tree(item);
    pickle_.Tuple();
  }
  void Value(const StateList& list) {
    pickle_.EmptyList();
    if (list.items.empty()) return;
    pickle_.Mark();
    for (const StateTree& item : list.items) Tree(item);
    pickle_.Appends();
  }
  void Value(const StateDict& dict) {
    pickle_.EmptyDict();
    if (dict.items.empty()) return;
    pickle_.Mark();
    for (const auto& [key, item] : dict.items) {
      std::visit([this](const auto& value) { Value(value); }, key);
      Tree(item);
    }
    pickle_.SetItems();
  }

  // The second time it is the same object.
  void Value(TensorIndex index) {
    std::optional<uint32_t>& memo = memo_of_tensor_[index.index];
    if (memo.has_value()) return pickle_.Get(*memo);
    Tensor(state_.tensors[index.index]);
    memo = pickle_.Put();
  }

  // _rebuild_tensor_v2(storage, offset, size, stride, requires_grad, backward_hooks[, metadata]); v3, for the newer
  // dtypes, whose storage is untyped, has the dtype before metadata.
  void Tensor(const StoredTensor& tensor) {
    const DtypeInfo& info = InfoOf(tensor.dtype);
    const bool is_typed = !info.storage.empty();
    pickle_.Global("torch._utils", is_typed ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
    pickle_.Mark();
    Storage(tensor.storage, info);
    pickle_.Int(tensor.offset);
    pickle_.Ints(tensor.sizes);
    pickle_.Ints(tensor.strides);
    pickle_.Bool(tensor.requires_grad);
    pickle_.Global("collections", "OrderedDict");
    pickle_.EmptyTuple();
    pickle_.Reduce();
    if (!is_typed) pickle_.Global("torch", info.name);
    if (tensor.conjugated || tensor.negated) {
      pickle_.EmptyDict();
      pickle_.Mark();
      for (const auto& [mark, is_set] : {std::pair("conj", tensor.conjugated), std::pair("neg", tensor.negated)}) {
        if (!is_set) continue;
        pickle_.String(mark);
        pickle_.Bool(true);
      }
      pickle_.SetItems();
    }
    pickle_.Tuple();
    pickle_.Reduce();
  }

  // The persistent id of a storage, and with it the storage: ("storage", class, key, "cpu", elements).
  void Storage(size_t storage, const DtypeInfo& info) {
    const int64_t num_bytes = state_.storages[storage].num_bytes;
    pickle_.Mark();
    pickle_.SharedString("storage");
    if (info.storage.empty()) {
      pickle_.Global("torch.storage", "UntypedStorage");
    } else {
      pickle_.Global("torch", info.storage);
    }
    pickle_.String(absl::StrCat(storage));
    pickle_.SharedString("cpu");
    pickle_.Int(info.storage.empty() ? num_bytes : num_bytes / info.num_bytes);
    pickle_.Tuple();
    pickle_.PersistentId();
  }

  const StoredState& state_;
  PickleWriter pickle_;
  std::vector<std::optional<uint32_t>> memo_of_tensor_;
};

}  // namespace

std::string PickleState(const StoredState& state) { return StatePickler(state).Pickle(); }

}  // namespace cohort::internal
