#include "cohort/runtime/main_only.h"

#include <exception>
#include <new>
#include <stdexcept>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace cohort {
namespace {

// Runs `function` here if `here`; all ranks get the outcome.
absl::Status RunOnSome(ProcessGroup& group, bool here, std::string_view name, absl::Duration timeout,
                       absl::FunctionRef<absl::Status()> function) {
  return group.Agree(name, here ? InvokeUser(function) : absl::OkStatus(), timeout);
}

absl::Status Thrown(absl::StatusCode code, std::string_view what) {
  return absl::Status(code, absl::StrCat("exception: ", what));
}

}  // namespace

absl::Status RunOnMain(ProcessGroup& group, std::string_view name, absl::Duration timeout,
                       absl::FunctionRef<absl::Status()> function) {
  return RunOnSome(group, group.is_main(), name, timeout, function);
}

absl::Status RunOnLocalMain(ProcessGroup& group, std::string_view name, absl::Duration timeout,
                            absl::FunctionRef<absl::Status()> function) {
  return RunOnSome(group, group.is_local_main(), name, timeout, function);
}

absl::Status InvokeUser(absl::FunctionRef<absl::Status()> function) {
  try {
    return function();
  } catch (const std::bad_alloc& e) {
    return Thrown(absl::StatusCode::kResourceExhausted, e.what());
  } catch (const std::system_error& e) {
    const std::error_category& category = e.code().category();
    bool is_errno = category == std::generic_category() || category == std::system_category();
    return Thrown(is_errno ? absl::ErrnoToStatusCode(e.code().value()) : absl::StatusCode::kInternal, e.what());
  } catch (const std::out_of_range& e) {
    return Thrown(absl::StatusCode::kOutOfRange, e.what());
  } catch (const std::invalid_argument& e) {
    return Thrown(absl::StatusCode::kInvalidArgument, e.what());
  } catch (const std::exception& e) {
    return Thrown(absl::StatusCode::kInternal, e.what());
  } catch (...) {
    return Thrown(absl::StatusCode::kUnknown, "not a std::exception");
  }
}

}  // namespace cohort
