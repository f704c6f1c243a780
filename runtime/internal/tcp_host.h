// File: tcp_host.h
//
// TcpHost: rank 0's link. It carries the coordinator, and the other ranks connect to it.

#ifndef COHORT_RUNTIME_INTERNAL_TCP_HOST_H_
#define COHORT_RUNTIME_INTERNAL_TCP_HOST_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>  // NOLINT: the standard thread is all that is needed
#include <vector>

#include "absl/base/nullability.h"
#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "cohort/runtime/internal/control_message.h"
#include "cohort/runtime/internal/control_plane.h"
#include "cohort/runtime/internal/coordinator.h"
#include "cohort/runtime/internal/frame_channel.h"
#include "cohort/runtime/internal/poller.h"
#include "cohort/runtime/internal/socket.h"
#include "cohort/runtime/internal/switchboard.h"

namespace cohort::internal {

class TcpHost final : public ControlLink {
 public:
  struct Options {
    int world_size = 1;
    std::string token;  // what a Hello must hold
    std::string run_id;
  };

  // Takes over a socket that listens already.
  static absl::StatusOr<std::unique_ptr<TcpHost>> Create(Options options, internal::Listener socket);

  // Tells the ranks that have not left that rank 0 has.
  ~TcpHost() override;

  // Ranks that are not connected, by number. Thread-safe.
  std::vector<int> MissingRanks() const ABSL_LOCKS_EXCLUDED(mutex_);

  void Start(Listener* absl_nonnull listener) override;
  void Send(ControlMessage message) override;

 private:
  struct Connection {
    explicit Connection(UniqueFd fd) : channel(std::move(fd), kMaxHelloBytes) {}

    FrameChannel channel;
    bool watches_writable = false;
    bool refused = false;     // has been told why; its end is awaited
    std::optional<int> rank;  // once it has said a good Hello
  };

  TcpHost(Options options, internal::Listener socket, std::unique_ptr<Poller> poller);

  void Serve();
  void Accept();
  void ReadFrom(uint64_t key);
  void Hear(uint64_t key, ControlMessage message);
  void Admit(uint64_t key, const Hello& hello);
  // OK if the sender of `hello` may be the rank that it says it is.
  absl::Status Judge(const Hello& hello, const Coordinator& coordinator) const;
  void Drop(uint64_t key);

  void Deliver(Coordinator::Outgoing outgoing);
  void SendTo(uint64_t key, Connection& connection, std::shared_ptr<const std::string> frame)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void UpdateWatch(uint64_t key, Connection& connection) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Makes room if there are too many strangers.
  void DropOldestStrangers() ABSL_LOCKS_EXCLUDED(mutex_);
  std::optional<uint64_t> OldestOfTooManyStrangers() const ABSL_LOCKS_EXCLUDED(mutex_);
  bool IsRank(uint64_t key) const ABSL_LOCKS_EXCLUDED(mutex_);

  const Options options_;
  const UniqueFd socket_;
  const std::unique_ptr<Poller> poller_;
  Listener* absl_nullable listener_ = nullptr;

  // Guards the connections, and is never held while the switchboard is called.
  mutable absl::Mutex mutex_;
  std::map<uint64_t, Connection> connections_ ABSL_GUARDED_BY(mutex_);  // by key: the oldest first
  std::vector<uint64_t> key_of_rank_ ABSL_GUARDED_BY(mutex_);           // 0: not connected
  uint64_t last_key_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  Switchboard switchboard_;
  std::thread thread_;
};

}  // namespace cohort::internal

#endif  // COHORT_RUNTIME_INTERNAL_TCP_HOST_H_
