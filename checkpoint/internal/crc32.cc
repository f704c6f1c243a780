// A CRC is the rest of a division of polynomials over GF(2). To put n bytes behind what has the CRC c is to multiply c by
// x^(8 n); the CRC of what those bytes are is then added, and addition is xor. (That the register starts with ones and is
// inverted at the end does not show: it is so for both parts and for the whole.) In a register the highest bit is the
// coefficient of x^0, as zip's CRC has it.

#include "cohort/checkpoint/internal/crc32.h"

#include <array>
#include <cstdint>

namespace cohort::internal {
namespace {

constexpr uint32_t kPolynomial = 0xEDB88320;
constexpr uint32_t kOne = uint32_t{1} << 31;

constexpr uint32_t Multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (; a != 0; a <<= 1) {
    if (a & kOne) product ^= b;
    b = b & 1 ? (b >> 1) ^ kPolynomial : b >> 1;  // b times x
  }
  return product;
}

// x^(8 * 2^k).
constexpr std::array<uint32_t, 64> Powers() {
  std::array<uint32_t, 64> powers{kOne >> 8};
  for (size_t k = 1; k < powers.size(); ++k) powers[k] = Multiply(powers[k - 1], powers[k - 1]);
  return powers;
}
constexpr std::array<uint32_t, 64> kPowers = Powers();

}  // namespace

uint32_t CombineCrc32(uint32_t first, uint32_t second, int64_t second_bytes) {
  for (int k = 0; second_bytes != 0; ++k, second_bytes >>= 1) {
    if (second_bytes & 1) first = Multiply(kPowers[k], first);
  }
  return first ^ second;
}

}  // namespace cohort::internal
