// Prints in which order //trainers:linear uses the rows: a line for each epoch.
//
// usage: trainer_orders ROWS SEED EPOCHS

#include <cstdint>
#include <iostream>

#include "absl/log/absl_check.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "cohort/trainers/data/sharding.h"

int main(int argc, char** argv) {
  int64_t rows, epochs;
  uint64_t seed;
  ABSL_CHECK(argc == 4 && absl::SimpleAtoi(argv[1], &rows) && absl::SimpleAtoi(argv[2], &seed) &&
             absl::SimpleAtoi(argv[3], &epochs))
      << "usage: trainer_orders ROWS SEED EPOCHS";
  for (int64_t epoch = 0; epoch < epochs; ++epoch) {
    std::cout << absl::StrJoin(cohort::EpochOrder(rows, seed, epoch), " ") << "\n";
  }
}
