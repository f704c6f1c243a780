// ckpt: looks into state files. See its --help.

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_format.h"
#include "cohort/tools/ckpt/commands.h"
#include "cohort/tools/ckpt/report.h"

ABSL_FLAG(bool, json, false, "show: as JSON");
ABSL_FLAG(std::string, to, "", "convert: torch or safetensors, whatever the name of DST says");

namespace cohort::ckpt {
namespace {

constexpr std::string_view kUsage = R"(ckpt looks into state files: .pt and .pth as torch.save and cohort write them, and .safetensors.

usage: ckpt ls DIR                   the state files in DIR: size, format, tensors, and the step and epoch of training states
       ckpt show [--json] FILE       the tensors' names, dtypes, shapes and bytes, metadata, and all other values
       ckpt verify FILE...           compares every checksum
       ckpt diff A B                 what is different, value by value; the formats may differ
       ckpt convert SRC DST          writes the same state in the format that DST's name asks for, or --to=torch|safetensors;
                                     DST is replaced at one instant, and only if all went well

Exit codes:
  ls, show, convert   0 done; 1 a file is damaged, refused, or holds what the other format does not; 2 trouble
  verify              0 every file is whole, or has no checksums; 1 one is damaged or refused; 2 trouble
  diff                0 the same, bit for bit; 1 different; 2 trouble
Trouble is a wrong command line, a file that cannot be reached, a full disk.

Nothing that stands in a file is run. Control characters in names are shown escaped.
)";

int WrongUsage(std::string_view why) {
  absl::FPrintF(stderr, "ckpt: %s\n\n%s", why, kUsage);
  return kTrouble;
}

// `path` as the person who typed it means it: under `bazel run` the working directory is not where they stand.
std::string FromWhereThePersonStands(std::string_view path) {
  const char* stands = std::getenv("BUILD_WORKING_DIRECTORY");
  return (std::filesystem::path(stands != nullptr ? stands : "") / path).string();
}

int Run(std::vector<std::string> words) {
  if (words.empty()) return WrongUsage("there is no command");
  const std::string command = words.front();
  words.erase(words.begin());
  for (std::string& word : words) {
    if (word.empty()) return WrongUsage("a path is empty");
    word = FromWhereThePersonStands(word);
  }
  const std::string to = absl::GetFlag(FLAGS_to);
  if (absl::GetFlag(FLAGS_json) && command != "show") return WrongUsage("--json is for show");
  if (!to.empty() && command != "convert") return WrongUsage("--to is for convert");
  if (command == "ls" && words.size() == 1) return List(words[0]);
  if (command == "show" && words.size() == 1) return Show(words[0], absl::GetFlag(FLAGS_json));
  if (command == "verify" && !words.empty()) return Verify(words);
  if (command == "diff" && words.size() == 2) return Diff(words[0], words[1]);
  if (command == "convert" && words.size() == 2) return Convert(words[0], words[1], to);
  for (const std::string_view known : {"ls", "show", "verify", "diff", "convert"}) {
    if (command == known) return WrongUsage(absl::StrFormat("%s does not take %d files", known, words.size()));
  }
  return WrongUsage(absl::StrFormat("there is no command %s", Printable(command)));
}

}  // namespace
}  // namespace cohort::ckpt

int main(int argc, char** argv) {
  namespace ckpt = cohort::ckpt;
  // A limit on the size of files is then an error that names the file, and not the end of the process.
  std::signal(SIGXFSZ, SIG_IGN);
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--") break;
    if (word == "--help" || word == "-h" || (i == 1 && word == "help")) {
      std::fputs(std::string(ckpt::kUsage).c_str(), stdout);
      return ckpt::kGood;
    }
  }
  std::vector<char*> words;
  std::vector<absl::UnrecognizedFlag> unknown;
  absl::ParseAbseilFlagsOnly(argc, argv, words, unknown);
  if (!unknown.empty()) return ckpt::WrongUsage(absl::StrFormat("there is no option --%s", ckpt::Printable(unknown[0].flag_name)));
  const int code = ckpt::Run({words.begin() + 1, words.end()});
  // What was printed may not have arrived: a full disk, for example.
  if (std::fflush(stdout) != 0 || std::ferror(stdout)) {
    std::fputs("ckpt: the output could not be written\n", stderr);
    return ckpt::kTrouble;
  }
  return code;
}
