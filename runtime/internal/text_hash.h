// File: text_hash.h
//
// A hash that processes on different machines, and of different builds, have in common.

#ifndef COHORT_RUNTIME_INTERNAL_TEXT_HASH_H_
#define COHORT_RUNTIME_INTERNAL_TEXT_HASH_H_

#include <cstdint>
#include <string_view>

namespace cohort::internal {

// FNV-1a with 64 bits. Not for texts that somebody has chosen to collide.
constexpr uint64_t HashOfText(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

}  // namespace cohort::internal

#endif  // COHORT_RUNTIME_INTERNAL_TEXT_HASH_H_
