#include "cohort/checkpoint/testing/write_checkpoint.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "absl/log/absl_check.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cohort/checkpoint/checkpoint_info.h"
#include "cohort/checkpoint/internal/checkpoint_name.h"
#include "cohort/checkpoint/internal/crc32.h"
#include "cohort/checkpoint/internal/manifest.h"
#include "cohort/checkpoint/internal/run_file.h"
#include "cohort/checkpoint/testing/files.h"

namespace cohort::testing {

CheckpointInfo WriteCheckpoint(const std::string& run, CheckpointInfo info,
                               const std::map<std::string, std::string>& files) {
  int attempt = 0;
  do {
    info.path = absl::StrCat(run, "/", internal::CheckpointName(info.step, ++attempt));
  } while (mkdir(info.path.c_str(), 0777) != 0 && errno == EEXIST);
  for (const auto& [name, contents] : files) {
    WriteFile(absl::StrCat(info.path, "/", name), contents);
    info.files.push_back(
        {.name = name, .num_bytes = static_cast<int64_t>(contents.size()), .crc32 = internal::Crc32(contents)});
  }
  const std::string manifest = internal::EncodeManifest(info);
  ABSL_CHECK_OK(internal::DecodeManifest(manifest));
  WriteFile(absl::StrCat(info.path, "/", internal::kManifestName), manifest);
  if (info.pinned) WriteFile(absl::StrCat(info.path, "/", internal::kPinnedName), "");
  return info;
}

void WriteRunFile(const std::string& run, std::string_view run_id) {
  WriteFile(absl::StrCat(run, "/", internal::kRunFileName),
            internal::EncodeRunFile({.run_id = std::string(run_id), .created = absl::UnixEpoch()}));
}

}  // namespace cohort::testing
