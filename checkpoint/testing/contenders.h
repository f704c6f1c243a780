// File: contenders.h
//
// For benchmarks: times several ways of doing one thing against each other.

#ifndef COHORT_CHECKPOINT_TESTING_CONTENDERS_H_
#define COHORT_CHECKPOINT_TESTING_CONTENDERS_H_

#include <functional>
#include <string>
#include <vector>

namespace cohort::testing {

struct Contender {
  std::string name;
  std::function<void()> run;
  std::function<void()> prepare = {};  // before each run, not timed; may be empty
  std::vector<double> seconds = {};    // of each round
};

// Runs all of them in each round, in an order of its own, after one round that does not count.
void Measure(std::vector<Contender>& contenders, int rounds);

// A table: of each the median, least and greatest time, and the median of the rounds' ratios to the first. A machine's speed
// moves by 2x from one minute to the next, ratios within a round far less.
void Print(const std::vector<Contender>& contenders);

double Median(std::vector<double> values);

}  // namespace cohort::testing

#endif  // COHORT_CHECKPOINT_TESTING_CONTENDERS_H_
