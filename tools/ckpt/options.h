// File: options.h
//
// The command line of ckpt. Flags may stand anywhere after the command, up to "--".

#ifndef COHORT_TOOLS_CKPT_OPTIONS_H_
#define COHORT_TOOLS_CKPT_OPTIONS_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cohort/checkpoint/retention.h"

namespace cohort::ckpt {

enum class Command { kHelp, kList, kShow, kVerify, kDiff, kConvert, kLatest, kPrune };

enum class Target { kByName, kTorch, kSafetensors };

// Everything fits together: as many files as the command takes, and no flag of another command.
struct Options {
  Command command;
  std::vector<std::string> paths;  // directories, too
  bool as_json = false;
  bool drop_metadata = false;
  Target target = Target::kByName;  // never kByName for kConvert
  RetentionPolicy policy;           // empty, or `newest` is set; set for kPrune
  bool dry_run = false;
};

// Errors:
//   InvalidArgument  what is wrong and what is allowed. One line, made to be shown to the user.
absl::StatusOr<Options> ParseOptions(absl::Span<const char* const> arguments);

// What --help prints.
std::string_view HelpText();

}  // namespace cohort::ckpt

#endif  // COHORT_TOOLS_CKPT_OPTIONS_H_
