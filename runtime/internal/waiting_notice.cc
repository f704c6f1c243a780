#include "cohort/runtime/internal/waiting_notice.h"

#include <cstdio>
#include <functional>
#include <string>
#include <thread>  // NOLINT: see the header
#include <utility>

#include "absl/time/time.h"
#include "cohort/runtime/internal/steady_time.h"

namespace cohort::internal {
namespace {

constexpr absl::Duration kFirst = absl::Seconds(10);

std::string Rounded(absl::Duration duration) { return absl::FormatDuration(absl::Floor(duration, absl::Seconds(1))); }

}  // namespace

WaitingNotice::WaitingNotice(int rank, SteadyTime deadline, std::function<std::string()> describe)
    : thread_([this, rank, deadline, describe = std::move(describe)] { Run(rank, deadline, describe); }) {}

WaitingNotice::~WaitingNotice() {
  is_over_.Notify();
  thread_.join();
}

void WaitingNotice::Run(int rank, SteadyTime deadline, const std::function<std::string()>& describe) {
  const SteadyTime start = SteadyNow();
  for (absl::Duration next = kFirst; After(start, next) < deadline; next *= 2) {
    if (is_over_.WaitForNotificationWithTimeout(Between(SteadyNow(), After(start, next)))) return;
    const std::string whom = describe();
    if (whom.empty()) continue;
    std::fprintf(stderr, "cohort: rank %d has waited %s for %s; %s left\n", rank, Rounded(next).c_str(), whom.c_str(),
                 Rounded(Between(SteadyNow(), deadline)).c_str());
  }
}

}  // namespace cohort::internal
