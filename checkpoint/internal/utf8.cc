#include "cohort/checkpoint/internal/utf8.h"

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace cohort::internal {
namespace {

// The number of bytes of the sequence that begins with `lead`, or 0 if none does.
size_t SequenceLength(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xc2 && lead <= 0xdf) return 2;  // 0xc0 and 0xc1 only begin overlong forms
  if (lead >= 0xe0 && lead <= 0xef) return 3;
  if (lead >= 0xf0 && lead <= 0xf4) return 4;
  return 0;
}

}  // namespace

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const unsigned char lead = text[0];
    const size_t length = SequenceLength(lead);
    if (length == 0 || text.size() < length) return false;
    uint32_t code = length == 1 ? lead : lead & (0x7f >> length);
    for (size_t i = 1; i < length; ++i) {
      const unsigned char byte = text[i];
      if ((byte & 0xc0) != 0x80) return false;
      code = code << 6 | (byte & 0x3f);
    }
    const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
    const bool surrogate = code >= 0xd800 && code <= 0xdfff;
    if (overlong || surrogate || code > 0x10ffff) return false;
    text.remove_prefix(length);
  }
  return true;
}

}  // namespace cohort::internal
