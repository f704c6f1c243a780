#include "cohort/runtime/internal/in_process_backend.h"

#include <unistd.h>

#include <utility>

#include "absl/log/absl_check.h"
#include "absl/status/status.h"
#include "cohort/runtime/internal/control_only_backend.h"
#include "cohort/runtime/internal/steady_time.h"

namespace cohort::internal {

class InProcessHub::Link final : public ControlLink {
 public:
  Link(InProcessHub* absl_nonnull hub, int rank) : hub_(*hub), rank_(rank) {}

  ~Link() override {
    absl::MutexLock lock(slot().mutex);
    slot().listener = nullptr;
  }

  void Start(Listener* absl_nonnull listener) override {
    {
      absl::MutexLock lock(slot().mutex);
      slot().listener = listener;
    }
    hub_.switchboard_.Update([this](Coordinator& c) { c.Join(rank_, getpid()); });
  }

  void Send(ControlMessage message) override {
    hub_.switchboard_.Update([&](Coordinator& c) {
      if (slot().cut_off) return;
      absl::Status handled = c.Handle(rank_, std::move(message), SteadyNow());
      ABSL_CHECK(handled.ok()) << handled;
    });
  }

 private:
  Slot& slot() { return hub_.slots_[rank_]; }

  InProcessHub& hub_;
  const int rank_;
};

InProcessHub::InProcessHub(int world_size)
    : slots_(world_size),
      switchboard_(world_size, [this](const Coordinator::Outgoing& outgoing) { Deliver(outgoing); }) {}

std::unique_ptr<Backend> InProcessHub::Connect(int rank) {
  return std::make_unique<ControlOnlyBackend>("in-process", ConnectControlPlane(rank));
}

std::unique_ptr<ControlPlane> InProcessHub::ConnectControlPlane(int rank) {
  return std::make_unique<ControlPlane>(std::make_unique<Link>(this, rank));
}

void InProcessHub::Kill(int rank) {
  Freeze(rank);
  switchboard_.Update([rank](Coordinator& c) { c.Disconnect(rank); });
}

void InProcessHub::Freeze(int rank) { slots_[rank].cut_off = true; }

void InProcessHub::Deliver(const Coordinator::Outgoing& outgoing) {
  for (int rank : outgoing.to) {
    Slot& slot = slots_[rank];
    absl::MutexLock lock(slot.mutex);
    if (slot.listener != nullptr && !slot.cut_off) slot.listener->OnMessage(outgoing.message);
  }
}

}  // namespace cohort::internal
