#include "cohort/tools/launch/flags.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "cohort/tools/launch/flag_values.h"

namespace cohort::launch {
namespace {

enum class Origin { kOurs, kTorchruns };

struct Flag {
  std::string_view name;
  bool takes_value;
  Origin origin = Origin::kTorchruns;
  // "-r", or empty.
  std::string_view short_name = "";
  // The flag that this is another name of, or empty.
  std::string_view alias_of = "";
  // Of those that mean nothing here: why, and what to do instead.
  std::string_view refusal = "";
};

constexpr Flag kFlags[] = {
    {"--nproc-per-node", true},
    {"--nnodes", true},
    {"--node-rank", true},
    {"--master-addr", true},
    {"--master-port", true},
    {"--rdzv-endpoint", true},
    {"--rdzv-backend", true},
    {"--rdzv-id", true},
    {"--standalone", false},
    {"--max-restarts", true},
    {"--monitor-interval", true},
    {"--role", true},
    {"--log-dir", true},
    {"--redirects", true, Origin::kTorchruns, "-r"},
    {"--tee", true, Origin::kTorchruns, "-t"},
    {"--local-ranks-filter", true},
    {"--signals-to-handle", true},
    {"--no-python", false},
    {"--grace", true, Origin::kOurs},
    {"--shutdown-timeout", true, Origin::kTorchruns, "", "--grace"},
    {"--dry-run", false, Origin::kOurs},
    {"--explain", false, Origin::kOurs},
    {"--help", false, Origin::kOurs, "-h"},
};

constexpr std::string_view kPythonsOwn = "it is about Python, and ranks are programs of any kind here";

constexpr Flag Refused(std::string_view name, bool takes_value, std::string_view why,
                       std::string_view short_name = "") {
  return {name, takes_value, Origin::kTorchruns, short_name, "", why};
}

constexpr Flag kRefusedFlags[] = {
    Refused("--module", false, "nothing here knows Python; give the command: python3 -u -m MODULE ...", "-m"),
    Refused("--run-path", false, kPythonsOwn),
    Refused("--start-method", true, kPythonsOwn),
    Refused("--event-log-handler", true, kPythonsOwn),
    Refused("--logs-specs", true, kPythonsOwn),
    Refused("--rdzv-conf", true, "there is no rendezvous to configure: machines are told their number by --node-rank"),
    Refused("--local-addr", true, "ranks find their own address; GLOO_SOCKET_IFNAME names the interface to use"),
    Refused("--log-line-prefix-template", true, "lines begin with [RANK], or are as written if there is one rank"),
    Refused("--duplicate-stdout-filters", true, "filter the files of --log-dir with --redirects or --tee"),
    Refused("--duplicate-stderr-filters", true, "filter the files of --log-dir with --redirects or --tee"),
    Refused("--numa-binding", true, "ranks are not bound to processors; start the program through numactl or taskset"),
    Refused("--virtual-local-rank", false, "ranks see all devices, and LOCAL_RANK says which one to take"),
    Refused("--print-completion", true, "there is none; --help lists the flags"),
};

absl::Status Refusal(std::string_view what, const Flag& flag) {
  return absl::InvalidArgumentError(absl::StrCat(what, " means nothing here: ", flag.refusal));
}

int EditDistance(std::string_view a, std::string_view b) {
  std::vector<int> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    int diagonal = row[0]++;
    for (size_t j = 1; j <= b.size(); ++j) {
      const int substitution = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({substitution, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

// An abbreviation (which torchrun takes) or a slip of the finger: the flag that was probably meant, or nullptr.
const Flag* NearestFlag(std::string_view name) {
  constexpr int kMaxSlips = 3;
  constexpr size_t kLettersASlip = 2;  // of a short name little would be left
  const Flag* nearest = nullptr;
  int nearest_distance =
      std::min(kMaxSlips, static_cast<int>((std::max<size_t>(name.size(), 2) - 2) / kLettersASlip)) + 1;
  for (const Flag& flag : kFlags) {
    const bool is_abbreviation = name.size() > 3 && absl::StartsWith(flag.name, name);
    const int distance = is_abbreviation ? 0 : EditDistance(name, flag.name);
    if (distance >= nearest_distance) continue;
    nearest = &flag;
    nearest_distance = distance;
  }
  return nearest;
}

absl::StatusOr<const Flag*> FindFlag(std::string_view given) {
  const std::string name = absl::StrReplaceAll(given, {{"_", "-"}});
  for (const Flag& flag : kFlags) {
    if (flag.name == name || flag.short_name == name) return &flag;
  }
  for (const Flag& flag : kRefusedFlags) {
    if (flag.name == name || flag.short_name == name) return Refusal(given, flag);
  }
  const Flag* nearest = NearestFlag(name);
  return absl::InvalidArgumentError(
      absl::StrCat("unknown flag ", absl::Utf8SafeCEscape(given),
                   nearest == nullptr ? "" : absl::StrCat("; did you mean ", nearest->name, "?")));
}

// "--tee=3" is "--tee" and "=3", "-t3" is "-t" and "3".
std::string_view NameIn(std::string_view argument) {
  const bool is_short = argument.size() > 2 && argument[1] != '-';
  return is_short ? argument.substr(0, 2) : argument.substr(0, argument.find('='));
}

std::string VariableOf(const Flag& flag) {
  return absl::StrCat("PET_", absl::AsciiStrToUpper(absl::StrReplaceAll(flag.name.substr(2), {{"-", "_"}})));
}

std::string NameOf(const Flag& flag) { return std::string(flag.alias_of.empty() ? flag.name : flag.alias_of); }

// Whether the variable of a flag without a value says that it is given.
absl::StatusOr<bool> ParseSwitch(std::string_view variable, std::string_view value) {
  if (value != "0" && value != "1") return BadValue(variable, value, "0 or 1");
  return value == "1";
}

}  // namespace

absl::StatusOr<CommandLine> ParseCommandLine(absl::Span<const char* const> arguments) {
  CommandLine line;
  while (!arguments.empty() && arguments.front()[0] == '-') {
    const std::string_view argument = arguments.front();
    arguments.remove_prefix(1);
    if (argument == "--") break;
    const std::string_view name = NameIn(argument);
    ABSL_ASSIGN_OR_RETURN(const Flag* flag, FindFlag(name));
    std::string_view value = argument.substr(name.size());
    if (!value.empty()) {
      if (!flag->takes_value)
        return absl::InvalidArgumentError(absl::StrCat(absl::Utf8SafeCEscape(argument), ": ", name, " takes no value"));
      if (value.front() == '=') value.remove_prefix(1);
    } else if (flag->takes_value) {
      if (arguments.empty()) return absl::InvalidArgumentError(absl::StrCat(name, " needs a value"));
      value = arguments.front();
      arguments.remove_prefix(1);
    }
    line.flags.insert_or_assign(NameOf(*flag), FlagValue{std::string(name), std::string(value)});
    if (flag->name == "--help") break;
  }
  line.command.assign(arguments.begin(), arguments.end());
  return line;
}

absl::Status AddFlagsFromEnvironment(const Environment& environment, FlagValues& flags) {
  for (const Flag& flag : kRefusedFlags) {
    const auto found = environment.find(VariableOf(flag));
    // Some set all of torchrun's variables, to nothing where they mean nothing.
    const bool says_nothing = found == environment.end() || found->second.empty() || found->second == "0";
    if (!says_nothing) return Refusal(found->first, flag);
  }
  for (const Flag& flag : kFlags) {
    const auto found = environment.find(VariableOf(flag));
    if (flag.origin != Origin::kTorchruns || found == environment.end() || found->second.empty()) continue;
    const auto& [variable, value] = *found;
    if (flag.takes_value) {
      flags.try_emplace(NameOf(flag), FlagValue{variable, value});
      continue;
    }
    ABSL_ASSIGN_OR_RETURN(const bool is_given, ParseSwitch(variable, value));
    if (is_given) flags.try_emplace(NameOf(flag), FlagValue{variable, ""});
  }
  return absl::OkStatus();
}

}  // namespace cohort::launch
