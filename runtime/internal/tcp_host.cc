// How a connection becomes a rank.
//
// 1. Anybody may connect. Until it has said Hello a connection may send one small frame, holds up nobody, and if there
//    are too many of them the oldest goes: the port is open to whoever can reach the address. It may be a rank whose
//    Hello nobody has read yet, so that is looked at first; and a rank that goes before it could speak comes again.
// 2. A Hello without the token is dropped without an answer: it does not belong to this job, and the job takes no
//    notice. Nor does it of a Hello from another run, which is only told that it is one. The name of this run stays
//    unsaid: where nothing is published it is all that tells a rank from a stranger.
// 3. With both it is one of us, and is told what is wrong: a rank that does not exist, a rank that somebody else is
//    already. That is the newcomer's problem; the others carry on. Different ideas of the world size are everybody's
//    problem: the meeting could only time out, so it fails at once.
// 4. Then it is that rank, for good: when the connection ends, the rank is gone. Ranks do not come back.
//
// The port stays open as long as the group lives, so that a rank that is started twice, late, is told so as well.

#include "cohort/runtime/internal/tcp_host.h"

#include <unistd.h>

#include <utility>

#include "absl/log/absl_check.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cohort/runtime/internal/steady_time.h"

namespace cohort::internal {
namespace {

constexpr uint64_t kSocketKey = 0;
// Connections without a rank, beyond one for each rank.
constexpr size_t kMaxStrangers = 64;
// Connections taken before those that are there are listened to again.
constexpr int kMostAcceptedAtOnce = 16;

// Takes the same time wherever the two differ.
bool SameSecret(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TcpHost>> TcpHost::Create(Options options, internal::Listener socket) {
  ABSL_ASSIGN_OR_RETURN(std::unique_ptr<Poller> poller, Poller::Create());
  ABSL_RETURN_IF_ERROR(poller->Add(socket.fd.get(), kSocketKey));
  return std::unique_ptr<TcpHost>(new TcpHost(std::move(options), std::move(socket), std::move(poller)));
}

TcpHost::TcpHost(Options options, internal::Listener socket, std::unique_ptr<Poller> poller)
    : options_(std::move(options)),
      socket_(std::move(socket.fd)),
      poller_(std::move(poller)),
      key_of_rank_(options_.world_size),
      last_key_(kSocketKey),
      switchboard_(options_.world_size, [this](Coordinator::Outgoing outgoing) { Deliver(std::move(outgoing)); }) {}

TcpHost::~TcpHost() {
  if (!thread_.joinable()) return;
  switchboard_.Update([](Coordinator& c) { c.Fail(absl::FailedPreconditionError("rank 0 has left the group")); });
  {
    // What was sent must reach the sockets; only a rank that does not read can make this wait.
    absl::MutexLock lock(mutex_);
    auto all_sent = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      for (const auto& [key, connection] : connections_) {
        if (connection.channel.has_output()) return false;
      }
      return true;
    };
    mutex_.AwaitWithTimeout(absl::Condition(&all_sent), absl::Seconds(1));
    stopping_ = true;
  }
  poller_->Wake();
  thread_.join();
}

std::vector<int> TcpHost::MissingRanks() const {
  absl::MutexLock lock(mutex_);
  std::vector<int> missing;
  for (size_t rank = 1; rank < key_of_rank_.size(); ++rank) {
    if (key_of_rank_[rank] == 0) missing.push_back(static_cast<int>(rank));
  }
  return missing;
}

void TcpHost::Start(Listener* absl_nonnull listener) {
  listener_ = listener;
  switchboard_.Update([](Coordinator& c) { c.Join(0, getpid()); });
  thread_ = std::thread([this] { Serve(); });
}

void TcpHost::Send(ControlMessage message) {
  switchboard_.Update([&](Coordinator& c) {
    // Rank 0's own control plane says nothing wrong.
    absl::Status handled = c.Handle(0, std::move(message), SteadyNow());
    ABSL_CHECK(handled.ok()) << handled;
  });
}

void TcpHost::Serve() {
  while (true) {
    for (const Poller::Event& event : poller_->Wait()) {
      if (event.key == kSocketKey) {
        Accept();
        continue;
      }
      if (event.writable) {
        absl::MutexLock lock(mutex_);
        auto found = connections_.find(event.key);
        if (found == connections_.end()) continue;
        found->second.channel.Flush();
        UpdateWatch(found->first, found->second);
      }
      if (event.readable) ReadFrom(event.key);
    }
    absl::MutexLock lock(mutex_);
    if (stopping_) return;
  }
}

void TcpHost::Accept() {
  absl::Status broken;
  {
    absl::MutexLock lock(mutex_);
    for (int i = 0; i < kMostAcceptedAtOnce; ++i) {
      absl::StatusOr<UniqueFd> fd = AcceptFrom(socket_);
      if (fd.ok() && !fd->is_open()) break;
      uint64_t key = ++last_key_;
      broken = fd.ok() ? poller_->Add(fd->get(), key) : fd.status();
      if (!broken.ok()) break;
      connections_.emplace(key, *std::move(fd));
    }
    // The socket would stay readable and this thread busy.
    if (!broken.ok()) poller_->Remove(socket_.get());
  }
  DropOldestStrangers();
  if (broken.ok()) return;
  switchboard_.Update([&](Coordinator& c) {
    if (!c.all_have_joined()) {
      c.Fail(absl::Status(broken.code(), absl::StrCat("rank 0 cannot take more connections: ", broken.message())));
    }
  });
}

void TcpHost::ReadFrom(uint64_t key) {
  std::vector<ControlMessage> messages;
  absl::Status received;
  {
    absl::MutexLock lock(mutex_);
    auto found = connections_.find(key);
    if (found == connections_.end()) return;
    received = found->second.channel.Receive(messages);
  }
  for (ControlMessage& message : messages) Hear(key, std::move(message));
  if (!received.ok()) Drop(key);
}

void TcpHost::Hear(uint64_t key, ControlMessage message) {
  std::optional<int> rank;
  {
    absl::MutexLock lock(mutex_);
    auto found = connections_.find(key);
    if (found == connections_.end() || found->second.refused) return;
    rank = found->second.rank;
  }
  absl::Status handled;
  if (rank.has_value()) {
    switchboard_.Update([&](Coordinator& c) { handled = c.Handle(*rank, std::move(message), SteadyNow()); });
  } else if (const Hello* hello = std::get_if<Hello>(&message);
             hello != nullptr && SameSecret(hello->token, options_.token)) {
    Admit(key, *hello);
  } else {
    handled = absl::InvalidArgumentError("a stranger");
  }
  if (!handled.ok()) Drop(key);
}

void TcpHost::Admit(uint64_t key, const Hello& hello) {
  bool is_meeting = false;
  absl::Status judgement;
  switchboard_.Update([&](Coordinator& c) {
    is_meeting = !c.all_have_joined();
    judgement = Judge(hello, c);
  });
  {
    absl::MutexLock lock(mutex_);
    auto found = connections_.find(key);
    if (found == connections_.end()) return;
    if (judgement.ok()) {
      found->second.rank = hello.rank;
      key_of_rank_[hello.rank] = key;
    } else {
      found->second.refused = true;
      SendTo(key, found->second, std::make_shared<const std::string>(EncodeFrame(Poison{judgement})));
    }
  }
  if (judgement.ok()) {
    switchboard_.Update([&](Coordinator& c) { c.Join(hello.rank, hello.pid); });
  } else if (is_meeting && SameSecret(hello.run_id, options_.run_id) && hello.world_size != options_.world_size) {
    switchboard_.Update([&](Coordinator& c) { c.Fail(judgement); });
  }
}

absl::Status TcpHost::Judge(const Hello& hello, const Coordinator& coordinator) const {
  // First, and without any detail: nothing is owed to a stranger.
  if (!SameSecret(hello.run_id, options_.run_id)) {
    return absl::InvalidArgumentError(
        "rank 0 belongs to another run, which meets at the same address and port; MASTER_PORT, or the launcher's "
        "--master-port, chooses another");
  }
  if (hello.world_size != options_.world_size) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", hello.rank, " was told a world size of ", hello.world_size,
                                                   ", rank 0 one of ", options_.world_size));
  }
  if (hello.rank < 0 || hello.rank >= options_.world_size) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", hello.rank, " is not in the range 0 to ", options_.world_size - 1));
  }
  if (std::optional<int64_t> holder = coordinator.pid(hello.rank); holder.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", hello.rank, " is held by process ", *holder,
                                                   " already; process ", hello.pid, " claims it too"));
  }
  return absl::OkStatus();
}

