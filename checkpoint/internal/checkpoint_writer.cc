// Writing a checkpoint.
//
//  1  Make a directory beside where it will be, under a name that nobody takes for a checkpoint's.
//  2  Write the files, computing their checksums on the way; then the manifest, which lists them with those checksums.
//  3  fsync all of them, and then their directory: once the checkpoint has its name, everything in it must be there, after a
//     loss of power as well. All after all are written, so that the disk works on one while the next is written.
//  4  Rename the directory to the checkpoint's name. That is the commit: nobody ever sees a checkpoint that is not whole, and
//     from here on nothing in it is changed. The name is one that does not exist; nothing is replaced.
//  5  fsync the run directory, and those above it, of which any may be new.
//
// and then
//
//  6  Make a symlink under another name and rename it over "latest": so it leads somewhere at every instant. Only after step
//     5: otherwise a loss of power could keep the link and lose what it leads to.
//  7  fsync the run directory again, before anybody removes what "latest" led to until now.
//
// There is a moment between looking for a free name and the rename. Only the job that has the directory's lock renames, and
// rename refuses a directory that is not empty, so what could be lost is an empty directory.

#include "cohort/checkpoint/internal/checkpoint_writer.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cohort/checkpoint/checkpoint_info.h"
#include "cohort/checkpoint/file_system.h"
#include "cohort/checkpoint/internal/checkpoint_name.h"
#include "cohort/checkpoint/internal/checksummed_file.h"
#include "cohort/checkpoint/internal/directories.h"
#include "cohort/checkpoint/internal/manifest.h"
#include "cohort/checkpoint/internal/quoted.h"
#include "cohort/checkpoint/internal/temporary_name.h"
#include "cohort/checkpoint/internal/time_limit.h"
#include "cohort/checkpoint/writable_file.h"

namespace cohort::internal {
namespace {

std::string Below(std::string_view directory, std::string_view name) {
  return absl::StrCat(directory == "/" ? "" : directory, "/", name);
}

}  // namespace

// What a payload writes into. After an error every later call returns it again.
class CheckpointWriter::File final : public WritableFile {
 public:
  explicit File(OutputFile& file) : file_(file) {}

  absl::Status Append(std::string_view bytes) override {
    ABSL_RETURN_IF_ERROR(status_);
    status_ = file_.Append(bytes);
    if (!status_.ok()) {
      status_ =
          absl::Status(status_.code(), absl::StrCat(status_.message(), "; ", num_bytes_, " bytes had been written and ",
                                                    bytes.size(), " more were to follow at once"));
      return status_;
    }
    num_bytes_ += static_cast<int64_t>(bytes.size());
    return absl::OkStatus();
  }

  absl::Status Overwrite(int64_t offset, std::string_view bytes) override {
    ABSL_RETURN_IF_ERROR(status_);
    status_ = file_.Overwrite(offset, bytes);
    return status_;
  }

  int64_t num_bytes() const override { return num_bytes_; }
  const absl::Status& status() const { return status_; }

