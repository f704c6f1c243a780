// Prints which items a rank uses, for sampler_test.py to compare with Python's.
//
// usage: sampler_twin < CASES
//
// A case is a line of numbers: items, ranks, rank, shuffle (0 or 1), seed, tail (0 uneven, 1 pad, 2 drop), epoch, items
// of all ranks in a step, steps after which the position is saved and loaded into a new sampler. Of each, a line of
// JSON: the rank's items in each step of the epoch.

#include <cstdint>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/log/absl_check.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cohort/trainers/data/distributed_sampler.h"

namespace cohort {
namespace {

DistributedSampler Make(const DistributedSamplerOptions& options) {
  absl::StatusOr<DistributedSampler> sampler = DistributedSampler::Create(options);
  ABSL_CHECK_OK(sampler);
  return *std::move(sampler);
}

std::string Epoch(const DistributedSamplerOptions& options, int64_t epoch, int64_t items_of_all, int64_t saved_after) {
  DistributedSampler sampler = Make(options);
  ABSL_CHECK_OK(sampler.SetEpoch(epoch));
  std::vector<std::string> steps;
  while (!sampler.is_at_end()) {
    if (static_cast<int64_t>(steps.size()) == saved_after) {
      DistributedSampler resumed = Make(options);
      ABSL_CHECK_OK(resumed.Load(sampler.State()));
      sampler = resumed;
    }
    const absl::StatusOr<SampledItems> items = sampler.Next(items_of_all);
    ABSL_CHECK_OK(items);
    steps.push_back(absl::StrCat("[", absl::StrJoin(items->mine, ", "), "]"));
  }
  return absl::StrCat("[", absl::StrJoin(steps, ", "), "]");
}

int Main() {
  DistributedSamplerOptions options;
  int tail;
  int64_t epoch, items_of_all, saved_after;
  while (std::cin >> options.num_items >> options.num_replicas >> options.rank >> options.shuffle >> options.seed >>
         tail >> epoch >> items_of_all >> saved_after) {
    options.tail = static_cast<SamplerTail>(tail);
    std::cout << Epoch(options, epoch, items_of_all, saved_after) << "\n";
  }
  return std::cin.eof() ? 0 : 1;
}

}  // namespace
}  // namespace cohort

int main() { return cohort::Main(); }
