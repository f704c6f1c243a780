// File: visit_tensors.h
//
// VisitTensors: finds the tensors in what a module's forward returns. A type of your own is looked into if it has a
// function of this name beside it:
//
//   struct Detection { at::Tensor boxes; at::Tensor scores; };
//   void VisitTensors(Detection& output, cohort::TensorVisitor visit) { visit(output.boxes), visit(output.scores); }

#ifndef COHORT_RUNTIME_VISIT_TENSORS_H_
#define COHORT_RUNTIME_VISIT_TENSORS_H_

#if __cplusplus < 202002L
#error "cohort needs C++20: build with --cxxopt=-std=c++20"
#endif

#include <concepts>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "ATen/core/Tensor.h"
#include "absl/functional/function_ref.h"
#include "cohort/third_party/libtorch/string_abi.h"

namespace cohort {

using TensorVisitor = absl::FunctionRef<void(at::Tensor&)>;

namespace internal {

template <typename T>
concept HasVisitTensors = requires(T& value, TensorVisitor visit) {
  VisitTensors(value, visit);
};

template <typename T>
concept IsTuple = requires {
  std::tuple_size<T>::value;
};

template <typename T>
concept IsOptional = requires(T& value) {
  { value.has_value() } -> std::same_as<bool>;
  *value;
};

template <typename T>
concept IsMap = requires(T& value) {
  typename T::mapped_type;
  value.begin();
};

template <typename T>
concept IsRange = requires(T& value) {
  value.begin();
  value.end();
};

// Calls `visit` for every tensor in `value`, which stays as it is but for what `visit` does. Returns whether it could
// look into all of it: tensors, optionals, tuples, pairs, containers of such, numbers and texts, and what HasVisitTensors.
template <typename T>
bool VisitAllTensors(T& value, TensorVisitor visit) {
  if constexpr (std::derived_from<T, at::Tensor>) {
    visit(value);
    return true;
  } else if constexpr (HasVisitTensors<T>) {
    VisitTensors(value, visit);
    return true;
  } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T> || std::convertible_to<T, std::string_view>) {
    return true;
  } else if constexpr (IsTuple<T>) {
    return std::apply([&](auto&... parts) { return (true & ... & VisitAllTensors(parts, visit)); }, value);
  } else if constexpr (IsOptional<T>) {
    return !value.has_value() || VisitAllTensors(*value, visit);
  } else if constexpr (IsMap<T>) {
    bool all = true;
    for (auto& entry : value) all &= VisitAllTensors(entry.second, visit);
    return all;
  } else if constexpr (IsRange<T>) {
    bool all = true;
    for (auto& part : value) all &= VisitAllTensors(part, visit);
    return all;
  } else {
    return false;
  }
}

}  // namespace internal
}  // namespace cohort

#endif  // COHORT_RUNTIME_VISIT_TENSORS_H_
