// The names are listed, and then each is looked at, by a few threads: a run may have 10,000 checkpoints, and each takes
// half a dozen system calls.
//
// A job may save, and remove what it does not keep, between the two. What is gone when it is looked at was not damaged,
// so the names are listed again, until none is gone. Nothing that was found to be there needs to be looked at twice,
// because a checkpoint never changes once it has its name; so this ends as soon as one listing, and a look at what is
// new in it, come before the next removal.

#include "cohort/checkpoint/run_directory.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "cohort/checkpoint/checkpoint_info.h"
#include "cohort/checkpoint/file_system.h"
#include "cohort/checkpoint/internal/checkpoint_name.h"
#include "cohort/checkpoint/internal/checkpoint_order.h"
#include "cohort/checkpoint/internal/crc32.h"
#include "cohort/checkpoint/internal/manifest.h"
#include "cohort/checkpoint/internal/quoted.h"
#include "cohort/checkpoint/internal/random_access_file.h"
#include "cohort/checkpoint/internal/run_file.h"
#include "cohort/checkpoint/target_path.h"

namespace cohort {
namespace {

using internal::Quoted;

// More do not help: what they wait for is the kernel's lists of names, or one disk.
constexpr size_t kMaxThreads = 4;

// Calls `work` with each of 0 to n - 1, in that order, and which thread it is, on several threads if there are at least
// `per_thread` for each. `work` does not throw.
void ForEach(size_t n, size_t per_thread, absl::FunctionRef<void(size_t i, size_t thread)> work) {
  std::atomic<size_t> next = 0;
  const auto run = [&](size_t thread) {
    for (size_t i = next++; i < n; i = next++) work(i, thread);
  };
  const size_t cores = std::max(1u, std::thread::hardware_concurrency());
  const size_t num_threads = std::min({kMaxThreads, cores, n / per_thread});
  std::vector<std::thread> others;
  // Signals are for the program's own threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    for (size_t thread = 1; thread < num_threads; ++thread) others.emplace_back(run, thread);
  } catch (const std::system_error&) {
    // The machine has no more threads: those that there are do it.
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  run(0);
  for (std::thread& other : others) other.join();
}

std::string Below(std::string_view directory, std::string_view name) {
  return absl::StrCat(directory == "/" ? "" : directory, "/", name);
}

absl::StatusOr<std::string> SettlePath(std::string_view path) {
  ABSL_ASSIGN_OR_RETURN(std::string absolute, AbsolutePath(path));
  while (absolute.size() > 1 && absolute.back() == '/') absolute.pop_back();
  return absolute;
}

std::string_view Described(FileType type) {
  switch (type) {
    case FileType::kRegular:
      return "a file";
    case FileType::kDirectory:
      return "a directory";
    case FileType::kSymlink:
      return "a symlink";
    case FileType::kOther:
      break;
  }
  return "neither a file nor a directory";
}

// ---- One checkpoint ----

absl::Status Incomplete(std::string_view why) { return absl::DataLossError(why); }

absl::Status CheckFile(FileSystem& file_system, std::string_view directory, const CheckpointFile& file) {
  const auto incomplete = [&](const auto&... why) {
    return Incomplete(absl::StrCat(internal::Printable(file.name), " ", why...));
  };
  const absl::StatusOr<FileInfo> found = file_system.Inspect(Below(directory, file.name));
  if (absl::IsNotFound(found.status())) return incomplete("is missing; ", file.num_bytes, " bytes were saved");
  ABSL_RETURN_IF_ERROR(found.status());
  if (found->type != FileType::kRegular) return incomplete("is ", Described(found->type), ", not a regular file");
  if (found->num_bytes == file.num_bytes) return absl::OkStatus();
  return incomplete("has ", found->num_bytes, " bytes; ", file.num_bytes, " were saved");
}

// The checkpoint in a directory of any name. Errors: DataLoss if it is not complete, and the operating system's.
absl::StatusOr<CheckpointInfo> Examine(FileSystem& file_system, const std::string& directory) {
  const absl::StatusOr<std::string> text =
      file_system.ReadSmallFile(Below(directory, internal::kManifestName), internal::kMaxManifestBytes);
  if (absl::IsNotFound(text.status())) {
    return Incomplete("it has no manifest.json: its save did not end, or it is not a checkpoint");
  }
  ABSL_RETURN_IF_ERROR(text.status());
  absl::StatusOr<CheckpointInfo> info = internal::DecodeManifest(*text);
  if (!info.ok()) return Incomplete(absl::StrCat("manifest.json: ", info.status().message()));
  for (const CheckpointFile& file : info->files) ABSL_RETURN_IF_ERROR(CheckFile(file_system, directory, file));
  // If in doubt it is pinned.
  info->pinned = !absl::IsNotFound(file_system.Inspect(Below(directory, internal::kPinnedName)).status());
  info->path = directory;
  return info;
}

// ---- All of a run ----

// Something named like a checkpoint that was looked at.
struct Candidate {
  std::optional<int64_t> step;           // that the name says
  absl::StatusOr<CheckpointInfo> found;  // or why it is none
  bool is_gone = false;                  // it was listed, and is not there any more
};

absl::StatusOr<CheckpointInfo> ExamineNamed(FileSystem& file_system, const std::string& directory,
                                            std::optional<int64_t> step) {
  if (!step.has_value()) return Incomplete("it is not named \"step_\" and a number from 0 to 9223372036854775807");
  ABSL_ASSIGN_OR_RETURN(const FileInfo found, file_system.Inspect(directory));
  if (found.type != FileType::kDirectory) {
    return Incomplete(absl::StrCat("it is ", Described(found.type), ", not a directory"));
  }
  absl::StatusOr<CheckpointInfo> info = Examine(file_system, directory);
  if (!info.ok() || info->step == *step) return info;
  return Incomplete(absl::StrCat("its name says step ", *step, ", and its manifest ", info->step));
}

Candidate ExamineCandidate(FileSystem& file_system, std::string_view run, std::string_view name) {
  const std::string directory = Below(run, name);
  const std::optional<int64_t> step = internal::ParseCheckpointName(name);
  Candidate candidate{.step = step, .found = ExamineNamed(file_system, directory, step)};
  // What is not there may have gone meanwhile, together with its directory.
  candidate.is_gone = !candidate.found.ok() && absl::IsNotFound(file_system.Inspect(directory).status());
  return candidate;
}

// Whether an error is about one checkpoint, and not about the machine (no descriptors, no memory).
bool IsOfCheckpoint(const absl::Status& error) {
  return absl::IsDataLoss(error) || absl::IsNotFound(error) || absl::IsInvalidArgument(error) ||
         absl::IsPermissionDenied(error) || absl::IsUnavailable(error) || absl::IsOutOfRange(error);
}

using Candidates = std::map<std::string, Candidate>;  // by name

// Brings `candidates` up to date with the directory. Returns whether nothing had gone before it was looked at.
absl::StatusOr<bool> Update(FileSystem& file_system, std::string_view run, Candidates& candidates) {
  ABSL_ASSIGN_OR_RETURN(std::vector<std::string> names, file_system.List(run));
  std::erase_if(names, [](std::string_view name) { return !absl::StartsWith(name, internal::kCheckpointPrefix); });
  std::sort(names.begin(), names.end());
  std::erase_if(candidates,
                [&](const auto& known) { return !std::binary_search(names.begin(), names.end(), known.first); });
  std::erase_if(names, [&](const std::string& name) { return candidates.contains(name); });

  std::vector<Candidate> looked_at(names.size());
  ForEach(names.size(), /*per_thread=*/64,
          [&](size_t i, size_t) { looked_at[i] = ExamineCandidate(file_system, run, names[i]); });
  bool all_there = true;
  for (size_t i = 0; i < names.size(); ++i) {
    const absl::Status& error = looked_at[i].found.status();
    if (looked_at[i].is_gone) {
      all_there = false;
    } else if (!error.ok() && !IsOfCheckpoint(error)) {
      return error;
    } else {
      candidates.emplace(std::move(names[i]), std::move(looked_at[i]));
    }
  }
  return all_there;
}

absl::StatusOr<Candidates> FindCandidates(FileSystem& file_system, std::string_view run) {
  constexpr int kMaxTries = 1000;
  Candidates candidates;
  for (int i = 0; i < kMaxTries; ++i) {
    ABSL_ASSIGN_OR_RETURN(const bool all_there, Update(file_system, run, candidates));
    if (all_there) return candidates;
  }
  return absl::AbortedError(absl::StrCat(Quoted(run), " changes too fast to be read"));
}

// Empty if there is no run.json.
absl::StatusOr<std::string> ReadRunId(FileSystem& file_system, std::string_view run) {
  const std::string path = Below(run, internal::kRunFileName);
  const absl::StatusOr<std::string> text = file_system.ReadSmallFile(path, internal::kMaxRunFileBytes);
  if (absl::IsNotFound(text.status())) return "";
  if (absl::IsOutOfRange(text.status())) return absl::InvalidArgumentError(text.status().message());
  ABSL_RETURN_IF_ERROR(text.status());
  absl::StatusOr<internal::RunFile> decoded = internal::DecodeRunFile(*text);
  if (decoded.ok()) return std::move(decoded->run_id);
  return absl::Status(decoded.status().code(), absl::StrCat(Quoted(path), ": ", decoded.status().message()));
}

// That of all complete checkpoints.
absl::StatusOr<std::string> CommonRunId(std::string_view run, const Candidates& candidates) {
  std::set<std::string> ids;
  for (const auto& [name, candidate] : candidates) {
    if (candidate.found.ok()) ids.insert(candidate.found->run_id);
  }
  if (ids.empty()) return "";
  if (ids.size() == 1) return *ids.begin();
  constexpr size_t kShown = 5;
  std::vector<std::string> shown;
  for (const std::string& id : ids) {
    if (shown.size() < kShown) shown.push_back(Quoted(id));
  }
  return absl::InvalidArgumentError(absl::StrCat(Quoted(run), " has no run.json, and checkpoints of ", ids.size(),
                                                 " runs: ", absl::StrJoin(shown, ", "),
                                                 ids.size() > kShown ? ", ..." : ""));
}

// ---- VerifyCheckpoint ----

// A part of a file, whose checksum one thread computes.
struct Piece {
  size_t file = 0;
  int64_t offset = 0;
  int64_t num_bytes = 0;
  uint32_t crc32 = 0;
};

class Verifier {
 public:
  Verifier(const CheckpointInfo& checkpoint, const std::function<void(int64_t, int64_t)>& progress)
      : checkpoint_(checkpoint), progress_(progress) {
    for (size_t i = 0; i < checkpoint.files.size(); ++i) {
      const int64_t num_bytes = checkpoint.files[i].num_bytes;
      total_ += num_bytes;
      int64_t offset = 0;
      do {  // once for an empty file
        pieces_.push_back({.file = i, .offset = offset, .num_bytes = std::min(kPieceBytes, num_bytes - offset)});
        offset += pieces_.back().num_bytes;
      } while (offset < num_bytes);
    }
  }

