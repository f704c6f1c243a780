// A rank that does what its arguments say, one step after the other, and reports each step on a line of its own as soon
// as it is over:
//
//   STEP CODE SECONDS TEXT
//
// where TEXT is the error's, or the step's result. Ends with exit code 0, whatever the outcomes are.
//
//   meet_for=S, wait_for=S   how long later steps wait: to meet, in a collective
//   init=BACKEND             InitProcessGroup
//   identity                 rank, world size, local rank, local world size, backend
//   barrier, agree=NAME, fail=NAME, shutdown
//   sum=N, mean=N, broadcast=N   of N floats and a transposed matrix; the result is the sum of each
//   contexts                 the CUDA devices on which this process has a context: "0 1"
//   current_device, set_device=N   of CUDA, in this thread
//   bad                      sum of a tensor that is nowhere
//   destroy                  leaves the group without Shutdown
//   forget                   never destroys the group: its threads are there when main returns
//   await=FILE               waits until FILE exists, and so until the test has seen what it wants to see
//   kill                     SIGKILL to itself
//   meet_and_kill            SIGKILL to itself when all ranks are there, before they have connected to each other
//   exit                     _exit, like a program that has forgotten everything

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ATen/ATen.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cohort/runtime/init_process_group.h"
#include "cohort/runtime/internal/backend_choice.h"
#include "cohort/runtime/internal/endpoint.h"
#include "cohort/runtime/internal/meeting_point.h"
#include "cohort/runtime/internal/steady_time.h"
#include "cohort/runtime/internal/tcp_control_plane.h"
#include "cohort/runtime/process_group.h"
#include "cohort/runtime/rank_info.h"
#include "cohort/runtime/tensor_collectives.h"
#include "cohort/runtime/testing/gpus.h"

namespace cohort {
namespace {

using Outcome = absl::StatusOr<std::string>;
using Collective = absl::Status (*)(ProcessGroup&, absl::Span<const at::Tensor>);

class Rank {
 public:
  Outcome Do(std::string_view step, const std::string& value) {
    if (step == "meet_for") return SetDuration(value, meet_for_);
    if (step == "wait_for") return SetDuration(value, wait_for_);
    if (step == "init") return Init(value);
    if (step == "await") return Await(value);
    if (step == "kill") raise(SIGKILL);
    if (step == "meet_and_kill") return MeetAndKill();
    if (step == "exit") _exit(0);
    if (step == "contexts") return absl::StrJoin(testing::DevicesWithContext(), " ");
    if (step == "current_device") return absl::StrCat(testing::CurrentDevice());
    if (step == "set_device") return SetDevice(value);
    if (group_ == nullptr) return absl::FailedPreconditionError("there is no group");
    if (step == "identity") {
      return absl::StrCat(group_->rank(), " ", group_->world_size(), " ", group_->local_rank(), " ",
                          group_->local_world_size(), " ", group_->backend_name());
    }
    if (step == "barrier") return Empty(group_->Barrier());
    if (step == "agree") return Empty(group_->Agree(value, absl::OkStatus()));
    if (step == "fail") return Empty(group_->Agree(value, absl::DataLossError("made to fail")));
    if (step == "shutdown") return Empty(group_->Shutdown());
    if (step == "bad") return Empty(AllReduceSum(*group_, {at::empty({1}, at::kMeta)}));
    if (step == "sum") return Reduce(&AllReduceSum, value);
    if (step == "mean") return Reduce(&AllReduceMean, value);
    if (step == "broadcast") return Reduce(&BroadcastTensors, value);
    if (step == "forget") {
      // As a global that nobody destroys: still reachable, so no leak to a sanitizer.
      [[maybe_unused]] static ProcessGroup* forgotten;
      forgotten = group_.release();
      return "";
    }
    if (step == "destroy") {
      group_.reset();
      return "";
    }
    return absl::UnimplementedError("no such step");
  }

