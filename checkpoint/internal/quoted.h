// File: quoted.h

#ifndef COHORT_CHECKPOINT_INTERNAL_QUOTED_H_
#define COHORT_CHECKPOINT_INTERNAL_QUOTED_H_

#include <string>
#include <string_view>

namespace cohort::internal {

// `name` in quotes, as an error message may show it: a path or a tensor's name comes from outside and may be empty, be
// thousands of bytes long, or hold a newline that would forge a line of a log.
std::string Quoted(std::string_view name);

}  // namespace cohort::internal

#endif  // COHORT_CHECKPOINT_INTERNAL_QUOTED_H_
