#include "cohort/runtime/rank_info.h"

#include <stdlib.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cohort/runtime/internal/environment_values.h"
#include "cohort/runtime/internal/launcher_environment.h"
#include "cohort/runtime/internal/open_mpi_environment.h"
#include "cohort/runtime/internal/pmix_environment.h"
#include "cohort/runtime/internal/slurm_environment.h"
#include "cohort/runtime/internal/torchrun_environment.h"

namespace cohort {
namespace {

using internal::Derived;
using internal::LauncherEnvironment;
using internal::Placement;

constexpr std::string_view kAddr = "MASTER_ADDR";
constexpr std::string_view kPort = "MASTER_PORT";
constexpr size_t kMaxShownBytes = 120;  // of a value, where people read it

// All of them, the first that counts first. mpirun comes before srun because inside an allocation it starts its daemons
// by srun, and what they start inherits a SLURM_PROCID that is theirs.
const std::vector<const LauncherEnvironment*>& Launchers() {
  static const internal::TorchrunEnvironment torchrun;
  static const internal::OpenMpiEnvironment open_mpi;
  static const internal::SlurmEnvironment slurm;
  static const internal::PmixEnvironment pmix;
  static const auto& launchers = *new std::vector<const LauncherEnvironment*>{&torchrun, &open_mpi, &slurm, &pmix};
  return launchers;
}

// What was found, and how.
struct Finding {
  const LauncherEnvironment* launcher = nullptr;  // null: none
  RankInfo info;
  std::string how_addr;
  std::string how_port;
};

absl::StatusOr<const LauncherEnvironment*> FindLauncher(GetEnv get_env) {
  for (const LauncherEnvironment* launcher : Launchers()) {
    ABSL_ASSIGN_OR_RETURN(const bool has_started, launcher->HasStarted(get_env));
    if (has_started) return launcher;
  }
  return nullptr;
}

// An error of `launcher`, with the others whose variables are there as well: it may be one of them that was meant.
absl::Status NameTheOthers(const absl::Status& error, const LauncherEnvironment* launcher, GetEnv get_env) {
  std::vector<std::string_view> others;
  for (const LauncherEnvironment* other : Launchers()) {
    if (other == launcher || other == Launchers().back()) continue;  // the last has nothing to offer
    if (other->HasStarted(get_env).value_or(false)) others.push_back(other->name());
  }
  if (others.empty()) return error;
  return absl::Status(error.code(), absl::StrCat(error.message(), " (the variables of ", absl::StrJoin(others, " and "),
                                                 " are there, too; those of ", launcher->name(), " come first)"));
}

absl::Status SetMeetingPoint(const LauncherEnvironment& launcher, const Placement& placement, GetEnv get_env,
                             Finding& finding) {
  RankInfo& info = finding.info;
  if (get_env(kAddr).has_value()) {
    ABSL_ASSIGN_OR_RETURN(info.master_addr, internal::ReadHost(get_env, kAddr));
  } else {
    ABSL_ASSIGN_OR_RETURN(Derived<std::string> addr, launcher.DeriveMasterAddr(placement, get_env));
    info.master_addr = std::move(addr.value);
    finding.how_addr = std::move(addr.how);
  }
  if (get_env(kPort).has_value()) {
    ABSL_ASSIGN_OR_RETURN(info.master_port, internal::ReadInt(get_env, kPort, 1, internal::kMaxPort, 0));
  } else {
    ABSL_ASSIGN_OR_RETURN(Derived<int> port, launcher.DeriveMasterPort(placement, get_env));
    info.master_port = port.value;
    finding.how_port = std::move(port.how);
  }
  if (!finding.how_addr.empty() || !finding.how_port.empty()) info.master_derived_from = std::string(launcher.name());
  return absl::OkStatus();
}

absl::Status FillIn(const LauncherEnvironment& launcher, GetEnv get_env, Finding& finding) {
  ABSL_ASSIGN_OR_RETURN(const Placement placement, launcher.Place(get_env));
  finding.info = {.rank = placement.rank,
                  .world_size = placement.world_size,
                  .local_rank = placement.local_rank,
                  .has_local_rank = placement.has_local_rank,
                  .local_world_size = placement.local_world_size,
                  .run_id = placement.run_id,
                  .restart_count = placement.restart_count,
                  .use_agent_store = placement.use_agent_store};
  if (placement.world_size == 1) return absl::OkStatus();
  return SetMeetingPoint(launcher, placement, get_env, finding);
}

absl::Status Find(GetEnv get_env, Finding& finding) {
  ABSL_ASSIGN_OR_RETURN(finding.launcher, FindLauncher(get_env));
  if (finding.launcher != nullptr) {
    const absl::Status status = FillIn(*finding.launcher, get_env, finding);
    return status.ok() ? status : NameTheOthers(status, finding.launcher, get_env);
  }
  // A batch script sets MASTER_ADDR for the steps that it will start.
  if (internal::SlurmEnvironment::IsInAllocation(get_env)) return absl::OkStatus();
  return FillIn(*Launchers().front(), get_env, finding);
}

// ---- For people ----

// An environment that notes which of its variables were looked at and are there.
class Notes {
 public:
  explicit Notes(GetEnv get_env) : get_env_(get_env) {}

