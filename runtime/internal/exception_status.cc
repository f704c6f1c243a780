#include "cohort/runtime/internal/exception_status.h"

#include <cerrno>
#include <cstring>
#include <exception>
#include <new>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "c10/util/Exception.h"
#include "gloo/common/error.h"
#include "torch/csrc/distributed/c10d/exception.h"

namespace cohort::internal {
namespace {

absl::Status TransportError(std::string_view text, bool time_is_up) {
  return time_is_up ? absl::DeadlineExceededError(text) : absl::UnavailableError(text);
}

absl::Status SystemError(const std::system_error& error) {
  const std::error_category& category = error.code().category();
  if (category == std::generic_category() || category == std::system_category()) {
    return absl::Status(absl::ErrnoToStatusCode(error.code().value()), error.what());
  }
  return absl::InternalError(error.what());
}

// What has no kind of its own.
absl::Status OtherError(std::string_view text) {
  const bool has_no_memory =
      absl::StrContains(text, "DefaultCPUAllocator: ") || absl::StrContains(text, std::strerror(ENOMEM));
  return has_no_memory ? absl::ResourceExhaustedError(absl::StrCat("out of memory: ", text))
                       : absl::InternalError(text);
}

}  // namespace

// The order of the handlers matters: kinds stand before what they derive from.
absl::Status StatusFromException(const std::exception_ptr& exception, bool time_is_up) {
  try {
    std::rethrow_exception(exception);
  } catch (const c10d::TimeoutError& error) {
    return absl::DeadlineExceededError(error.what_without_backtrace());
  } catch (const c10::DistError& error) {
    return TransportError(error.what_without_backtrace(), time_is_up);
  } catch (const gloo::IoException& error) {
    return TransportError(error.what(), time_is_up);
  } catch (const c10::IndexError& error) {
    return absl::InvalidArgumentError(error.what_without_backtrace());
  } catch (const c10::ValueError& error) {
    return absl::InvalidArgumentError(error.what_without_backtrace());
  } catch (const c10::TypeError& error) {
    return absl::InvalidArgumentError(error.what_without_backtrace());
  } catch (const gloo::InvalidOperationException& error) {
    return absl::InvalidArgumentError(error.what());
  } catch (const c10::NotImplementedError& error) {
    return absl::UnimplementedError(error.what_without_backtrace());
  } catch (const c10::OutOfMemoryError& error) {
    return absl::ResourceExhaustedError(error.what_without_backtrace());
  } catch (const c10::Error& error) {
    return OtherError(error.what_without_backtrace());
  } catch (const std::system_error& error) {
    return SystemError(error);
  } catch (const std::invalid_argument& error) {
    return absl::InvalidArgumentError(error.what());
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("out of memory");
  } catch (const std::exception& error) {
    return OtherError(error.what());
  } catch (...) {
    return absl::UnknownError("an exception that is not a std::exception");
  }
}

}  // namespace cohort::internal