void TcpHost::Drop(uint64_t key) {
  std::optional<int> rank;
  {
    absl::MutexLock lock(mutex_);
    auto found = connections_.find(key);
    if (found == connections_.end()) return;
    rank = found->second.rank;
    if (rank.has_value()) key_of_rank_[*rank] = 0;
    connections_.erase(found);
  }
  if (rank.has_value()) switchboard_.Update([&](Coordinator& c) { c.Disconnect(*rank); });
}

void TcpHost::DropOldestStrangers() {
  while (std::optional<uint64_t> key = OldestOfTooManyStrangers()) {
    ReadFrom(*key);
    if (!IsRank(*key)) Drop(*key);
  }
}

std::optional<uint64_t> TcpHost::OldestOfTooManyStrangers() const {
  absl::MutexLock lock(mutex_);
  if (connections_.size() <= kMaxStrangers + key_of_rank_.size()) return std::nullopt;
  for (const auto& [key, connection] : connections_) {
    if (!connection.rank.has_value()) return key;
  }
  return std::nullopt;
}

bool TcpHost::IsRank(uint64_t key) const {
  absl::MutexLock lock(mutex_);
  auto found = connections_.find(key);
  return found != connections_.end() && found->second.rank.has_value();
}

void TcpHost::Deliver(Coordinator::Outgoing outgoing) {
  bool to_self = false;
  std::shared_ptr<const std::string> frame;
  for (int rank : outgoing.to) {
    if (rank == 0) {
      to_self = true;
      continue;
    }
    if (frame == nullptr) frame = std::make_shared<const std::string>(EncodeFrame(outgoing.message));
    absl::MutexLock lock(mutex_);
    auto found = connections_.find(key_of_rank_[rank]);
    if (found != connections_.end()) SendTo(found->first, found->second, frame);
  }
  if (to_self) listener_->OnMessage(std::move(outgoing.message));
}

void TcpHost::SendTo(uint64_t key, Connection& connection, std::shared_ptr<const std::string> frame) {
  connection.channel.Send(std::move(frame));
  UpdateWatch(key, connection);
}

void TcpHost::UpdateWatch(uint64_t key, Connection& connection) {
  bool has_output = connection.channel.has_output();
  if (connection.refused && !has_output) connection.channel.FinishSending();
  if (connection.watches_writable == has_output) return;
  connection.watches_writable = has_output;
  poller_->WatchWritable(connection.channel.fd(), key, has_output);
}

}  // namespace cohort::internal
