// File: string_abi.h
//
// Stops a build whose std::string is not LibTorch's, which would otherwise end in a page of undefined references. Every
// public header that needs LibTorch includes this one first. A LibTorch of another ABI is refused where it is linked in
// (own.bzl).

#ifndef COHORT_THIRD_PARTY_LIBTORCH_STRING_ABI_H_
#define COHORT_THIRD_PARTY_LIBTORCH_STRING_ABI_H_

#if __cplusplus < 202002L
#error "cohort needs C++20: build with --cxxopt=-std=c++20"
#endif

#if defined(_GLIBCXX_USE_CXX11_ABI) && _GLIBCXX_USE_CXX11_ABI == 0
#error "LibTorch is built with the C++11 string ABI: build without -D_GLIBCXX_USE_CXX11_ABI=0"
#endif

#endif  // COHORT_THIRD_PARTY_LIBTORCH_STRING_ABI_H_
