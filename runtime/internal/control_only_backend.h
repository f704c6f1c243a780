// File: control_only_backend.h
//
// ControlOnlyBackend: a Backend without a data plane. Its barrier is a rendezvous like the others.

#ifndef COHORT_RUNTIME_INTERNAL_CONTROL_ONLY_BACKEND_H_
#define COHORT_RUNTIME_INTERNAL_CONTROL_ONLY_BACKEND_H_

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/nullability.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cohort/runtime/internal/backend.h"
#include "cohort/runtime/internal/control_plane.h"

namespace cohort::internal {

class ControlOnlyBackend final : public Backend {
 public:
  // `name` must outlive the backend.
  ControlOnlyBackend(std::string_view name, absl_nonnull std::unique_ptr<ControlPlane> control_plane)
      : name_(name), control_plane_(std::move(control_plane)) {}

  std::string_view name() const override { return name_; }

  absl::Status Barrier(absl::Duration timeout) override {
    return control_plane_->Meet({.operation = "Barrier", .timeout = timeout}).status();
  }

  absl::StatusOr<std::vector<std::string>> Meet(Arrival arrival) override {
    return control_plane_->Meet(std::move(arrival));
  }

  absl::Status Leave(absl::Duration timeout) override { return control_plane_->Leave(timeout); }

  absl::Status Explain(std::string_view name, const absl::Status& error, absl::Duration waited) override {
    return control_plane_->Explain(name, error, waited);
  }

  absl::Status Abort(const absl::Status& why) override { return control_plane_->Abort(why); }

 private:
  const std::string_view name_;
  const std::unique_ptr<ControlPlane> control_plane_;
};

}  // namespace cohort::internal

#endif  // COHORT_RUNTIME_INTERNAL_CONTROL_ONLY_BACKEND_H_
