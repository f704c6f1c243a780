#include "cohort/tools/launch/options.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

namespace cohort::launch {
namespace {

// Each rank costs the launcher four file descriptors and the machine a process: more than this is a typing error.
constexpr int kMaxRanksPerNode = 1024;
constexpr int kMaxNodes = 65536;
constexpr int kMaxPort = 65535;
constexpr double kMaxGraceSeconds = 86400;

// What the flags said, before defaults and the environment are brought in.
struct GivenFlags {
  bool standalone = false;
  std::optional<std::string> master_addr;
  std::optional<int> master_port;
  std::optional<absl::Duration> grace;
};

absl::Status BadValue(std::string_view what, std::string_view value, std::string_view allowed) {
  return absl::InvalidArgumentError(absl::StrCat(what, "=", value, ": must be ", allowed));
}

// Digits only: no sign, no blank, no suffix.
absl::StatusOr<int> ParseInteger(std::string_view what, std::string_view value, int min, int max) {
  int number = 0;
  const bool is_digits = !value.empty() && std::all_of(value.begin(), value.end(), absl::ascii_isdigit);
  if (!is_digits || !absl::SimpleAtoi(value, &number) || number < min || number > max) {
    return BadValue(what, value, absl::StrCat("an integer from ", min, " to ", max));
  }
  return number;
}

absl::StatusOr<absl::Duration> ParseSeconds(std::string_view what, std::string_view value) {
  double seconds = 0;
  const bool is_decimal = !value.empty() && absl::ascii_isdigit(value.front()) &&
                          value.find_first_not_of("0123456789.") == std::string_view::npos;
  if (!is_decimal || !absl::SimpleAtod(value, &seconds) || seconds > kMaxGraceSeconds) {
    return BadValue(what, value, absl::StrCat("a number of seconds from 0 to ", kMaxGraceSeconds));
  }
  return absl::Seconds(seconds);
}

// A host name or a numeric address; whether it resolves is for rank 0 to find out.
absl::StatusOr<std::string> ParseAddress(std::string_view what, std::string_view value) {
  std::string_view address = value;
  if (absl::ConsumePrefix(&address, "[") && !absl::ConsumeSuffix(&address, "]")) address = "";
  const bool is_plausible = !address.empty() && std::all_of(address.begin(), address.end(), [](char c) {
    return absl::ascii_isalnum(c) || absl::StrContains(".-_:%", c);
  });
  if (!is_plausible) return BadValue(what, value, "a host name or an address");
  return std::string(address);
}

absl::Status SetNprocPerNode(std::string_view what, std::string_view value, Options& options, GivenFlags&) {
  ABSL_ASSIGN_OR_RETURN(options.nproc_per_node, ParseInteger(what, value, 1, kMaxRanksPerNode));
  return absl::OkStatus();
}

absl::Status SetNnodes(std::string_view what, std::string_view value, Options& options, GivenFlags&) {
  if (absl::StrContains(value, ':'))
    return BadValue(what, value, "one number of nodes: there are no elastic ranges here");
  ABSL_ASSIGN_OR_RETURN(options.nnodes, ParseInteger(what, value, 1, kMaxNodes));
  return absl::OkStatus();
}

absl::Status SetNodeRank(std::string_view what, std::string_view value, Options& options, GivenFlags&) {
  ABSL_ASSIGN_OR_RETURN(options.node_rank, ParseInteger(what, value, 0, kMaxNodes - 1));
  return absl::OkStatus();
}

absl::Status SetMasterAddr(std::string_view what, std::string_view value, Options&, GivenFlags& given) {
  ABSL_ASSIGN_OR_RETURN(given.master_addr, ParseAddress(what, value));
  return absl::OkStatus();
}

absl::Status SetMasterPort(std::string_view what, std::string_view value, Options&, GivenFlags& given) {
  ABSL_ASSIGN_OR_RETURN(given.master_port, ParseInteger(what, value, 1, kMaxPort));
  return absl::OkStatus();
}

absl::Status SetMaxRestarts(std::string_view what, std::string_view value, Options&, GivenFlags&) {
  if (value != "0") return BadValue(what, value, "0: restarting a failed job is not supported");
  return absl::OkStatus();
}

absl::Status SetGrace(std::string_view what, std::string_view value, Options&, GivenFlags& given) {
  ABSL_ASSIGN_OR_RETURN(given.grace, ParseSeconds(what, value));
  return absl::OkStatus();
}

absl::Status SetStandalone(std::string_view, std::string_view, Options&, GivenFlags& given) {
  given.standalone = true;
  return absl::OkStatus();
}

absl::Status AcceptNoPython(std::string_view, std::string_view, Options&, GivenFlags&) { return absl::OkStatus(); }

absl::Status SetHelp(std::string_view, std::string_view, Options& options, GivenFlags&) {
  options.help = true;
  return absl::OkStatus();
}

struct Flag {
  std::string_view name;
  bool takes_value;
  absl::Status (*set)(std::string_view what, std::string_view value, Options& options, GivenFlags& given);
};

constexpr Flag kFlags[] = {
    {"--nproc-per-node", true, SetNprocPerNode},
    {"--nnodes", true, SetNnodes},
    {"--node-rank", true, SetNodeRank},
    {"--master-addr", true, SetMasterAddr},
    {"--master-port", true, SetMasterPort},
    {"--max-restarts", true, SetMaxRestarts},
    {"--grace", true, SetGrace},
    {"--standalone", false, SetStandalone},
    {"--no-python", false, AcceptNoPython},
    {"--help", false, SetHelp},
};

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
  const Flag* nearest = nullptr;
  int nearest_distance = kMaxSlips + 1;
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
  const std::string name = given == "-h" ? "--help" : absl::StrReplaceAll(given, {{"_", "-"}});
  for (const Flag& flag : kFlags) {
    if (flag.name == name) return &flag;
  }
  const Flag* nearest = NearestFlag(name);
  return absl::InvalidArgumentError(absl::StrCat(
      "unknown flag ", given, nearest == nullptr ? "" : absl::StrCat("; did you mean ", nearest->name, "?")));
}

// Consumes the launcher's flags from the front of `arguments`; what is left is the program and its arguments.
absl::Status ParseFlags(absl::Span<const char* const>& arguments, Options& options, GivenFlags& given) {
  while (!arguments.empty() && arguments.front()[0] == '-') {
    const std::string_view argument = arguments.front();
    arguments.remove_prefix(1);
    if (argument == "--") return absl::OkStatus();
    const size_t equals = argument.find('=');
    const std::string_view name = argument.substr(0, equals);
    ABSL_ASSIGN_OR_RETURN(const Flag* flag, FindFlag(name));
    std::string_view value;
    if (equals != std::string_view::npos) {
      if (!flag->takes_value) return absl::InvalidArgumentError(absl::StrCat(argument, ": ", name, " takes no value"));
      value = argument.substr(equals + 1);
    } else if (flag->takes_value) {
      if (arguments.empty()) return absl::InvalidArgumentError(absl::StrCat(name, " needs a value"));
      value = arguments.front();
      arguments.remove_prefix(1);
    }
    ABSL_RETURN_IF_ERROR(flag->set(name, value, options, given));
    if (options.help) return absl::OkStatus();
  }
  return absl::OkStatus();
}

// Brings in what the environment says where no flag did.
absl::Status AddEnvironment(const Environment& environment, Options& options, GivenFlags& given) {
  auto set_from = [&](const char* variable, bool is_given, auto set) -> absl::Status {
    const auto found = environment.find(variable);
    if (is_given || found == environment.end()) return absl::OkStatus();
    return set(variable, found->second, options, given);
  };
  ABSL_RETURN_IF_ERROR(set_from("COHORT_LAUNCH_GRACE", given.grace.has_value(), SetGrace));
  if (IsInsideARank(environment)) return absl::OkStatus();
  ABSL_RETURN_IF_ERROR(set_from("MASTER_ADDR", given.master_addr.has_value(), SetMasterAddr));
  return set_from("MASTER_PORT", given.master_port.has_value(), SetMasterPort);
}

absl::Status CheckTogether(const Options& options, const GivenFlags& given) {
  if (given.standalone && options.nnodes > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--standalone means one node, and --nnodes=", options.nnodes, " says otherwise"));
  }
  if (options.node_rank >= options.nnodes) {
    return absl::InvalidArgumentError(
        absl::StrCat("--node-rank=", options.node_rank, ": must be below --nnodes=", options.nnodes));
  }
  if (options.nnodes > 1 && (!given.master_addr.has_value() || !given.master_port.has_value())) {
    return absl::InvalidArgumentError(
        absl::StrCat("--nnodes=", options.nnodes,
                     " needs --master-addr and --master-port (of the node with --node-rank=0), the same on "
                     "every node"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Options> ParseOptions(absl::Span<const char* const> arguments, const Environment& environment) {
  Options options;
  GivenFlags given;
  ABSL_RETURN_IF_ERROR(ParseFlags(arguments, options, given));
  if (options.help) return options;
  ABSL_RETURN_IF_ERROR(AddEnvironment(environment, options, given));
  ABSL_RETURN_IF_ERROR(CheckTogether(options, given));
  if (arguments.empty()) return absl::InvalidArgumentError("no program given");

  if (given.master_addr.has_value()) options.master_addr = *given.master_addr;
  options.master_port = given.master_port;
  if (given.grace.has_value()) options.grace = *given.grace;
  options.command.assign(arguments.begin(), arguments.end());
  return options;
}

std::string_view HelpText() {
  return R"(Starts the ranks of a distributed program on this machine, and stops them all when one fails.

Usage: launch [FLAGS] PROGRAM [ARGUMENTS...]

  launch --nproc-per-node=2 ./trainer --epochs=10
  bazel run --run_under='//tools/launch --nproc-per-node=2' //trainers:linear -- --epochs=10

Flags (torchrun's names; --nproc_per_node works as well, and so does a blank in place of '='):

  --nproc-per-node=N    ranks to start on this machine, 1 to 1024; 1 if not given
  --grace=SECONDS       how long ranks may take to stop once they are asked to, before they are killed; 30 if not given
                        (also COHORT_LAUNCH_GRACE in the environment)

For several machines, the same command on each but for --node-rank:

  --nnodes=N            machines; 1 if not given
  --node-rank=N         which of them this is, counted from 0; 0 if not given
  --master-addr=HOST    where the machine with --node-rank=0 is reached; 127.0.0.1 if there is one machine
                        (also MASTER_ADDR in the environment)
  --master-port=PORT    where rank 0 listens; a free port is chosen if there is one machine
                        (also MASTER_PORT in the environment)

Accepted so that torchrun's command lines work:

  --standalone          one machine: what we do without --nnodes
  --no-python           run PROGRAM as it is: what we always do
  --max-restarts=0      0 only: a failed job is not restarted

  --help                this text

Everything after PROGRAM belongs to PROGRAM. The ranks get RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT and
the other variables that torchrun sets. With two ranks or more on this machine each line they print starts with
"[RANK] ". Standard input goes to the first rank; the others have none.

Exit code: 0 if every rank ended with 0; else that of the rank that failed first, or 128+N if signal N ended it. 2: the
command line is wrong. 125: the launcher itself could not go on. 126, 127: PROGRAM is not executable, was not found.
)";
}

}  // namespace cohort::launch
