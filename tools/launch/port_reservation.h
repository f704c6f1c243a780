// File: port_reservation.h
//
// A TCP port that is ours from the moment it is chosen until the job ends.

#ifndef COHORT_TOOLS_LAUNCH_PORT_RESERVATION_H_
#define COHORT_TOOLS_LAUNCH_PORT_RESERVATION_H_

#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "cohort/tools/launch/unique_fd.h"

namespace cohort::launch {

// Keeps a port of this machine away from everybody but the rank that is to listen on it.
//
// While it lives, no program is given the port by chance, and none can bind it but one that sets SO_REUSEADDR (every
// server of c10d does): that one can bind, listen and accept as if we were not there. Nothing listens here, so nobody
// can connect either.
class PortReservation {
 public:
  // Local, does not block, looks up no name. Chooses a port that is free on every address of this machine, and holds it
  // where rank 0 listens: if `host` is a loopback address, or "localhost", on loopback; otherwise everywhere.
  //
  // Errors: Unavailable (no port is free), Internal (the system refuses sockets).
  static absl::StatusOr<PortReservation> ChooseFree(std::string_view host = "");

  // Local, does not block, looks up no name. Reserves a port that the user named, from 1 to 65535, where rank 0
  // listens, as above. Who uses the same port at another address is not in the way.
  //
  // Errors:
  //   Unavailable       some program listens on it, or holds it without SO_REUSEADDR.
  //   PermissionDenied  only root may use this port.
  //   Internal          the system refuses sockets.
  static absl::StatusOr<PortReservation> Claim(int port, std::string_view host = "");

  int port() const { return port_; }

 private:
  PortReservation(std::vector<UniqueFd> sockets, int port) : sockets_(std::move(sockets)), port_(port) {}

  std::vector<UniqueFd> sockets_;
  int port_;
};

}  // namespace cohort::launch

#endif  // COHORT_TOOLS_LAUNCH_PORT_RESERVATION_H_
