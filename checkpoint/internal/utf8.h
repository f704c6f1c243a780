// File: utf8.h

#ifndef COHORT_CHECKPOINT_INTERNAL_UTF8_H_
#define COHORT_CHECKPOINT_INTERNAL_UTF8_H_

#include <string_view>

namespace cohort::internal {

// True if `text` is UTF-8 as the Unicode standard defines it: no overlong forms, no surrogates, nothing above U+10FFFF.
// What Python reads back as the same string, byte for byte.
bool IsUtf8(std::string_view text);

}  // namespace cohort::internal

#endif  // COHORT_CHECKPOINT_INTERNAL_UTF8_H_
