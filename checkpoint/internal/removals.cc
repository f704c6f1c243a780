#include "cohort/checkpoint/internal/removals.h"

#include <pthread.h>

#include <csignal>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "cohort/checkpoint/file_system.h"
#include "cohort/checkpoint/internal/remove_checkpoint.h"

namespace cohort::internal {

void Removals::Start(std::vector<std::string> names) {
  if (thread_.joinable()) thread_.join();
  if (names.empty()) return;
  auto remove = [this, names = std::move(names)] {
    for (const std::string& name : names) {
      absl::Status removed = RemoveCheckpoint(file_system_, directory_, name);
      if (!removed.ok()) errors_.push_back(std::move(removed));
    }
  };
  // Signals are for the program's own threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    thread_ = std::thread(remove);
  } catch (const std::system_error&) {  // no more threads
    remove();
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

std::vector<absl::Status> Removals::Wait() {
  if (thread_.joinable()) thread_.join();
  return std::exchange(errors_, {});
}

}  // namespace cohort::internal