 private:
  static Outcome Empty(const absl::Status& status) { return status.ok() ? Outcome("") : Outcome(status); }

  static Outcome SetDuration(const std::string& value, absl::Duration& duration) {
    double seconds = 0;
    if (!absl::SimpleAtod(value, &seconds)) return absl::InvalidArgumentError("not a number");
    duration = absl::Seconds(seconds);
    return "";
  }

  static Outcome Await(const std::string& file) {
    struct stat ignored;
    while (stat(file.c_str(), &ignored) != 0) absl::SleepFor(absl::Milliseconds(5));
    return "";
  }

  static Outcome SetDevice(const std::string& value) {
    int device = 0;
    if (!absl::SimpleAtoi(value, &device)) return absl::InvalidArgumentError("not a number");
    testing::SetCurrentDevice(device);
    return "";
  }

  Outcome Init(const std::string& backend) {
    ABSL_ASSIGN_OR_RETURN(group_,
                          InitProcessGroup({.backend = backend, .init_timeout = meet_for_, .timeout = wait_for_}));
    return "";
  }

  // What InitProcessGroup does, so far.
  Outcome MeetAndKill() {
    ABSL_ASSIGN_OR_RETURN(const RankInfo info, RankInfoFromEnvironment());
    ABSL_ASSIGN_OR_RETURN(internal::Visit visit,
                          internal::VisitMeetingPoint(info, internal::After(internal::SteadyNow(), meet_for_)));
    const internal::RankFacts facts = {.network_stack = internal::NetworkStackId(), .gloo_host = visit.local_host};
    ABSL_ASSIGN_OR_RETURN(const internal::Meeting meeting,
                          internal::JoinMeeting({.rank = info.rank,
                                                 .world_size = info.world_size,
                                                 .run_id = "cohort/none/0/0",
                                                 .timeout = meet_for_,
                                                 .facts = internal::EncodeFacts(facts)},
                                                std::move(visit.connection)));
    raise(SIGKILL);
    return "";
  }

  Outcome Reduce(Collective collective, const std::string& value) {
    int64_t size = 0;
    if (!absl::SimpleAtoi(value, &size)) return absl::InvalidArgumentError("not a number");
    const double mine = group_->rank() + 1;
    const std::vector<at::Tensor> tensors = {at::full({size}, mine, at::kFloat),
                                             at::full({2, 3}, mine, at::kDouble).t(),
                                             at::full({}, mine, at::kFloat).requires_grad_()};
    ABSL_RETURN_IF_ERROR(collective(*group_, tensors));
    return absl::StrCat(tensors[0].sum().item<double>(), " ", tensors[1].sum().item<double>(), " ",
                        tensors[2].item<double>());
  }

  absl::Duration meet_for_ = absl::Seconds(60);
  absl::Duration wait_for_ = absl::Seconds(60);
  std::unique_ptr<ProcessGroup> group_;
};

void Report(std::string_view step, const Outcome& outcome, absl::Duration took) {
  const std::string text = outcome.ok() ? *outcome : std::string(outcome.status().message());
  std::printf("%s %s %.3f %s\n", std::string(step).c_str(), absl::StatusCodeToString(outcome.status().code()).c_str(),
              absl::ToDoubleSeconds(took), absl::StrReplaceAll(text, {{"\n", "\\n"}}).c_str());
  std::fflush(stdout);
}

int Main(int argc, char** argv) {
  Rank rank;
  for (int i = 1; i < argc; ++i) {
    const std::pair<std::string, std::string> step = absl::StrSplit(argv[i], absl::MaxSplits('=', 1));
    const absl::Time start = absl::Now();
    const Outcome outcome = rank.Do(step.first, step.second);
    Report(step.first, outcome, absl::Now() - start);
  }
  return 0;
}

}  // namespace
}  // namespace cohort

int main(int argc, char** argv) { return cohort::Main(argc, argv); }
