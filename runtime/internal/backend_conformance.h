// File: backend_conformance.h
//
// What every Backend must do, as checks that a harness runs on ranks of its own: threads, processes, machines.
//
// A harness, for each check: makes a fresh group of `world_size` ranks with `timeout`; calls `run` once on every rank;
// expects OK from all but the casualties; and only then removes what is left of those. RunWithProcesses
// (conformance_processes.h) is one that needs nothing but a function that makes a group.

#ifndef COHORT_RUNTIME_INTERNAL_BACKEND_CONFORMANCE_H_
#define COHORT_RUNTIME_INTERNAL_BACKEND_CONFORMANCE_H_

#include <functional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "cohort/runtime/process_group.h"

namespace cohort::internal {

// What the ranks of a check know of each other without the group that is being checked: marks, as files in a directory
// that they share.
class Evidence {
 public:
  // `directory` is empty before the check begins.
  Evidence(std::string directory, int rank) : directory_(std::move(directory)), rank_(rank) {}

  // This rank leaves the mark `event`, a word.
  void Note(std::string_view event) const;

  // How many ranks have left it.
  int Count(std::string_view event) const;

  // Waits until `count` ranks have left it. An error after a minute.
  absl::Status Await(std::string_view event, int count) const;

 private:
  std::string directory_;
  int rank_;
};

// A rank that takes part in a check.
struct ConformanceRank {
  ProcessGroup& group;
  Evidence evidence;
  // Do not return: the rank's process dies, or stops and stays.
  std::function<void()> die;
  std::function<void()> freeze;
};

struct ConformanceCheck {
  std::string name;  // reads as a sentence
  int world_size;
  absl::Duration timeout;       // of the group
  std::vector<int> casualties;  // ranks on which `run` does not return
  // Returns OK if the group did what it must, as this rank sees it, or what it did instead.
  std::function<absl::Status(ConformanceRank& self)> run;
};

std::vector<ConformanceCheck> ConformanceChecks();

// So that test reports show the name.
inline void PrintTo(const ConformanceCheck& check, std::ostream* out) { *out << check.name; }

}  // namespace cohort::internal

#endif  // COHORT_RUNTIME_INTERNAL_BACKEND_CONFORMANCE_H_
