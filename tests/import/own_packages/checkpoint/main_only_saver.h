// A header of the monorepo's own with the name that one of cohort's has: neither hides the other.

#ifndef MONOREPO_CHECKPOINT_MAIN_ONLY_SAVER_H_
#define MONOREPO_CHECKPOINT_MAIN_ONLY_SAVER_H_

namespace monorepo {

struct MainOnlySaver {
  static constexpr char kName[] = "own";
};

}  // namespace monorepo

#endif  // MONOREPO_CHECKPOINT_MAIN_ONLY_SAVER_H_