  std::optional<std::string> operator()(std::string_view name) {
    std::optional<std::string> value = get_env_(name);
    if (value.has_value()) read_.emplace(name, *value);
    return value;
  }

  const std::map<std::string, std::string, std::less<>>& read() const { return read_; }

  // Those that some launcher has, and that were not looked at.
  std::map<std::string, std::string, std::less<>> NotRead() const {
    std::map<std::string, std::string, std::less<>> variables;
    const auto add = [&](std::string_view name) {
      std::optional<std::string> value = get_env_(name);
      if (value.has_value() && !read_.contains(name)) variables.emplace(name, *value);
    };
    for (const LauncherEnvironment* launcher : Launchers()) std::ranges::for_each(launcher->variables(), add);
    add(kAddr);
    add(kPort);
    return variables;
  }

 private:
  const GetEnv get_env_;
  std::map<std::string, std::string, std::less<>> read_;
};

std::string Lines(std::string_view title, const std::map<std::string, std::string, std::less<>>& variables) {
  std::string text;
  for (const auto& [name, value] : variables) {
    absl::StrAppend(&text, text.empty() ? title : "          ", name, "=\"",
                    absl::Utf8SafeCHexEscape(std::string_view(value).substr(0, kMaxShownBytes)),
                    value.size() > kMaxShownBytes ? "..." : "", "\"\n");
  }
  return text;
}

std::string WhyNone(GetEnv get_env) {
  if (!internal::SlurmEnvironment::IsInAllocation(get_env)) return "none: no variable of one is there";
  return "none: started by hand inside an allocation of Slurm's, and not by srun";
}

std::string DescribeMeetingPoint(const Finding& finding) {
  const RankInfo& info = finding.info;
  if (info.world_size == 1) return "meets     nobody: a world of one\n";
  const auto origin = [](std::string_view name, const std::string& how) {
    return how.empty() ? absl::StrCat("          ", name, " was given\n")
                       : absl::StrCat("          ", name, " was not: it is ", how, "\n");
  };
  const bool has_colon = info.master_addr.find(':') != std::string::npos;
  return absl::StrCat("meets at  ", has_colon ? "[" : "", info.master_addr, has_colon ? "]:" : ":", info.master_port,
                      "\n", origin(kAddr, finding.how_addr), origin(kPort, finding.how_port),
                      info.use_agent_store ? "          the store of torchrun's agent is there\n" : "");
}

std::optional<std::string> GetProcessEnv(std::string_view name) {
  const char* value = getenv(std::string(name).c_str());
  if (value == nullptr) return std::nullopt;
  return value;
}

}  // namespace

absl::StatusOr<RankInfo> ParseRankInfo(GetEnv get_env) {
  Finding finding;
  ABSL_RETURN_IF_ERROR(Find(get_env, finding));
  return std::move(finding.info);
}

absl::StatusOr<RankInfo> RankInfoFromEnvironment() { return ParseRankInfo(GetProcessEnv); }

std::string ExplainRankInfo(GetEnv get_env) {
  Notes notes(get_env);
  Finding finding;
  const absl::Status status = Find(notes, finding);
  std::string text = absl::StrCat(
      "launcher  ", finding.launcher == nullptr ? WhyNone(get_env) : std::string(finding.launcher->name()), "\n");
  if (status.ok()) {
    const RankInfo& info = finding.info;
    absl::StrAppend(&text, "rank      ", info.rank, " of ", info.world_size, "; on this machine ", info.local_rank,
                    " of ", info.local_world_size, info.has_local_rank ? "" : " (nobody said so)", "\n",
                    DescribeMeetingPoint(finding), "run       ", absl::Utf8SafeCHexEscape(info.run_id), ", restart ",
                    info.restart_count, "\n");
  } else {
    absl::StrAppend(&text, "error     ", status.message(), "\n");
  }
  return absl::StrCat(text, Lines("read      ", notes.read()), Lines("not read  ", notes.NotRead()));
}

std::string ExplainRankInfoFromEnvironment() { return ExplainRankInfo(GetProcessEnv); }

}  // namespace cohort
