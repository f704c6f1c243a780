// Loading, so that no rank is changed unless all can be:
//
//   1  The main rank says which file, by its absolute path.
//   2  Every rank opens it, finds the place of every value in its model, and verifies the model's checksums. It loads the
//      optimizer and the random numbers: both check before they change anything, and are put back if a later part fails.
//   3  All meet. If one has failed, every other puts back what it had, and all return the error.
//   4  Every rank reads the model's values into their places. Only the disk can fail now. All meet again.

#include "cohort/checkpoint/training_state.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ATen/core/ivalue.h"
#include "absl/log/absl_log.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cohort/checkpoint/internal/quoted.h"
#include "cohort/checkpoint/internal/string_file.h"
#include "cohort/checkpoint/internal/value_fields.h"
#include "cohort/checkpoint/main_only_saver.h"
#include "cohort/checkpoint/module_state.h"
#include "cohort/checkpoint/optimizer_state.h"
#include "cohort/checkpoint/rng_state.h"
#include "cohort/checkpoint/safetensors_file.h"
#include "cohort/checkpoint/state_file.h"
#include "cohort/checkpoint/target_path.h"
#include "cohort/checkpoint/torch_file.h"
#include "cohort/checkpoint/writable_file.h"
#include "cohort/runtime/process_group.h"
#include "cohort/runtime/torch_status.h"
#include "torch/nn/module.h"
#include "torch/optim/optimizer.h"

namespace cohort {
namespace {

using c10::IValue;
using c10::impl::GenericDict;
using c10::impl::GenericList;
using internal::NewDict;
using internal::Quoted;

constexpr int64_t kVersion = 1;
constexpr int64_t kMaxRankBytes = int64_t{16} << 20;

// ---- Saving ----

// What only this rank knows, as the bytes of a .pt file.
absl::StatusOr<std::string> MyPart(const TrainingState& state, const TrainingStateOptions& options,
                                   const absl::Status& ready) {
  ABSL_RETURN_IF_ERROR(ready);
  ABSL_ASSIGN_OR_RETURN(IValue rng, RngState(options.cuda_devices));
  GenericDict mine = NewDict();
  mine.insert("rng", std::move(rng));
  mine.insert("data", state.data);
  internal::StringFile bytes;
  ABSL_RETURN_IF_ERROR(WriteTorchFile(IValue(mine), bytes));
  return bytes.contents();
}

// The names of the optimizer's parameters in the module; none if it trains something else as well.
std::vector<std::string> NamesIn(const torch::nn::Module& module, const torch::optim::Optimizer& optimizer) {
  absl::StatusOr<std::vector<std::string>> names = ParameterNames(optimizer, module);
  return names.ok() ? *std::move(names) : std::vector<std::string>();
}

absl::StatusOr<IValue> Bundle(const torch::nn::Module& module, const torch::optim::Optimizer& optimizer,
                              const TrainingState& state, const std::vector<std::string>& parts) {
  GenericList rng(c10::AnyType::get());
  GenericList data(c10::AnyType::get());
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    ABSL_ASSIGN_OR_RETURN(const StateFile part,
                          StateFile::FromBytes(parts[rank], absl::StrCat("the part of rank ", rank)));
    ABSL_ASSIGN_OR_RETURN(const IValue value, part.Read());
    ABSL_ASSIGN_OR_RETURN(const GenericDict dict, internal::AsDict(value, part.path()));
    ABSL_ASSIGN_OR_RETURN(IValue its_rng, internal::ValueAt(dict, "rng", part.path()));
    ABSL_ASSIGN_OR_RETURN(IValue its_data, internal::ValueAt(dict, "data", part.path()));
    rng.push_back(std::move(its_rng));
    data.push_back(std::move(its_data));
  }
  GenericDict model = NewDict();
  for (const auto& [name, tensor] : ModuleState(module)) model.insert(name, tensor);
  ABSL_ASSIGN_OR_RETURN(IValue its_optimizer,
                        OptimizerState(optimizer, NamesIn(module, optimizer), state.optimizer_extras));
  GenericDict bundle = NewDict();
  bundle.insert("version", kVersion);
  bundle.insert("model", std::move(model));
  bundle.insert("optimizer", std::move(its_optimizer));
  bundle.insert("lr_scheduler", state.lr_scheduler);
  bundle.insert("step", state.step);
  bundle.insert("epoch", state.epoch);
  bundle.insert("rng", std::move(rng));
  bundle.insert("data", std::move(data));
  return IValue(std::move(bundle));
}

// ---- Loading ----

absl::StatusOr<int64_t> CountAt(const StateFile& file, std::string_view key) {
  ABSL_ASSIGN_OR_RETURN(const StateFile part, file.At(key));
  ABSL_ASSIGN_OR_RETURN(const IValue value, part.Read());
  if (value.isInt() && value.toInt() >= 0) return value.toInt();
  return absl::InvalidArgumentError(absl::StrCat(
      Quoted(file.path()), ": ", Quoted(key), " is ",
      value.isInt() ? absl::StrCat(value.toInt()) : internal::TypeName(value), "; it must be an int of at least 0"));
}

// A missing key is None.
absl::StatusOr<IValue> OptionalAt(const StateFile& file, std::string_view key) {
  const absl::StatusOr<StateFile> part = file.At(key);
  if (absl::IsNotFound(part.status())) return IValue();
  ABSL_RETURN_IF_ERROR(part.status());
  return part->Read();
}

// The entries of a list with one for each rank that has saved.
absl::StatusOr<std::vector<IValue>> EntriesAt(const StateFile& file, std::string_view key) {
  ABSL_ASSIGN_OR_RETURN(const StateFile part, file.At(key));
  ABSL_ASSIGN_OR_RETURN(const IValue value, part.Read());
  if (!value.isList() || value.toListRef().empty()) {
    return absl::InvalidArgumentError(absl::StrCat(Quoted(file.path()), ": ", Quoted(key), " is ",
                                                   value.isList() ? "empty" : internal::TypeName(value),
                                                   "; it must be a list with one entry a rank"));
  }
  return value.toListRef().vec();
}

// This rank's loading; see the beginning of this file.
class Loader {
 public:
  Loader(const ProcessGroup& group, torch::nn::Module& module, torch::optim::Optimizer& optimizer,
         const TrainingStateOptions& options)
      : group_(group), module_(module), optimizer_(optimizer), options_(options) {}

