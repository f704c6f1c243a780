#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cohort/checkpoint/state_file.h"
#include "cohort/tools/ckpt/commands.h"
#include "cohort/tools/ckpt/report.h"

namespace cohort::ckpt {

int Verify(const std::vector<std::string>& paths) {
  int worst = kGood;
  for (const std::string& path : paths) {
    const absl::StatusOr<StateFile> file = StateFile::Open(path);
    absl::Status status = file.status();
    if (file.ok()) {
      ProgressBar progress(absl::StrCat("verify ", Printable(path)));
      status = file->Verify([&](int64_t done, int64_t total) { progress.Update(done, total); });
    }
    if (status.ok()) {
      absl::PrintF("%s: %s\n", Printable(path), file->has_checksums() ? "ok" : "no checksums");
    } else {
      worst = std::max(worst, Report(status));
    }
  }
  return worst;
}

}  // namespace cohort::ckpt