  absl::Status Run() {
    ForEach(pieces_.size(), /*per_thread=*/1, [&](size_t i, size_t thread) {
      if (IsFutile(i)) return;
      if (buffers_[thread] == nullptr) buffers_[thread] = std::make_unique<char[]>(kReadBytes);
      if (const absl::Status read = Read(pieces_[i], buffers_[thread].get()); !read.ok()) SetError(i, read);
    });
    {
      const absl::MutexLock lock(mutex_);
      ABSL_RETURN_IF_ERROR(error_);
    }
    return Compare();
  }

 private:
  static constexpr int64_t kPieceBytes = 16 << 20;
  static constexpr int64_t kReadBytes = 1 << 20;

  static absl::Status Damaged(const std::string& path, std::string_view why) {
    return absl::DataLossError(absl::StrCat(Quoted(path), " ", why, ": it is damaged"));
  }

  std::string PathOf(size_t file) const { return Below(checkpoint_.path, checkpoint_.files[file].name); }

  absl::Status Read(Piece& piece, char* buffer) {
    const int64_t saved = checkpoint_.files[piece.file].num_bytes;
    // Opened for each piece, so that a checkpoint of very many files needs few descriptors.
    const std::string path = PathOf(piece.file);
    ABSL_ASSIGN_OR_RETURN(const std::unique_ptr<internal::RandomAccessFile> file, internal::OpenRandomAccessFile(path));
    if (file->num_bytes() != saved) {
      return Damaged(path, absl::StrCat("has ", file->num_bytes(), " bytes; ", saved, " were saved"));
    }
    for (int64_t done = 0; done < piece.num_bytes;) {
      const int64_t size = std::min(kReadBytes, piece.num_bytes - done);
      ABSL_RETURN_IF_ERROR(file->Read(piece.offset + done, size, buffer));
      piece.crc32 = internal::Crc32({buffer, static_cast<size_t>(size)}, piece.crc32);
      done += size;
      Report(size);
    }
    return absl::OkStatus();
  }

