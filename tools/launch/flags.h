// File: flags.h
//
// The launcher's flags as they are spelled: torchrun's names, in both spellings (--nproc-per-node, --nproc_per_node)
// and both forms (--flag=value, --flag value), and torchrun's variables PET_... in place of flags. What they mean is
// options.h's. It is not parsed by absl/flags because everything after the program belongs to the program.

#ifndef COHORT_TOOLS_LAUNCH_FLAGS_H_
#define COHORT_TOOLS_LAUNCH_FLAGS_H_

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cohort/tools/launch/environment.h"

namespace cohort::launch {

// A value, and the flag or the variable that it was found in, as the user spelled it.
struct FlagValue {
  std::string what;
  std::string value;
};

// By the flag's full name ("--redirects", also for -r). Of a flag that takes no value the value is empty.
using FlagValues = std::map<std::string, FlagValue, std::less<>>;

struct CommandLine {
  FlagValues flags;
  // The program and its arguments; may be empty.
  std::vector<std::string> command;
};

// Takes the flags from the front of `arguments`, which follow the launcher's own name. Of a flag given twice the last
// one counts. --help ends it.
//
// Errors:
//   InvalidArgument  an unknown flag (names the nearest known one), one of torchrun's that means nothing here (says
//                    why), a value that is missing or too many. One line, made to be shown to the user.
absl::StatusOr<CommandLine> ParseCommandLine(absl::Span<const char* const> arguments);

// Adds what torchrun's variables (PET_NNODES for --nnodes, PET_STANDALONE=1 for --standalone) say of flags that were
// not given.
//
// Errors:
//   InvalidArgument  a variable of a flag that means nothing here, or one for a flag without a value that is not 0 or
//                    1.
absl::Status AddFlagsFromEnvironment(const Environment& environment, FlagValues& flags);

}  // namespace cohort::launch

#endif  // COHORT_TOOLS_LAUNCH_FLAGS_H_
