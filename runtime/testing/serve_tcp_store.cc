#include "cohort/runtime/testing/serve_tcp_store.h"

#include "c10/util/Exception.h"

namespace cohort::testing {

c10::intrusive_ptr<c10d::TCPStore> ServeTcpStore(bool use_libuv) {
  c10d::TCPStoreOptions options;
  options.port = 0;
  options.isServer = true;
  options.waitWorkers = false;
  options.useLibUV = use_libuv;
  try {
    return c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  } catch (const c10::Error&) {
    if (!use_libuv) throw;
    // Whether libuv is there cannot be asked in any other way.
    options.useLibUV = false;
    return c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  }
}

}  // namespace cohort::testing
