#include "cohort/checkpoint/testing/contenders.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <numeric>
#include <random>
#include <vector>

namespace cohort::testing {

void Measure(std::vector<Contender>& contenders, int rounds) {
  std::mt19937 random(1);
  std::vector<size_t> order(contenders.size());
  std::iota(order.begin(), order.end(), size_t{0});
  for (int round = -1; round < rounds; ++round) {  // the first one warms up
    std::shuffle(order.begin(), order.end(), random);
    for (const size_t i : order) {
      Contender& contender = contenders[i];
      if (contender.prepare) contender.prepare();
      const auto start = std::chrono::steady_clock::now();
      contender.run();
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
      if (round >= 0) contender.seconds.push_back(elapsed.count());
    }
  }
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void Print(const std::vector<Contender>& contenders) {
  std::printf("%-52s %10s %10s %10s %12s\n", "", "median ms", "min", "max", "x the first");
  for (const Contender& contender : contenders) {
    std::vector<double> ratios;
    for (size_t i = 0; i < contender.seconds.size(); ++i) {
      ratios.push_back(contender.seconds[i] / contenders[0].seconds[i]);
    }
    const auto [least, most] = std::minmax_element(contender.seconds.begin(), contender.seconds.end());
    std::printf("%-52s %10.2f %10.2f %10.2f %12.3f\n", contender.name.c_str(), 1e3 * Median(contender.seconds),
                1e3 * *least, 1e3 * *most, Median(ratios));
  }
}

}  // namespace cohort::testing
