#include "cohort/tools/launch/dry_run.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace cohort::launch {
namespace {

std::string_view Destination(const StreamPlan& stream) {
  if (stream.to_file) return stream.to_console ? "console and file" : "file";
  return stream.to_console ? "console" : "nowhere";
}

std::string Assignments(const Environment& environment, const Environment& inherited) {
  std::string text;
  for (const auto& [name, value] : inherited) {
    if (!environment.contains(name)) absl::StrAppend(&text, " -u ", ShellQuoted(name));
  }
  // What the launcher sets is told also where the same stands in its own environment already.
  JobPlan several;
  several.nproc_per_node = 2;
  for (const auto& [name, unused] : RankEnvironment(several, 0, {})) {
    const auto found = environment.find(name);
    if (found != environment.end()) absl::StrAppend(&text, " ", name, "=", ShellQuoted(found->second));
  }
  return text;
}

}  // namespace

std::string ShellQuoted(std::string_view word) {
  const bool is_plain = !word.empty() && std::all_of(word.begin(), word.end(), [](char c) {
    return absl::ascii_isalnum(c) || absl::StrContains("_-./:=,@%+", c);
  });
  if (is_plain) return std::string(word);
  return absl::StrCat("'", absl::StrReplaceAll(word, {{"'", "'\\''"}}), "'");
}

std::string DescribeRanks(const JobPlan& plan, const Environment& inherited, const std::vector<std::string>& command,
                          const OutputPlan& outputs) {
  std::string text;
  for (int local_rank = 0; local_rank < plan.nproc_per_node; ++local_rank) {
    const RankOutputPlan& output = outputs[local_rank];
    absl::StrAppend(&text, "# rank ", plan.rank(local_rank), ": standard output to ", Destination(output.out),
                    ", standard error to ", Destination(output.err), "\nenv",
                    Assignments(RankEnvironment(plan, local_rank, inherited), inherited));
    for (const std::string& word : command) absl::StrAppend(&text, " ", ShellQuoted(word));
    text += '\n';
  }
  return text;
}

}  // namespace cohort::launch
