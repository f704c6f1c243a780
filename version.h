// File: version.h
//
// Which cohort this is. Versions follow semver.org; what counts as an interface is the list in docs/importing.md.

#ifndef COHORT_VERSION_H_
#define COHORT_VERSION_H_

#if __cplusplus < 202002L
#error "cohort needs C++20: build with --cxxopt=-std=c++20"
#endif

#define COHORT_VERSION_MAJOR 0
#define COHORT_VERSION_MINOR 2
#define COHORT_VERSION_PATCH 0
#define COHORT_VERSION "0.2.0"

#endif  // COHORT_VERSION_H_
