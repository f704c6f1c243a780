#include "cohort/tools/ckpt/options.h"

#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
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
    {"verify", Command::kVerify, 1, kAny, "files"},
    {"diff", Command::kDiff, 2, 2, "two files"},
    {"convert", Command::kConvert, 2, 2, "two files, SRC and DST"},
};

absl::Status SetFlag(std::string_view argument, Options& options) {
  const std::string_view name = argument.substr(0, argument.find('='));
  const auto refused = [&](std::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat(NameText(argument), ": ", why));
  };
  if (argument == "--json" && options.command == Command::kShow) {
    options.as_json = true;
  } else if (argument == "--drop-metadata" && options.command == Command::kConvert) {
    options.drop_metadata = true;
  } else if (argument == "--to=torch" && options.command == Command::kConvert) {
    options.target = Target::kTorch;
  } else if (argument == "--to=safetensors" && options.command == Command::kConvert) {
    options.target = Target::kSafetensors;
  } else if (name == "--to" && options.command == Command::kConvert) {
    return refused("must be --to=torch or --to=safetensors");
  } else {
    return refused("this command has no such flag");
  }
  return absl::OkStatus();
}

absl::StatusOr<Target> TargetByName(std::string_view path) {
  if (absl::EndsWith(path, ".pt") || absl::EndsWith(path, ".pth")) return Target::kTorch;
  if (absl::EndsWith(path, ".safetensors")) return Target::kSafetensors;
  return absl::InvalidArgumentError(absl::StrCat(
      QuotedText(path), ": ends neither with .pt or .pth nor with .safetensors; say --to=torch or --to=safetensors"));
}

absl::StatusOr<CommandForm> FindForm(std::string_view name) {
  for (const CommandForm& form : kForms) {
    if (form.name == name) return form;
  }
  return absl::InvalidArgumentError(
      absl::StrCat(NameText(name), ": no such command; there are ls, show, verify, diff and convert"));
}

}  // namespace

absl::StatusOr<Options> ParseOptions(absl::Span<const char* const> arguments) {
  if (arguments.empty()) return absl::InvalidArgumentError("say what to do: ls, show, verify, diff or convert");
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
  if (form.command == Command::kConvert && options.target == Target::kByName) {
    ABSL_ASSIGN_OR_RETURN(options.target, TargetByName(options.paths[1]));
  }
  return options;
}

std::string_view HelpText() {
  return R"(Looks at checkpoint files, .pt and safetensors, without running anything that stands in them.

  ckpt ls DIR             checkpoint files in DIR (*.pt, *.pth, *.safetensors): format, size, tensors, step and epoch
  ckpt show FILE          names, dtypes, shapes and bytes of the tensors, metadata, and all other values
    --json                the same as JSON
  ckpt verify FILE...     compares the checksums: ok, no checksums, or what is wrong
  ckpt diff A B           every tensor: bit-equal, or the greatest absolute difference; and what else differs. Formats may
                          differ; order and the splitting of names into dicts do not count.
  ckpt convert SRC DST    writes SRC in the format that DST ends with: .pt, .pth or .safetensors. DST is replaced in one
                          step once it is on the disk; on failure it is what it was. SRC is verified first.
    --to=torch, --to=safetensors    the format, whatever DST ends with
    --drop-metadata                 leaves out a safetensors file's metadata, for which .pt has no place

  --help                  this text

"--" ends the flags. Names that hold blanks, quotes or anything that does not print are shown in quotes and escaped.
On a terminal, work that takes longer than a second shows how far it is.

Exit code  0        1                                                      2
  ls       done     a file is damaged or refused                           trouble: it is missing or cannot be read or
  show     done     the file is damaged or refused                         written, the command line is wrong, ...
  verify   good     a file is damaged or refused ("no checksums" is good)
  diff     same     they differ                                            (also if a file is damaged)
  convert  written  SRC is damaged, or DST's format cannot hold it
)";
}

}  // namespace cohort::ckpt
