// File: serve_tcp_store.h
//
// A TCPStore as torchrun's agent serves it, for tests and benchmarks.

#ifndef COHORT_RUNTIME_TESTING_SERVE_TCP_STORE_H_
#define COHORT_RUNTIME_TESTING_SERVE_TCP_STORE_H_

#include "c10/util/intrusive_ptr.h"
#include "torch/csrc/distributed/c10d/TCPStore.hpp"

namespace cohort::testing {

// Local. Serves on loopback, at a port of its own choice, until the result dies. LibTorch has two servers, which differ in
// more than speed: torchrun takes libuv's, or with USE_LIBUV=0 the other one. A LibTorch without libuv has only the other.
// Throws what TCPStore throws.
c10::intrusive_ptr<c10d::TCPStore> ServeTcpStore(bool use_libuv = true);

}  // namespace cohort::testing

#endif  // COHORT_RUNTIME_TESTING_SERVE_TCP_STORE_H_
