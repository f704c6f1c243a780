// File: commands.h
//
// The commands of ckpt. Each prints what it finds, complains of what keeps it from working, and returns the exit code.

#ifndef COHORT_TOOLS_CKPT_COMMANDS_H_
#define COHORT_TOOLS_CKPT_COMMANDS_H_

#include <string>
#include <vector>

#include "cohort/checkpoint/state_file.h"

namespace cohort::ckpt {

// As diff, cmp and grep have them.
inline constexpr int kExitGood = 0;
inline constexpr int kExitBad = 1;      // a file is damaged or refused; the files differ
inline constexpr int kExitTrouble = 2;  // it could not be found out

int ListDirectory(const std::string& directory);
int ShowFile(const std::string& path, bool as_json);
int VerifyFiles(const std::vector<std::string>& paths);
int DiffFiles(const std::string& first, const std::string& second);

struct Conversion {
  std::string source;
  std::string target;
  StateFormat format;
  bool drop_metadata = false;  // texts that the target has no place for are left out
};
int ConvertFile(const Conversion& conversion);

}  // namespace cohort::ckpt

#endif  // COHORT_TOOLS_CKPT_COMMANDS_H_
