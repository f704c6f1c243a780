// File: tensor_header.h

#ifndef COHORT_CHECKPOINT_TENSOR_HEADER_H_
#define COHORT_CHECKPOINT_TENSOR_HEADER_H_

#if __cplusplus < 202002L
#error "cohort needs C++20: build with --cxxopt=-std=c++20"
#endif

#include <cstdint>
#include <string>
#include <vector>

#include "c10/core/ScalarType.h"
#include "cohort/third_party/libtorch/string_abi.h"

namespace cohort {

// What a state says of one tensor before its values are read.
struct TensorHeader {
  std::string name;
  at::ScalarType dtype;
  std::vector<int64_t> sizes;
};

}  // namespace cohort

#endif  // COHORT_CHECKPOINT_TENSOR_HEADER_H_
