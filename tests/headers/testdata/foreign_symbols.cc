// What no library of ours may define, for symbols_check_test; and some that it may.

#include <string>
#include <vector>

#include "absl/flags/flag.h"

void Function();
void Function() {}

extern "C" void foreign_c_function();
extern "C" void foreign_c_function() {}

namespace foreign {
int variable = 0;
}  // namespace foreign

// Emitted also where the compiler takes it apart.
[[gnu::used]] inline int* inline_function() {
  static int value = 0;
  return &value;
}

ABSL_FLAG(int, foreign_flag, 0, "A library that brings a flag takes its name away from programs.");

namespace {
int Hidden() { return static_cast<int>(std::vector<std::string>(3).size()); }
}  // namespace

namespace cohort {

int Ours();
int Ours() {
  std::vector<std::string> names;
  names.push_back(std::to_string(Hidden()));
  return *inline_function() + static_cast<int>(names.size());
}

}  // namespace cohort
