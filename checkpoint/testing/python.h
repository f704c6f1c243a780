// File: python.h
//
// For tests that ask Python, which is the reader of the files that we write.

#ifndef COHORT_CHECKPOINT_TESTING_PYTHON_H_
#define COHORT_CHECKPOINT_TESTING_PYTHON_H_

#include <string>
#include <vector>

namespace cohort::testing {

// Runs `script` with `arguments` as sys.argv[1:] in a plain python3, without site packages, and returns what it prints
// on stdout and stderr. An exit code other than 0 is a test failure. Blocks until it ends.
std::string RunPython(const std::string& script, const std::vector<std::string>& arguments = {});

}  // namespace cohort::testing

#endif  // COHORT_CHECKPOINT_TESTING_PYTHON_H_
