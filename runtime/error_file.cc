#include "cohort/runtime/error_file.h"

#include <cstdlib>
#include <optional>
#include <string>

#include "absl/base/const_init.h"
#include "absl/base/thread_annotations.h"
#include "absl/log/absl_check.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "cohort/runtime/internal/error_report.h"

namespace cohort {
namespace {

constexpr char kVariable[] = "TORCHELASTIC_ERROR_FILE";

ABSL_CONST_INIT absl::Mutex mutex(absl::kConstInit);
bool is_located ABSL_GUARDED_BY(mutex) = false;
std::string* path ABSL_GUARDED_BY(mutex) = nullptr;  // null if there is nowhere to write, or no more

void Locate() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
  if (is_located) return;
  is_located = true;
  const char* value = std::getenv(kVariable);
  if (value != nullptr && *value != '\0') path = new std::string(value);
}

}  // namespace

void LocateErrorFile() {
  absl::MutexLock lock(mutex);
  Locate();
}

bool WriteErrorFile(const absl::Status& error) {
  ABSL_CHECK(!error.ok()) << "WriteErrorFile needs an error";
  absl::MutexLock lock(mutex);
  Locate();
  if (path == nullptr || !internal::CreateErrorFile(*path, internal::ErrorReport(error, absl::Now())).ok())
    return false;
  delete path;
  path = nullptr;
  return true;
}

}  // namespace cohort
