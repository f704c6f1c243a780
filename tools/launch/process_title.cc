#include "cohort/tools/launch/process_title.h"

#include <sys/prctl.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace cohort::launch {

// The kernel shows the place where it put the arguments: one after the other, each with its zero.
void SetProcessTitle(char** argv, std::string_view name, std::string_view rest) {
  prctl(PR_SET_NAME, std::string(name).c_str());
  if (argv[0] == nullptr) return;
  char* end = argv[0];
  for (char** argument = argv; *argument == end; ++argument) end += strlen(*argument) + 1;
  const std::string title = absl::StrCat(name, rest);
  const auto space = static_cast<size_t>(end - argv[0]);
  std::fill(argv[0], end, '\0');
  title.copy(argv[0], space - 1);
}

}  // namespace cohort::launch
