// File: target_path.h
//
// ResolveTarget: which file a save to a path will make or replace, decided before anything is touched.

#ifndef COHORT_CHECKPOINT_TARGET_PATH_H_
#define COHORT_CHECKPOINT_TARGET_PATH_H_

#if __cplusplus < 202002L
#error "cohort needs C++20: build with --cxxopt=-std=c++20"
#endif

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "cohort/checkpoint/file_system.h"

namespace cohort {

// Local. `path` itself if it is absolute; otherwise below `base_directory` or, if that is empty, below
// BUILD_WORKING_DIRECTORY if set (where the person who typed `bazel run` stands), else below the working directory. A
// relative `base_directory` is taken from the working directory.
//
// Errors: InvalidArgument if `path` is empty or holds a zero byte; the operating system's if there is no working
// directory.
absl::StatusOr<std::string> AbsolutePath(std::string_view path, const std::string& base_directory = "");

// Local. Returns the absolute path, free of ".", ".." and symlinks as far as it exists, of the file that a save to
// `path` (absolute) makes or replaces. Touches nothing.
//
// What does not exist yet is taken for directories that will be made. A symlink is followed, also where it dangles: the
// file that it names is made or replaced, and the symlink stays. "x/.." is the directory above what x really is; if
// there is no x, it is where x would be, and no x is made.
//
// Errors:
//   InvalidArgument  `path` names a directory ("/", ".", "dir/", one that exists), something that is neither file nor
//                    directory (a device, a FIFO), or a place under a file; a name or the whole is too long; symlinks
//                    that end nowhere
//   and those of FileSystem
absl::StatusOr<std::string> ResolveTarget(FileSystem& file_system, std::string_view path);

}  // namespace cohort

#endif  // COHORT_CHECKPOINT_TARGET_PATH_H_
