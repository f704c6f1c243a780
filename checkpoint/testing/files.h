// File: files.h
//
// For tests that look at real files.

#ifndef COHORT_CHECKPOINT_TESTING_FILES_H_
#define COHORT_CHECKPOINT_TESTING_FILES_H_

#include <string>
#include <string_view>
#include <vector>

namespace cohort::testing {

// An empty directory of this test's own, absolute and free of symlinks, under TEST_TMPDIR. Whoever runs the test
// removes it.
std::string FreshDirectory();

// Makes or overwrites a file. Aborts the test program if it cannot.
void WriteFile(const std::string& path, std::string_view contents);

// The contents of a file, or "<absent>".
std::string ReadFile(const std::string& path);

// The names in a directory, sorted, hidden ones too.
std::vector<std::string> NamesIn(const std::string& directory);

}  // namespace cohort::testing

#endif  // COHORT_CHECKPOINT_TESTING_FILES_H_
