// File: flags_help.h
//
// PrintHelpIfAsked: --help as people and scripts expect it: on stdout, ending with 0. Abseil's own ends with 1, because
// to it a program that was asked for help has not done its work.

#ifndef COHORT_TRAINERS_DATA_FLAGS_HELP_H_
#define COHORT_TRAINERS_DATA_FLAGS_HELP_H_

#include <string_view>

namespace cohort {

// For main(), before absl::ParseCommandLine(). If there is an argument --help or -h, prints `usage`, which says what the
// program does, and each of its flags with its present value, and ends the process: with 0, or with 1 if it could not be
// printed. Flags of Abseil itself are left out.
void PrintHelpIfAsked(int argc, const char* const* argv, std::string_view usage);

}  // namespace cohort

#endif  // COHORT_TRAINERS_DATA_FLAGS_HELP_H_
