#include "cohort/checkpoint/internal/crc32.h"

#include <cstdint>
#include <string>
#include <string_view>

#include "gtest/gtest.h"

namespace cohort::internal {
namespace {

TEST(Crc32Test, IsThatOfZip) {
  EXPECT_EQ(Crc32("123456789"), 0xCBF43926u);  // the check value that catalogues of CRCs give
  EXPECT_EQ(Crc32(""), 0u);
  EXPECT_EQ(Crc32("6789", Crc32("12345")), Crc32("123456789"));
}

TEST(Crc32Test, TwoAreCombinedWithoutTheBytes) {
  std::string bytes;
  for (int i = 0; i < 70'000; ++i) bytes.push_back(static_cast<char>(i * 2654435761u >> 13));
  const uint32_t whole = Crc32(bytes);
  for (const size_t begin : {0, 1, 2, 255, 256, 4095, 65'536, 69'999, 70'000}) {
    const std::string_view first = std::string_view(bytes).substr(0, begin),
                           second = std::string_view(bytes).substr(begin);
    EXPECT_EQ(CombineCrc32(Crc32(first), Crc32(second), static_cast<int64_t>(second.size())), whole) << begin;
  }
}

TEST(Crc32Test, CombinesWhatIsLargerThanMemory) {
  // 2^40 zeros, doubled up from one.
  uint32_t zeros = Crc32(std::string_view("\0", 1));
  int64_t num_bytes = 1;
  for (; num_bytes < int64_t{1} << 20; num_bytes *= 2) zeros = CombineCrc32(zeros, zeros, num_bytes);
  EXPECT_EQ(zeros, Crc32(std::string(num_bytes, '\0')));
  for (; num_bytes < int64_t{1} << 40; num_bytes *= 2) zeros = CombineCrc32(zeros, zeros, num_bytes);
  // The order of combining does not matter.
  const uint32_t a = Crc32("a");
  EXPECT_EQ(CombineCrc32(CombineCrc32(a, zeros, num_bytes), a, 1),
            CombineCrc32(a, CombineCrc32(zeros, a, 1), num_bytes + 1));
}

}  // namespace
}  // namespace cohort::internal
