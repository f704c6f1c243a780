// File: quoted.h
//
// What comes from outside (paths, names in files) as messages may show it: nothing of it drives a terminal, forges a line of a
// log, or passes for something else.

#ifndef COHORT_CHECKPOINT_INTERNAL_QUOTED_H_
#define COHORT_CHECKPOINT_INTERNAL_QUOTED_H_

#include <string>
#include <string_view>

namespace cohort::internal {

// `name` in double quotes. Control characters, characters that are not seen or turn the writing direction, and bytes that are
// not UTF-8 come escaped, so that two names never look the same. Of a long one the beginning, and how long it is.
std::string Quoted(std::string_view name);

// A message as one line, escaped in the same way; for texts whose names are quoted already.
std::string Printable(std::string_view text);

}  // namespace cohort::internal

#endif  // COHORT_CHECKPOINT_INTERNAL_QUOTED_H_
