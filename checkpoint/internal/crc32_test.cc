#include "cohort/checkpoint/internal/crc32.h"

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>

#include "gtest/gtest.h"
#include "zlib.h"

namespace cohort::internal {
namespace {

std::string RandomBytes(size_t size) {
  std::mt19937 random(7);
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

uint32_t ByZlib(uint32_t crc, std::string_view bytes) {
  return static_cast<uint32_t>(crc32_z(crc, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

TEST(Crc32Test, HasTheKnownCheckValue) {
  EXPECT_EQ(ExtendCrc32(0, "123456789"), 0xcbf43926);
  EXPECT_EQ(ExtendCrc32(0, ""), 0);
}

TEST(Crc32Test, AgreesWithZlibForEveryLengthAndAlignment) {
  const std::string bytes = RandomBytes(700);
  for (size_t begin = 0; begin < 17; ++begin) {
    for (size_t size = 0; begin + size <= bytes.size(); ++size) {
      const std::string_view part = std::string_view(bytes).substr(begin, size);
      ASSERT_EQ(ExtendCrc32(0, part), ByZlib(0, part)) << begin << " " << size;
      ASSERT_EQ(ExtendCrc32(0x12345678, part), ByZlib(0x12345678, part)) << begin << " " << size;
    }
  }
}

TEST(Crc32Test, ExtendsPieceByPiece) {
  const std::string bytes = RandomBytes(1 << 20);
  uint32_t crc = 0;
  size_t size = 1;
  for (std::string_view rest = bytes; !rest.empty(); size = size * 2 + 1) {
    const std::string_view piece = rest.substr(0, size);
    crc = ExtendCrc32(crc, piece);
    rest.remove_prefix(piece.size());
  }
  EXPECT_EQ(crc, ByZlib(0, bytes));
}

TEST(Crc32Test, SeesOneFlippedBit) {
  std::string bytes = RandomBytes(4096);
  const uint32_t before = ExtendCrc32(0, bytes);
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] ^= 1;
    ASSERT_NE(ExtendCrc32(0, bytes), before) << i;
    bytes[i] ^= 1;
  }
}

}  // namespace
}  // namespace cohort::internal
