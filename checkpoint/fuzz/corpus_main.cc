// Runs the entry of a fuzzer once over every file of the folders that are its arguments, with any compiler: what a
// fuzzer found stays found, and the fuzzers cannot fall out of step with what they call.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/log/absl_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int main(int argc, char** argv) {
  int num_files = 0;
  for (int i = 1; i < argc; ++i) {
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
      std::ifstream file(entry.path(), std::ios::binary);
      ABSL_CHECK(file.is_open()) << entry.path();
      const std::string bytes(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>{});
      LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
      // And cut in half.
      LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size() / 2);
      ++num_files;
    }
  }
  std::printf("%d files\n", num_files);
  return num_files > 0 ? 0 : 1;
}
