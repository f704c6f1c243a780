// File: temporary_name.h
//
// What is being written or removed has a name of this host's and this process's own until it is done.

#ifndef COHORT_CHECKPOINT_INTERNAL_TEMPORARY_NAME_H_
#define COHORT_CHECKPOINT_INTERNAL_TEMPORARY_NAME_H_

#include <string>
#include <string_view>

namespace cohort::internal {

// What the names of all files begin with that are nobody's but this library's.
inline constexpr std::string_view kHiddenPrefix = ".cohort-";

// What the names of this host's temporary files of a kind begin with: ".cohort-KIND-HOST-". Hidden, and unlike any
// checkpoint's name, so that nobody who lists a directory takes one for a checkpoint. The host's name is hashed to a
// fixed length: names may have 255 bytes only.
std::string TemporaryPrefix(std::string_view kind);

// Begins with TemporaryPrefix. Holds the process and a random number; that nothing has the name is likely, not certain.
std::string TemporaryName(std::string_view kind);

}  // namespace cohort::internal

#endif  // COHORT_CHECKPOINT_INTERNAL_TEMPORARY_NAME_H_