 private:
  OutputFile& file_;
  int64_t num_bytes_ = 0;
  absl::Status status_;
};

CheckpointWriter::CheckpointWriter(FileSystem& file_system, std::string_view directory, const TimeLimit& limit,
                                   CheckpointInfo info)
    : file_system_(file_system), directory_(directory), limit_(limit), info_(std::move(info)) {}

absl::StatusOr<std::unique_ptr<CheckpointWriter>> CheckpointWriter::Create(FileSystem& file_system,
                                                                           std::string_view directory,
                                                                           const TimeLimit& limit,
                                                                           CheckpointInfo info) {
  auto writer = absl::WrapUnique(new CheckpointWriter(file_system, directory, limit, std::move(info)));
  const std::string path = Below(directory, TemporaryName("step"));
  ABSL_RETURN_IF_ERROR(file_system.MakeDirectory(path));  // step 1
  writer->temporary_ = path;
  if (writer->info_.pinned) {
    ABSL_RETURN_IF_ERROR(writer->CreateFile(kPinnedName).status());
  }
  return writer;
}

CheckpointWriter::~CheckpointWriter() {
  if (is_published_) return;
  // Should any of this fail, the next job in this directory tries again.
  files_.clear();
  for (const std::string& name : names_) (void)file_system_.Remove(Below(temporary_, name));
  if (!temporary_.empty()) (void)file_system_.RemoveDirectory(temporary_);
}

absl::StatusOr<std::unique_ptr<OutputFile>> CheckpointWriter::CreateFile(std::string_view name) {
  ABSL_ASSIGN_OR_RETURN(std::unique_ptr<OutputFile> file,
                        file_system_.Create(Below(temporary_, name), /*permissions=*/std::nullopt));
  names_.emplace_back(name);
  return file;
}

absl::Status CheckpointWriter::AddFile(std::string_view name,
                                       absl::FunctionRef<absl::Status(WritableFile& file)> write) {
  ABSL_ASSIGN_OR_RETURN(std::unique_ptr<OutputFile> output, CreateFile(name));  // step 2
  File file(*output);
  ChecksummedFile checksummed(file);
  TimedFile timed(checksummed, limit_);
  ABSL_RETURN_IF_ERROR(write(timed));
  ABSL_RETURN_IF_ERROR(file.status());  // a payload that does not look at an error has failed all the same
  ABSL_ASSIGN_OR_RETURN(const uint32_t crc32, checksummed.Crc32());
  info_.files.push_back({.name = std::string(name), .num_bytes = file.num_bytes(), .crc32 = crc32});
  files_.push_back(std::move(output));
  return absl::OkStatus();
}

absl::Status CheckpointWriter::Sync() {
  // To microseconds, as the manifest has it.
  info_.saved = absl::FromUnixMicros(absl::ToUnixMicros(absl::Now()));
  const std::string text = EncodeManifest(info_);
  if (static_cast<int64_t>(text.size()) > kMaxManifestBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the manifest has ", text.size(), " bytes, of ", info_.files.size(),
                                                   " files and ", info_.metrics.size(), " metrics; at most ",
                                                   kMaxManifestBytes, " are allowed"));
  }
  // What could not be read back must not become the newest checkpoint.
  ABSL_RETURN_IF_ERROR(DecodeManifest(text).status());
  ABSL_ASSIGN_OR_RETURN(std::unique_ptr<OutputFile> manifest, CreateFile(kManifestName));
  ABSL_RETURN_IF_ERROR(manifest->Append(text));
  files_.push_back(std::move(manifest));
  for (const std::unique_ptr<OutputFile>& file : files_) ABSL_RETURN_IF_ERROR(file->Sync());  // step 3
  files_.clear();
  return file_system_.SyncDirectory(temporary_);
}

absl::StatusOr<std::string> CheckpointWriter::FreeName() const {
  for (int attempt = 1;; ++attempt) {
    std::string name = CheckpointName(info_.step, attempt);
    const absl::Status found = file_system_.Inspect(Below(directory_, name)).status();
    if (absl::IsNotFound(found)) return name;
    ABSL_RETURN_IF_ERROR(found);
  }
}

absl::Status CheckpointWriter::Publish() {
  ABSL_RETURN_IF_ERROR(limit_.Check());
  ABSL_ASSIGN_OR_RETURN(const std::string name, FreeName());
  const std::string path = Below(directory_, name);
  ABSL_RETURN_IF_ERROR(file_system_.Rename(temporary_, path));  // step 4
  is_published_ = true;
  info_.path = path;
  return SyncUpwards(file_system_, directory_);  // step 5
}

absl::Status PointLatestAt(FileSystem& file_system, std::string_view directory, std::string_view name) {
  const std::string temporary = Below(directory, TemporaryName(kLatestName));
  ABSL_RETURN_IF_ERROR(file_system.MakeSymlink(name, temporary));  // step 6
  if (absl::Status renamed = file_system.Rename(temporary, Below(directory, kLatestName)); !renamed.ok()) {
    (void)file_system.Remove(temporary);
    return renamed;
  }
  return file_system.SyncDirectory(directory);  // step 7
}

absl::Status CheckLatest(FileSystem& file_system, std::string_view directory) {
  const std::string path = Below(directory, kLatestName);
  const absl::StatusOr<FileInfo> found = file_system.Inspect(path);
  if (absl::IsNotFound(found.status())) return absl::OkStatus();
  ABSL_RETURN_IF_ERROR(found.status());
  if (found->type == FileType::kSymlink) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(Quoted(path), " is ",
                                                    found->type == FileType::kDirectory ? "a directory" : "a file",
                                                    "; it must be a symlink, or not there: move it away"));
}

}  // namespace cohort::internal