  // Step 2. After an error everything is as it was.
  absl::Status Prepare(const std::string& path) {
    const absl::Status prepared = TryToPrepare(path);
    if (!prepared.ok()) PutBack();
    return prepared;
  }

  // Step 3, if another rank has failed.
  void PutBack() {
    // What was there a moment ago fits.
    if (optimizer_before_.has_value()) (void)LoadOptimizerState(optimizer_, *optimizer_before_);
    if (rng_before_.has_value()) (void)SetRngState(*rng_before_, options_.cuda_devices);
  }

  // Step 4.
  absl::Status ReadModel() {
    return model_->ReadInto(match_.targets, {.verify = false});  // verified in step 2
  }

  TrainingState state() && { return std::move(state_); }

 private:
  absl::Status TryToPrepare(const std::string& path) {
    ABSL_ASSIGN_OR_RETURN(const StateFile file, StateFile::Open(path));
    ABSL_ASSIGN_OR_RETURN(const IValue version, OptionalAt(file, "version"));
    if (!version.isNone() && !(version.isInt() && version.toInt() == kVersion)) {
      return absl::InvalidArgumentError(
          absl::StrCat(Quoted(path), ": its version is ",
                       version.isInt() ? absl::StrCat(version.toInt()) : internal::TypeName(version),
                       "; this cohort reads version ", kVersion));
    }
    ABSL_ASSIGN_OR_RETURN(state_.step, CountAt(file, "step"));
    ABSL_ASSIGN_OR_RETURN(state_.epoch, CountAt(file, "epoch"));
    ABSL_ASSIGN_OR_RETURN(state_.lr_scheduler, OptionalAt(file, "lr_scheduler"));
    ABSL_ASSIGN_OR_RETURN(const IValue rng, ReadMyPart(file));
    if (options_.accept) {
      ABSL_RETURN_IF_ERROR(In(path, options_.accept(state_)));
    }

    ABSL_ASSIGN_OR_RETURN(model_, file.At("model"));
    ABSL_ASSIGN_OR_RETURN(match_, MatchModuleState(module_, *model_));
    ABSL_RETURN_IF_ERROR(model_->Verify());

    ABSL_ASSIGN_OR_RETURN(const StateFile optimizer_part, file.At("optimizer"));
    ABSL_ASSIGN_OR_RETURN(const IValue optimizer, optimizer_part.Read());
    ABSL_ASSIGN_OR_RETURN(optimizer_before_, OptimizerState(optimizer_));
    ABSL_ASSIGN_OR_RETURN(state_.optimizer_extras,
                          In(path, LoadOptimizerState(optimizer_, optimizer, NamesIn(module_, optimizer_))));
    ABSL_ASSIGN_OR_RETURN(rng_before_, RngState(options_.cuda_devices));
    return In(path, SetRngState(rng, options_.cuda_devices));
  }

  // What ranks have one by one: this rank's place in the data; returns its random numbers.
  absl::StatusOr<IValue> ReadMyPart(const StateFile& file) {
    ABSL_ASSIGN_OR_RETURN(const std::vector<IValue> data, EntriesAt(file, "data"));
    ABSL_ASSIGN_OR_RETURN(const std::vector<IValue> rng, EntriesAt(file, "rng"));
    if (data.size() != rng.size()) {
      return absl::InvalidArgumentError(absl::StrCat(Quoted(file.path()), ": \"data\" has entries of ", data.size(),
                                                     " ranks, and \"rng\" of ", rng.size()));
    }
    state_.saved_world_size = static_cast<int>(data.size());
    if (state_.saved_world_size == group_.world_size()) {
      state_.data = data[group_.rank()];
      return rng[group_.rank()];
    }
    if (!options_.allow_other_world_size) {
      return absl::InvalidArgumentError(absl::StrCat(Quoted(file.path()), ": \"data\" has entries of ", data.size(),
                                                     " ranks, and this job has ", group_.world_size(),
                                                     "; it may go on only with as many ranks as it was saved by"));
    }
    state_.data = data[0];
    return In(file.path(),
              DeriveRngState(rng, group_.rank(), group_.world_size(), static_cast<int>(options_.cuda_devices.size())));
  }

