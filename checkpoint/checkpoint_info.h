// File: checkpoint_info.h
//
// CheckpointInfo: what is known of a checkpoint without reading its files.

#ifndef COHORT_CHECKPOINT_CHECKPOINT_INFO_H_
#define COHORT_CHECKPOINT_CHECKPOINT_INFO_H_

#if __cplusplus < 202002L
#error "cohort needs C++20: build with --cxxopt=-std=c++20"
#endif

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace cohort {

struct CheckpointFile {
  std::string name;  // in the checkpoint's directory
  int64_t num_bytes = 0;
  uint32_t crc32 = 0;  // of the whole file, as Python's zlib.crc32 computes it
};

struct CheckpointInfo {
  std::string path;  // absolute, of its directory
  int64_t step = 0;
  // Counts the saves of a run: of two checkpoints the one with the higher number was saved later, whatever their steps.
  int64_t sequence = 0;
  absl::Time saved;
  std::string run_id;
  std::string model;   // CheckpointManagerOptions::model
  int world_size = 0;  // of the job that saved it
  std::map<std::string, double> metrics;
  std::vector<CheckpointFile> files;
  bool pinned = false;  // there is a file "pinned" in its directory
};

}  // namespace cohort

#endif  // COHORT_CHECKPOINT_CHECKPOINT_INFO_H_
