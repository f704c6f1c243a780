#include "cohort/checkpoint/internal/random_state_tree.h"

#include <bit>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cohort/checkpoint/internal/state_tree.h"

namespace cohort::internal {
namespace {

constexpr int kMaxDepth = 5;

class Maker {
 public:
  explicit Maker(std::mt19937& random) : random_(random) {}

  StateTree Any(int depth) {
    switch (Below(depth < kMaxDepth ? 12 : 7)) {
      case 0:
        return {};
      case 1:
        return {Below(2) == 0};
      case 2:
        return {Integer()};
      case 3:
        return {Double()};
      case 4:
        return {std::complex<double>(Double(), Double())};
      case 5:
        return {Text()};
      case 6:
        return {Tensor()};
      case 7:
        return {StateList{Items(depth)}};
      case 8:
        return {StateTuple{Items(depth)}};
      default:
        return {Dict(depth)};
    }
  }

  StateDict Dict(int depth) {
    StateDict dict;
    std::set<StateKey> keys;
    const bool has_numbers = Below(3) == 0;
    for (int i = Below(6); i > 0; --i) {
      StateKey key;
      if (has_numbers && Below(2) == 0) {
        key = Integer();
      } else {
        key = "k" + std::to_string(num_keys_++) + Text();
        if (Below(8) == 0) key = "$" + std::get<std::string>(key);
      }
      if (keys.insert(key).second) dict.items.emplace_back(key, Any(depth + 1));
    }
    return dict;
  }

  size_t num_tensors() const { return num_tensors_; }

 private:
  int Below(int limit) { return static_cast<int>(random_() % limit); }

  int64_t Integer() {
    constexpr int64_t kInts[] = {0, 1, -1, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()};
    if (Below(2) == 0) return kInts[Below(5)];
    return static_cast<int64_t>(static_cast<uint64_t>(random_()) << 32 | random_());
  }

  double Double() {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    constexpr double kDoubles[] = {0.0, -0.0, 1.0, 0.1, 1e300, 5e-324, -kInfinity, kInfinity};
    switch (Below(3)) {
      case 0:
        return kDoubles[Below(8)];
      case 1:
        return std::bit_cast<double>(0x7ff8000000000000 + static_cast<uint64_t>(Below(3)));
      default:
        return std::bit_cast<double>(static_cast<uint64_t>(random_()) << 32 | random_());
    }
  }

  std::string Text() {
    constexpr const char* kTexts[] = {"", "a", ".", "a.b", "\"\\/\b\n\t\x01", "grün €", "\xf0\x9f\x98\x80", "$tensor"};
    return kTexts[Below(8)];
  }

  TensorIndex Tensor() {
    if (num_tensors_ > 0 && Below(4) == 0) return {static_cast<size_t>(Below(static_cast<int>(num_tensors_)))};
    return {num_tensors_++};
  }

  std::vector<StateTree> Items(int depth) {
    std::vector<StateTree> items;
    for (int i = Below(5); i > 0; --i) items.push_back(Any(depth + 1));
    return items;
  }

  std::mt19937& random_;
  size_t num_tensors_ = 0;
  int num_keys_ = 0;  // for names that cannot collide when they are joined
};

bool SameDouble(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }

bool SameItems(const std::vector<StateTree>& a, const std::vector<StateTree>& b) {
  bool same = a.size() == b.size();
  for (size_t i = 0; same && i < a.size(); ++i) same = SameBits(a[i], b[i]);
  return same;
}

}  // namespace

RandomState MakeRandomState(std::mt19937& random) {
  Maker maker(random);
  RandomState state;
  state.tree.value = maker.Dict(0);
  state.num_tensors = maker.num_tensors();
  return state;
}

bool SameBits(const StateTree& a, const StateTree& b) {
  if (a.value.index() != b.value.index()) return false;
  if (const auto* x = std::get_if<double>(&a.value)) return SameDouble(*x, std::get<double>(b.value));
  if (const auto* x = std::get_if<std::complex<double>>(&a.value)) {
    const auto& y = std::get<std::complex<double>>(b.value);
    return SameDouble(x->real(), y.real()) && SameDouble(x->imag(), y.imag());
  }
  if (const auto* x = std::get_if<StateList>(&a.value)) return SameItems(x->items, std::get<StateList>(b.value).items);
  if (const auto* x = std::get_if<StateTuple>(&a.value)) {
    return SameItems(x->items, std::get<StateTuple>(b.value).items);
  }
  if (const auto* x = std::get_if<StateDict>(&a.value)) {
    const auto& y = std::get<StateDict>(b.value);
    bool same = x->items.size() == y.items.size();
    for (size_t i = 0; same && i < x->items.size(); ++i) {
      same = x->items[i].key == y.items[i].key && SameBits(x->items[i].value, y.items[i].value);
    }
    return same;
  }
  return a == b;
}

}  // namespace cohort::internal
