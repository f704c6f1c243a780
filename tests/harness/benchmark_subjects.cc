// Benchmarks that work and that do not, for run_benchmark_test. `--benchmark_filter` picks.

#include <string>

#include "benchmark/benchmark.h"

namespace {

void BM_Good(benchmark::State& state) {
  for (auto _ : state) {
    std::string text(100, 'x');
    benchmark::DoNotOptimize(text);
  }
}
BENCHMARK(BM_Good);

void BM_Bad(benchmark::State& state) {
  for (auto _ : state) state.SkipWithError("bad on purpose");
}
BENCHMARK(BM_Bad);

}  // namespace
