// File: training_state.h
//
// A training run in one file that C++ and Python go on from: model, optimizer, learning-rate schedule, random numbers,
// step, epoch, and where every rank is in its data.
//
//   TrainingState now{.step = step, .epoch = epoch, .lr_scheduler = schedule->State()};
//   absl::StatusOr<SaveReport> saved = SaveTrainingState(group, saver, "run/state.pt", *model, *optimizer, now);
//   ...
//   absl::StatusOr<TrainingState> then = LoadTrainingState(group, "run/state.pt", *model, *optimizer);
//
// GatherTrainingState is for those who save through something else, as CheckpointManager.
//
// In Python the file is an ordinary dict, which torch.load(path, weights_only=True) returns:
//
//   {"version": 1, "model": model.state_dict(), "optimizer": optimizer.state_dict(),
//    "lr_scheduler": scheduler.state_dict() or None, "step": 1200, "epoch": 3,
//    "rng": [{"cpu": torch.get_rng_state()}, ...one a rank...], "data": [None, ...one a rank...]}
//
// LoadTrainingState reads such a dict that Python saved; "version" and "lr_scheduler" may be missing there, and keys that
// are not listed mean nothing to it.

#ifndef COHORT_CHECKPOINT_TRAINING_STATE_H_
#define COHORT_CHECKPOINT_TRAINING_STATE_H_

#if __cplusplus < 202002L
#error "cohort needs C++20: build with --cxxopt=-std=c++20"
#endif

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "ATen/core/ivalue.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cohort/checkpoint/main_only_saver.h"
#include "cohort/checkpoint/optimizer_state.h"
#include "cohort/checkpoint/state_file.h"
#include "cohort/checkpoint/writable_file.h"
#include "cohort/runtime/process_group.h"
#include "cohort/third_party/libtorch/string_abi.h"

namespace torch {
namespace nn {
class Module;
}  // namespace nn
namespace optim {
class Optimizer;
}  // namespace optim
}  // namespace torch

namespace cohort {

// What a run is beside its model and its optimizer. Equal on all ranks but for `data`; the main rank's is saved.
struct TrainingState {
  int64_t step = 0;          // steps that the optimizer has made
  int64_t epoch = 0;         // epochs that are done
  c10::IValue lr_scheduler;  // what the schedule's State() returned, for its Load(); None without a schedule
  // Where this rank is in its data, in any form that a state file holds (see WriteTorchFile) and whoever reads the data
  // understands; None if there is nothing to know.
  c10::IValue data;
  OptimizerExtras optimizer_extras;  // hand back what LoadTrainingState returned
  // How many ranks saved it. LoadTrainingState says so; for saving it means nothing.
  int saved_world_size = 0;
};

struct TrainingStateOptions {
  StateFormat format = StateFormat::kTorch;  // for saving; loading takes either
  // The CUDA devices of this rank whose random numbers belong to the run. The same number of them on all ranks.
  std::vector<int> cuda_devices;
  // Whether LoadTrainingState takes what another number of ranks has saved; equal on all ranks. Model, optimizer, schedule,
  // step and epoch are then as they were saved; every rank begins a random stream of its own (DeriveRngState), the same
  // again whenever this number of ranks goes on with this file; and `data` is on every rank what the main rank saved, so it
  // should be something that ranks of any number can go on from.
  bool allow_other_world_size = false;
  // Called by LoadTrainingState on the main rank, when all is loaded and another number of ranks had saved it: once, with
  // a sentence that says so. Empty: ABSL_LOG(WARNING).
  std::function<void(std::string_view)> on_warning;
  // Called by LoadTrainingState on every rank, before anything is changed, with what it will return (but for
  // `optimizer_extras`): whether this is the run that is wanted. An error refuses the file. May be empty.
  std::function<absl::Status(const TrainingState&)> accept;
};

// Collective. Gathers every rank's random numbers and `data`. Returns, on every rank, a payload for MainOnlySaver or
// CheckpointManager: it writes the whole run into a file when the main rank calls it, which may be several times. `module`
// and `optimizer` must outlive it and are written as they are then; all else, and `options.format`, as they are now. Those
// of the other ranks are taken to be equal; there the payload returns FailedPrecondition and writes nothing.
//
// `name` says in errors what is gathered. `ready` is this rank's own state: a rank that could not prepare its part passes
// its error.
//
// Errors, the same on all ranks, as "rank K: TEXT": those of RngState and WriteTorchFile; InvalidArgument if a rank's
// `data` takes more than 16 MiB. The payload's: those of OptimizerState, WriteTorchFile and WriteSafetensorsFile.
absl::StatusOr<std::function<absl::Status(WritableFile& file)>> GatherTrainingState(
    ProcessGroup& group, std::string_view name, const torch::nn::Module& module,
    const torch::optim::Optimizer& optimizer, const TrainingState& state, const TrainingStateOptions& options = {},
    const absl::Status& ready = absl::OkStatus());

// Collective. Gathers every rank's random numbers and `data`, and saves all as MainOnlySaver::Save does, which says what
// a failure leaves. The model and the optimizer are the main rank's; those of the other ranks are taken to be equal.
//
// `ready` is this rank's own state: a rank that could not prepare its part passes its error, and nothing is written.
//
// Errors, the same on all ranks, as "rank K: TEXT": those of GatherTrainingState, its payload and MainOnlySaver::Save.
absl::StatusOr<SaveReport> SaveTrainingState(ProcessGroup& group, MainOnlySaver& saver, std::string_view path,
                                             const torch::nn::Module& module, const torch::optim::Optimizer& optimizer,
                                             const TrainingState& state, const TrainingStateOptions& options = {},
                                             const absl::Status& ready = absl::OkStatus());

// Collective: every rank, the same `path`; a relative one means what it means to the main rank (AbsolutePath), whose
// file every rank must see. Puts the model, the optimizer and this rank's random numbers into the state that was saved,
// and returns the rest. Waits for the other ranks at most the group's timeout, so that must be longer than the reading.
//
// Nothing is changed on any rank unless everything fits on all of them, checksums included. Only an error of the disk
// after that leaves models half loaded: then the ranks are told, and must not train on.
//
// Errors, the same on all ranks, as "rank K: TEXT": those of StateFile, ReadModuleState, LoadOptimizerState, SetRngState
// and `options.accept`, and
//   InvalidArgument  a key is missing or has a value of another type (names it); a version that this cohort does not
//                    know; saved by another number of ranks than this group has (says both), unless the options allow it
absl::StatusOr<TrainingState> LoadTrainingState(ProcessGroup& group, std::string_view path, torch::nn::Module& module,
                                                torch::optim::Optimizer& optimizer,
                                                const TrainingStateOptions& options = {});

}  // namespace cohort

#endif  // COHORT_CHECKPOINT_TRAINING_STATE_H_
