#include "cohort/tools/ckpt/options.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "cohort/checkpoint/internal/quoted.h"
#include "cohort/checkpoint/retention.h"
#include "cohort/tools/ckpt/text.h"

namespace cohort::ckpt {
namespace {

struct CommandForm {
  std::string_view name;
  Command command;
  size_t min_paths;
  size_t max_paths;
  std::string_view takes;
};

constexpr size_t kAny = std::numeric_limits<size_t>::max();
constexpr CommandForm kForms[] = {
    {"ls", Command::kList, 1, 1, "one directory"},
    {"show", Command::kShow, 1, 1, "one file"},
    {"verify", Command::kVerify, 1, kAny, "files and directories"},
    {"diff", Command::kDiff, 2, 2, "two files"},
    {"convert", Command::kConvert, 2, 2, "two files, SRC and DST"},
    {"latest", Command::kLatest, 1, 1, "one directory"},
    {"prune", Command::kPrune, 1, 1, "one directory"},
};

absl::Status Refused(std::string_view argument, std::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(NameText(argument), ": ", why));
}

absl::StatusOr<int64_t> ParseCount(std::string_view argument, std::string_view value) {
  int64_t count = 0;
  if (absl::SimpleAtoi(value, &count) && count >= 1) return count;
  return Refused(argument, "must be an integer of at least 1");
}

// METRIC:min, METRIC:max:N, ... A metric's name may hold colons.
absl::StatusOr<KeepBest> ParseBest(std::string_view argument, std::string_view value) {
  const auto cut_last = [&value]() {
    const size_t colon = value.rfind(':');
    if (colon == std::string_view::npos) return std::string_view();
    const std::string_view last = value.substr(colon + 1);
    value = value.substr(0, colon);
    return last;
  };
  const absl::Status malformed = Refused(argument, "must be METRIC:min or METRIC:max, and may end with :N, at least 1");
  KeepBest best;
  std::string_view order = cut_last();
  if (order != "min" && order != "max") {
    if (!absl::SimpleAtoi(order, &best.count) || best.count < 1) return malformed;
    order = cut_last();
  }
  if (order != "min" && order != "max") return malformed;
  best.order = order == "min" ? KeepBest::Order::kLeast : KeepBest::Order::kGreatest;
  best.metric = value;
  if (CheckRetentionPolicy({.best = {best}}).ok()) return best;
  return Refused(argument, "a metric's name is 1 to 256 bytes of UTF-8 without control characters");
}

// Returns whether it is one of these.
absl::StatusOr<bool> SetPolicyFlag(std::string_view argument, RetentionPolicy& policy) {
  std::string_view value = argument;
  if (absl::ConsumePrefix(&value, "--keep=")) {
    ABSL_ASSIGN_OR_RETURN(policy.newest, ParseCount(argument, value));
  } else if (absl::ConsumePrefix(&value, "--keep-every-steps=")) {
    ABSL_ASSIGN_OR_RETURN(policy.one_every_steps, ParseCount(argument, value));
  } else if (absl::ConsumePrefix(&value, "--keep-every=")) {
    absl::Duration every;
    if (!absl::ParseDuration(value, &every) || !CheckRetentionPolicy({.one_every = every}).ok()) {
      return Refused(argument, "must be a time of more than 0, such as 30m or 24h");
    }
    policy.one_every = every;
  } else if (absl::ConsumePrefix(&value, "--keep-best=")) {
    ABSL_ASSIGN_OR_RETURN(policy.best.emplace_back(), ParseBest(argument, value));
  } else if (argument == "--keep" || argument == "--keep-every-steps" || argument == "--keep-every" ||
             argument == "--keep-best") {
    return Refused(argument, absl::StrCat("needs a value, as in ", argument, "=..."));
  } else {
    return false;
  }
  return true;
}

absl::Status SetFlag(std::string_view argument, Options& options) {
  const std::string_view name = argument.substr(0, argument.find('='));
  if (options.command == Command::kList || options.command == Command::kPrune) {
    ABSL_ASSIGN_OR_RETURN(const bool is_set, SetPolicyFlag(argument, options.policy));
    if (is_set) return absl::OkStatus();
  }
  if (argument == "--json" && options.command == Command::kShow) {
    options.as_json = true;
  } else if (argument == "--dry-run" && options.command == Command::kPrune) {
    options.dry_run = true;
  } else if (argument == "--drop-metadata" && options.command == Command::kConvert) {
    options.drop_metadata = true;
  } else if (argument == "--to=torch" && options.command == Command::kConvert) {
    options.target = Target::kTorch;
  } else if (argument == "--to=safetensors" && options.command == Command::kConvert) {
    options.target = Target::kSafetensors;
  } else if (name == "--to" && options.command == Command::kConvert) {
    return Refused(argument, "must be --to=torch or --to=safetensors");
  } else {
    return Refused(argument, "this command has no such flag");
  }
  return absl::OkStatus();
}

// Nothing is removed that no flag speaks of.
absl::Status CheckPolicy(const Options& options) {
  const RetentionPolicy& policy = options.policy;
  if (policy.newest.has_value()) return absl::OkStatus();
  if (options.command == Command::kPrune) {
    return absl::InvalidArgumentError("prune needs --keep=N: how many of those that were saved last stay");
  }
  if (!policy.one_every_steps.has_value() && !policy.one_every.has_value() && policy.best.empty()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError("without --keep=N all checkpoints stay");
}

absl::StatusOr<Target> TargetByName(std::string_view path) {
  if (absl::EndsWith(path, ".pt") || absl::EndsWith(path, ".pth")) return Target::kTorch;
  if (absl::EndsWith(path, ".safetensors")) return Target::kSafetensors;
  return absl::InvalidArgumentError(
      absl::StrCat(internal::Quoted(path),
                   ": ends neither with .pt or .pth nor with .safetensors; say --to=torch or --to=safetensors"));
}

absl::StatusOr<CommandForm> FindForm(std::string_view name) {
  for (const CommandForm& form : kForms) {
    if (form.name == name) return form;
  }
  return absl::InvalidArgumentError(
      absl::StrCat(NameText(name), ": no such command; there are ls, show, verify, diff, convert, latest and prune"));
}

}  // namespace

absl::StatusOr<Options> ParseOptions(absl::Span<const char* const> arguments) {
  if (arguments.empty())
    return absl::InvalidArgumentError("say what to do: ls, show, verify, diff, convert, latest or prune");
  for (const std::string_view argument : arguments) {
    if (argument == "--") break;
    if (argument == "--help" || argument == "-h") return Options{.command = Command::kHelp};
  }
  ABSL_ASSIGN_OR_RETURN(const CommandForm form, FindForm(arguments.front()));
  Options options = {.command = form.command};
  bool has_flags = true;
  for (const std::string_view argument : arguments.subspan(1)) {
    if (has_flags && argument == "--") {
      has_flags = false;
    } else if (has_flags && argument.size() > 1 && argument.front() == '-') {
      ABSL_RETURN_IF_ERROR(SetFlag(argument, options));
    } else {
      options.paths.emplace_back(argument);
    }
  }
  if (options.paths.size() < form.min_paths || options.paths.size() > form.max_paths) {
    return absl::InvalidArgumentError(
        absl::StrCat(form.name, " takes ", form.takes, "; there are ", options.paths.size()));
  }
  ABSL_RETURN_IF_ERROR(CheckPolicy(options));
  if (form.command == Command::kConvert && options.target == Target::kByName) {
    ABSL_ASSIGN_OR_RETURN(options.target, TargetByName(options.paths[1]));
  }
  return options;
}

std::string_view HelpText() {
  return R"(Looks at checkpoint files, .pt and safetensors, without running anything that stands in them.
Lists, verifies and prunes the directories of runs, which CheckpointManager writes.

  ckpt ls DIR             checkpoint files in DIR (*.pt, *.pth, *.safetensors): format, size, tensors, step and epoch.
                          If DIR is a run's: its checkpoints, the newest last: step, size, age, metrics, which one is
                          pinned or "latest", and what is wrong with those that are skipped
    --keep=N, ...         of a run: also what retention would do, by the flags of prune
  ckpt show FILE          names, dtypes, shapes and bytes of the tensors, metadata, and all other values
    --json                the same as JSON
  ckpt verify PATH...     compares the checksums: ok, no checksums, or what is wrong. PATH is a file, or the directory
                          of a checkpoint or of a run: then all files of it
  ckpt diff A B           every tensor: bit-equal, or the greatest absolute difference; and what else differs. Formats
                          may differ; order and the splitting of names into dicts do not count.
  ckpt convert SRC DST    writes SRC in the format that DST ends with: .pt, .pth or .safetensors. DST is replaced in one
                          step once it is on the disk; on failure it is what it was. SRC is verified first.
    --to=torch, --to=safetensors    the format, whatever DST ends with
    --drop-metadata                 leaves out a safetensors file's metadata, for which .pt has no place
  ckpt latest RUN         the path of the newest complete checkpoint of a run
  ckpt prune RUN          removes the checkpoints of a run that no flag keeps. Those that are pinned, those that are
                          skipped and the newest one stay. Refuses while a job has the run.
    --keep=N                        the N that were saved last; must be given
    --keep-every-steps=N            of every N steps the first
    --keep-every=T                  of every T (30m, 24h, ...) the first
    --keep-best=METRIC:min|max[:N]  the N best by a metric, 1 by default; may be given several times
    --dry-run                       removes nothing, and says what would go

  --help                  this text

"--" ends the flags. Names that hold blanks, quotes or anything that does not print are shown in quotes and escaped.
On a terminal, work that takes longer than a second shows how far it is.

Exit code  0        1                                                      2
  ls       done     a file is damaged or refused; a checkpoint is skipped  trouble: it is missing or cannot be read or
                    or "latest" leads elsewhere than to the newest         written, the command line is wrong, ...
  show     done     the file is damaged or refused
  verify   good     a file is damaged or refused ("no checksums" is good);
                    a checkpoint is skipped, or the run has none
  diff     same     they differ                                            (also if a file is damaged)
  convert  written  SRC is damaged, or DST's format cannot hold it
  latest   printed  the run has no complete checkpoint
  prune    done                                                            (also if one could not be removed)
)";
}

}  // namespace cohort::ckpt
