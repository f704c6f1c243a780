// A header of the monorepo's own with the name that one of cohort's has: neither hides the other.

#ifndef MONOREPO_RUNTIME_PROCESS_GROUP_H_
#define MONOREPO_RUNTIME_PROCESS_GROUP_H_

namespace monorepo {

struct ProcessGroup {
  const char* name;
};

}  // namespace monorepo

#endif  // MONOREPO_RUNTIME_PROCESS_GROUP_H_