  static absl::Status In(std::string_view path, const absl::Status& status) {
    return status.ok() ? status : absl::Status(status.code(), absl::StrCat(Quoted(path), ": ", status.message()));
  }
  template <typename T>
  static absl::StatusOr<T> In(std::string_view path, absl::StatusOr<T> value) {
    if (!value.ok()) return In(path, value.status());
    return value;
  }

  const ProcessGroup& group_;
  torch::nn::Module& module_;
  torch::optim::Optimizer& optimizer_;
  const TrainingStateOptions& options_;
  TrainingState state_;
  std::optional<StateFile> model_;
  ModuleMatch match_;
  std::optional<IValue> optimizer_before_;
  std::optional<IValue> rng_before_;
};

// If another number of ranks goes on than saved.
void Warn(const ProcessGroup& group, std::string_view path, int saved_world_size, const TrainingStateOptions& options) {
  if (!group.is_main() || saved_world_size == group.world_size()) return;
  const auto ranks = [](int count) { return absl::StrCat(count, count == 1 ? " rank" : " ranks"); };
  const std::string warning = absl::StrCat(Quoted(path), ": saved by ", ranks(saved_world_size), ", and ",
                                           ranks(group.world_size()), group.world_size() == 1 ? " goes" : " go",
                                           " on: model, optimizer and schedule are as they were saved; every rank "
                                           "begins a random stream of its own, and has the main rank's place in the "
                                           "data. What follows is not bit for bit what it would have been");
  if (options.on_warning) {
    options.on_warning(warning);
  } else {
    ABSL_LOG(WARNING) << warning;
  }
}

// The part of a path that goes into the name of an operation.
std::string_view Named(std::string_view path) { return path.substr(0, 4096); }

}  // namespace

absl::StatusOr<std::function<absl::Status(WritableFile& file)>> GatherTrainingState(
    ProcessGroup& group, std::string_view name, const torch::nn::Module& module,
    const torch::optim::Optimizer& optimizer, const TrainingState& state, const TrainingStateOptions& options,
    const absl::Status& ready) {
  ABSL_ASSIGN_OR_RETURN(
      std::vector<std::string> parts,
      group.GatherBytes(absl::StrCat("parts of ", Named(name)), MyPart(state, options, ready), kMaxRankBytes));
  if (!group.is_main()) {
    return [](WritableFile&) { return absl::FailedPreconditionError("the main rank has the parts of all ranks"); };
  }
  return [&module, &optimizer, state, parts = std::move(parts),
          format = options.format](WritableFile& file) -> absl::Status {
    ABSL_ASSIGN_OR_RETURN(const IValue bundle, InvokeTorch([&] { return Bundle(module, optimizer, state, parts); }));
    return format == StateFormat::kTorch ? WriteTorchFile(bundle, file) : WriteSafetensorsFile(bundle, {}, file);
  };
}

absl::StatusOr<SaveReport> SaveTrainingState(ProcessGroup& group, MainOnlySaver& saver, std::string_view path,
                                             const torch::nn::Module& module, const torch::optim::Optimizer& optimizer,
                                             const TrainingState& state, const TrainingStateOptions& options,
                                             const absl::Status& ready) {
  ABSL_ASSIGN_OR_RETURN(const auto write, GatherTrainingState(group, path, module, optimizer, state, options, ready));
  return saver.Save(path, write);
}

absl::StatusOr<TrainingState> LoadTrainingState(ProcessGroup& group, std::string_view path, torch::nn::Module& module,
                                                torch::optim::Optimizer& optimizer,
                                                const TrainingStateOptions& options) {
  ABSL_ASSIGN_OR_RETURN(const std::string absolute,
                        group.BroadcastBytes(absl::StrCat("load ", Named(path)),
                                             group.is_main() ? AbsolutePath(path) : absl::StatusOr<std::string>("")));
  Loader loader(group, module, optimizer, options);
  const absl::Status prepared = loader.Prepare(absolute);
  if (const absl::Status all = group.Agree(absl::StrCat("prepared ", Named(path)), prepared); !all.ok()) {
    if (prepared.ok()) loader.PutBack();
    return all;
  }
  ABSL_RETURN_IF_ERROR(group.Agree(absl::StrCat("loaded ", Named(path)), loader.ReadModel()));
  TrainingState state = std::move(loader).state();
  Warn(group, absolute, state.saved_world_size, options);
  return state;
}

}  // namespace cohort