  void Report(int64_t num_bytes) {
    if (!progress_) return;
    const absl::MutexLock lock(mutex_);
    done_ += num_bytes;
    progress_(done_, total_);
  }

  // Whether a piece before this one has an error: of several errors the first one counts, whoever is faster.
  bool IsFutile(size_t piece) {
    const absl::MutexLock lock(mutex_);
    return piece > bad_piece_;
  }

  void SetError(size_t piece, const absl::Status& error) {
    const absl::MutexLock lock(mutex_);
    if (piece > bad_piece_) return;
    bad_piece_ = piece;
    error_ = error;
  }

  absl::Status Compare() const {
    std::vector<uint32_t> found(checkpoint_.files.size());
    for (const Piece& piece : pieces_) {
      found[piece.file] = internal::CombineCrc32(found[piece.file], piece.crc32, piece.num_bytes);
    }
    for (size_t i = 0; i < found.size(); ++i) {
      const uint32_t saved = checkpoint_.files[i].crc32;
      if (found[i] == saved) continue;
      return Damaged(PathOf(i), absl::StrFormat("has the checksum %08x, and %08x was saved", found[i], saved));
    }
    return absl::OkStatus();
  }

  const CheckpointInfo& checkpoint_;
  const std::function<void(int64_t, int64_t)>& progress_;
  std::vector<Piece> pieces_;
  int64_t total_ = 0;
  std::array<std::unique_ptr<char[]>, kMaxThreads> buffers_;

