#include "cohort/tools/launch/options.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cohort/tools/launch/flag_values.h"
#include "cohort/tools/launch/flags.h"

namespace cohort::launch {
namespace {

// Each rank costs the launcher four file descriptors and the machine a process: more than this is a typing error.
constexpr int kMaxRanksPerNode = 1024;
constexpr int kMaxNodes = 65536;
constexpr int kMaxRestarts = 1000;
constexpr absl::Duration kMaxGrace = absl::Hours(24);
constexpr std::string_view kForwardedSignals[] = {"SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"};

// The flag's value, or nullptr if nobody gave it.
const FlagValue* Find(const FlagValues& flags, std::string_view name) {
  const auto found = flags.find(name);
  return found == flags.end() ? nullptr : &found->second;
}

// A variable that is not torchrun's in place of a flag.
void AddVariable(const Environment& environment, std::string_view variable, std::string_view flag, FlagValues& flags) {
  const auto found = environment.find(variable);
  if (found == environment.end()) return;
  flags.try_emplace(std::string(flag), FlagValue{found->first, found->second});
}

// Brings in what the environment says where no flag did.
absl::Status AddEnvironment(const Environment& environment, FlagValues& flags) {
  AddVariable(environment, "COHORT_LAUNCH_GRACE", "--grace", flags);
  if (IsInsideARank(environment)) return absl::OkStatus();
  ABSL_RETURN_IF_ERROR(AddFlagsFromEnvironment(environment, flags));
  // An endpoint that was given is both.
  if (Find(flags, "--rdzv-endpoint") != nullptr) return absl::OkStatus();
  AddVariable(environment, "MASTER_ADDR", "--master-addr", flags);
  AddVariable(environment, "MASTER_PORT", "--master-port", flags);
  return absl::OkStatus();
}

absl::StatusOr<int> CountRanks(const FlagValue& given, const Devices& devices) {
  if (given.value == "cpu") return devices.count_cpus();
  if (given.value == "gpu" || given.value == "auto") {
    const absl::StatusOr<int> gpus = devices.count_gpus();
    if (!gpus.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(given.what, "=", given.value, ": ", gpus.status().message(), "; a number can be given instead"));
    }
    if (*gpus > 0) return *gpus;
    if (given.value == "auto") return devices.count_cpus();
    return absl::InvalidArgumentError(absl::StrCat(
        given.what, "=gpu: this machine shows no GPU (no NVIDIA driver, no device, or CUDA_VISIBLE_DEVICES hides it)"));
  }
  const absl::StatusOr<int> number = ParseInteger(given.what, given.value, 1, kMaxRanksPerNode);
  if (number.ok()) return number;
  return BadValue(given.what, given.value,
                  absl::StrCat("an integer from 1 to ", kMaxRanksPerNode, ", gpu, cpu or auto"));
}

absl::Status SetRanks(const FlagValues& flags, const Devices& devices, Options& options) {
  if (const FlagValue* given = Find(flags, "--nproc-per-node")) {
    ABSL_ASSIGN_OR_RETURN(const int count, CountRanks(*given, devices));
    if (count > kMaxRanksPerNode) {
      return absl::InvalidArgumentError(absl::StrCat(given->what, "=", given->value, ": ", count,
                                                     " of them, and at most ", kMaxRanksPerNode,
                                                     " ranks can be started"));
    }
    options.nproc_per_node = count;
  }
  const auto text = [&](std::string_view name) -> std::string_view {
    const FlagValue* given = Find(flags, name);
    return given == nullptr ? std::string_view() : given->value;
  };
  const OutputFlags outputs = {
      .redirects = text("--redirects"), .tee = text("--tee"), .local_ranks_filter = text("--local-ranks-filter")};
  ABSL_ASSIGN_OR_RETURN(options.outputs, MakeOutputPlan(outputs, options.nproc_per_node));
  return absl::OkStatus();
}

// As it was given: "--nnodes=2", "PET_NNODES=2".
std::string NumberOfNodes(const FlagValues& flags, const Options& options) {
  const FlagValue* given = Find(flags, "--nnodes");
  return absl::StrCat(given == nullptr ? "--nnodes" : given->what, "=", options.nnodes);
}

absl::Status SetNodes(const FlagValues& flags, Options& options) {
  if (const FlagValue* given = Find(flags, "--nnodes")) {
    std::string_view value = given->value;
    // torchrun's range: "2:2" is 2.
    const size_t colon = value.find(':');
    if (colon != std::string_view::npos) {
      if (value.substr(0, colon) != value.substr(colon + 1)) {
        return BadValue(given->what, value, "one number of nodes: there are no elastic ranges here");
      }
      value = value.substr(0, colon);
    }
    ABSL_ASSIGN_OR_RETURN(options.nnodes, ParseInteger(given->what, value, 1, kMaxNodes));
  }
  if (const FlagValue* given = Find(flags, "--node-rank")) {
    ABSL_ASSIGN_OR_RETURN(options.node_rank, ParseInteger(given->what, given->value, 0, kMaxNodes - 1));
    if (options.node_rank >= options.nnodes) {
      return BadValue(given->what, given->value, absl::StrCat("below ", NumberOfNodes(flags, options)));
    }
  }
  if (Find(flags, "--standalone") != nullptr && options.nnodes > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--standalone means one node, and ", NumberOfNodes(flags, options), " says otherwise"));
  }
  return absl::OkStatus();
}

absl::Status Disagree(const FlagValue& one, const FlagValue& other) {
  return absl::InvalidArgumentError(absl::StrCat(one.what, "=", one.value, " and ", other.what, "=", other.value,
                                                 " name two places for rank 0 to listen at"));
}

// --master-addr and --master-port, or --rdzv-endpoint, which is both.
absl::Status SetMaster(const FlagValues& flags, Options& options) {
  std::optional<std::string> host;
  if (const FlagValue* given = Find(flags, "--master-addr")) {
    ABSL_ASSIGN_OR_RETURN(host, ParseAddress(given->what, given->value));
  }
  if (const FlagValue* given = Find(flags, "--master-port")) {
    ABSL_ASSIGN_OR_RETURN(options.master_port, ParsePort(given->what, given->value));
  }
  if (const FlagValue* given = Find(flags, "--rdzv-endpoint"); given != nullptr && !given->value.empty()) {
    ABSL_ASSIGN_OR_RETURN(const HostAndPort endpoint, ParseEndpoint(given->what, given->value));
    if (host.has_value() && *host != endpoint.host) return Disagree(*given, *Find(flags, "--master-addr"));
    if (options.master_port.has_value() && options.master_port != endpoint.port) {
      return Disagree(*given, *Find(flags, "--master-port"));
    }
    host = endpoint.host;
    options.master_port = endpoint.port;
  }
  if (options.nnodes > 1 && (!host.has_value() || !options.master_port.has_value())) {
    const std::string_view missing = host.has_value()                  ? "--master-port"
                                     : options.master_port.has_value() ? "--master-addr"
                                                                       : "--master-addr and --master-port";
    return absl::InvalidArgumentError(absl::StrCat(NumberOfNodes(flags, options), " needs ", missing,
                                                   " (of the node with --node-rank=0), the same on every node"));
  }
  if (host.has_value()) options.master_addr = *host;
  return absl::OkStatus();
}

// One machine needs no rendezvous, so any that needs nothing outside of it is what we do; several are told their
// numbers.
absl::Status CheckRendezvous(const FlagValues& flags, const Options& options) {
  const FlagValue* given = Find(flags, "--rdzv-backend");
  if (given == nullptr || given->value == "static") return absl::OkStatus();
  if (given->value != "c10d") return BadValue(given->what, given->value, "static, or c10d with one node");
  if (options.nnodes == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(given->what, "=c10d means nothing here with ",
                                                 NumberOfNodes(flags, options),
                                                 ": nobody gives the nodes their numbers; use static with --node-rank, "
                                                 "or torchrun, under which programs run as well"));
}

absl::Status SetNames(const FlagValues& flags, Options& options) {
  if (const FlagValue* given = Find(flags, "--rdzv-id")) {
    ABSL_ASSIGN_OR_RETURN(options.run_id, ParseName(given->what, given->value));
  }
  if (const FlagValue* given = Find(flags, "--role")) {
    ABSL_ASSIGN_OR_RETURN(options.role, ParseName(given->what, given->value));
  }
  return absl::OkStatus();
}

absl::Status SetTimes(const FlagValues& flags, Options& options) {
  if (const FlagValue* given = Find(flags, "--grace")) {
    ABSL_ASSIGN_OR_RETURN(options.grace, ParseSeconds(given->what, given->value, kMaxGrace));
  }
  // Of no effect: we are told of what happens, and look at nothing again and again.
  if (const FlagValue* given = Find(flags, "--monitor-interval")) {
    const absl::StatusOr<absl::Duration> interval = ParseSeconds(given->what, given->value, kMaxGrace);
    if (!interval.ok() || *interval <= absl::ZeroDuration()) {
      return BadValue(given->what, given->value, "a number of seconds above 0");
    }
  }
  return absl::OkStatus();
}

absl::Status SetMaxRestarts(const FlagValues& flags, Options& options) {
  const FlagValue* given = Find(flags, "--max-restarts");
  if (given == nullptr) return absl::OkStatus();
  ABSL_ASSIGN_OR_RETURN(options.max_restarts, ParseInteger(given->what, given->value, 0, kMaxRestarts));
  if (options.max_restarts == 0 || options.nnodes == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(given->what, "=", given->value, " with ", NumberOfNodes(flags, options),
                   ": the launchers of several nodes do not know of each other's failures; use torchrun for restarts"));
}

// They are passed on whatever is listed; one that is not must not be promised.
absl::Status CheckSignals(const FlagValues& flags) {
  const FlagValue* given = Find(flags, "--signals-to-handle");
  if (given == nullptr) return absl::OkStatus();
  for (const std::string_view name : absl::StrSplit(given->value, ',')) {
    if (std::find(std::begin(kForwardedSignals), std::end(kForwardedSignals), name) == std::end(kForwardedSignals)) {
      return BadValue(given->what, given->value, "of SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2");
    }
  }
  return absl::OkStatus();
}

// `bazel run` does not start us where the user stands.
absl::Status SetLogDirectory(const FlagValues& flags, const Environment& environment, Options& options) {
  const FlagValue* given = Find(flags, "--log-dir");
  if (given == nullptr) return absl::OkStatus();
  if (given->value.empty()) return BadValue(given->what, given->value, "a directory");
  options.log_dir = given->value;
  const auto stands = environment.find("BUILD_WORKING_DIRECTORY");
  if (stands != environment.end() && !absl::StartsWith(given->value, "/")) {
    options.log_dir = absl::StrCat(stands->second, "/", given->value);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Options> ParseOptions(absl::Span<const char* const> arguments, const Environment& environment,
                                     const Devices& devices) {
  ABSL_ASSIGN_OR_RETURN(CommandLine line, ParseCommandLine(arguments));
  FlagValues& flags = line.flags;
  Options options;
  options.help = Find(flags, "--help") != nullptr;
  options.explain = !options.help && Find(flags, "--explain") != nullptr;
  if (options.help || options.explain) return options;

  ABSL_RETURN_IF_ERROR(AddEnvironment(environment, flags));
  ABSL_RETURN_IF_ERROR(SetNodes(flags, options));
  ABSL_RETURN_IF_ERROR(CheckRendezvous(flags, options));
  ABSL_RETURN_IF_ERROR(SetRanks(flags, devices, options));
  ABSL_RETURN_IF_ERROR(SetMaster(flags, options));
  ABSL_RETURN_IF_ERROR(SetNames(flags, options));
  ABSL_RETURN_IF_ERROR(SetTimes(flags, options));
  ABSL_RETURN_IF_ERROR(SetMaxRestarts(flags, options));
  ABSL_RETURN_IF_ERROR(CheckSignals(flags));
  ABSL_RETURN_IF_ERROR(SetLogDirectory(flags, environment, options));
  if (line.command.empty()) return absl::InvalidArgumentError("no program given");
  options.dry_run = Find(flags, "--dry-run") != nullptr;
  options.command = std::move(line.command);
  return options;
}

}  // namespace cohort::launch
