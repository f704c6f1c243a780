#include "cohort/trainers/data/flags_help.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace cohort {
namespace {

constexpr size_t kColumns = 110;
constexpr std::string_view kIndent = "      ";

bool IsAsked(int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--") return false;
    if (argument == "--help" || argument == "-help" || argument == "-h") return true;
  }
  return false;
}

std::string Wrapped(std::string_view text) {
  std::string lines;
  size_t column = kColumns;
  for (const std::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    if (column + 1 + word.size() > kColumns) {
      absl::StrAppend(&lines, "\n", kIndent, word);
      column = kIndent.size() + word.size();
    } else {
      absl::StrAppend(&lines, " ", word);
      column += 1 + word.size();
    }
  }
  return lines;
}

std::string Help(std::string_view program, std::string_view usage) {
  std::string help = absl::StrCat(program, ": ", usage, "\n\nFlags, and their values if they are not given:\n");
  const auto all = absl::GetAllFlags();
  for (const auto& [name, flag] : std::map<std::string_view, absl::CommandLineFlag*>(all.begin(), all.end())) {
    if (absl::StrContains(flag->Filename(), "absl/")) continue;
    absl::StrAppend(&help, "  --", name, "=", flag->CurrentValue(), Wrapped(flag->Help()), "\n");
  }
  return help;
}

}  // namespace

void PrintHelpIfAsked(int argc, const char* const* argv, std::string_view usage) {
  if (!IsAsked(argc, argv)) return;
  const std::string help = Help(std::filesystem::path(argv[0]).filename().string(), usage);
  std::fwrite(help.data(), 1, help.size(), stdout);
  std::exit(std::fflush(stdout) == 0 ? 0 : 1);
}

}  // namespace cohort