  absl::Mutex mutex_;
  int64_t done_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t bad_piece_ ABSL_GUARDED_BY(mutex_) = std::numeric_limits<size_t>::max();
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<RunDirectory> ReadRunDirectory(std::string_view path) {
  ABSL_ASSIGN_OR_RETURN(const std::string absolute, SettlePath(path));
  return ReadRunDirectory(*FileSystem::Posix(), absolute);
}

absl::StatusOr<RunDirectory> ReadRunDirectory(FileSystem& file_system, std::string_view path) {
  RunDirectory run{.path = std::string(path)};
  ABSL_ASSIGN_OR_RETURN(Candidates candidates, FindCandidates(file_system, path));
  ABSL_ASSIGN_OR_RETURN(run.run_id, ReadRunId(file_system, path));
  if (run.run_id.empty()) {
    ABSL_ASSIGN_OR_RETURN(run.run_id, CommonRunId(path, candidates));
  }
  for (auto& [name, candidate] : candidates) {
    absl::StatusOr<CheckpointInfo>& found = candidate.found;
    if (!found.ok()) {
      run.skipped.push_back({name, candidate.step, std::string(found.status().message())});
    } else if (found->run_id != run.run_id) {
      run.skipped.push_back({name, candidate.step,
                             absl::StrCat("it is of the run ", Quoted(found->run_id), ", and the directory of the run ",
                                          Quoted(run.run_id))});
    } else {
      run.checkpoints.push_back(*std::move(found));
    }
  }
  std::sort(run.checkpoints.begin(), run.checkpoints.end(), internal::IsNewer);
  return run;
}

absl::StatusOr<CheckpointInfo> ReadCheckpoint(std::string_view path) {
  ABSL_ASSIGN_OR_RETURN(const std::string absolute, SettlePath(path));
  FileSystem& file_system = *FileSystem::Posix();
  ABSL_RETURN_IF_ERROR(file_system.Inspect(absolute + "/.").status());  // there is such a directory
  absl::StatusOr<CheckpointInfo> info = Examine(file_system, absolute);
  if (!absl::IsDataLoss(info.status())) return info;
  return Incomplete(absl::StrCat(Quoted(absolute), ": ", info.status().message()));
}

absl::Status VerifyCheckpoint(const CheckpointInfo& checkpoint,
                              const std::function<void(int64_t done, int64_t total)>& progress) {
  return Verifier(checkpoint, progress).Run();
}

}  // namespace cohort
