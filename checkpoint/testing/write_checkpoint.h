// File: write_checkpoint.h
//
// For tests of what reads the directory of a run: its files, as CheckpointManager leaves them.

#ifndef COHORT_CHECKPOINT_TESTING_WRITE_CHECKPOINT_H_
#define COHORT_CHECKPOINT_TESTING_WRITE_CHECKPOINT_H_

#include <map>
#include <string>
#include <string_view>

#include "cohort/checkpoint/checkpoint_info.h"

namespace cohort::testing {

// Writes a checkpoint into the directory `run`, which exists, under the name of its step; if that is taken, under the
// next one. `files` are names and contents. Returns `info` with its path and files. Aborts the test program if it
// cannot.
CheckpointInfo WriteCheckpoint(const std::string& run, CheckpointInfo info,
                               const std::map<std::string, std::string>& files);

// Writes run.json.
void WriteRunFile(const std::string& run, std::string_view run_id);

}  // namespace cohort::testing

#endif  // COHORT_CHECKPOINT_TESTING_WRITE_CHECKPOINT_H_
