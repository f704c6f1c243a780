// Trains with LibTorch's optimizers and our schedules what optimizer_test.py trains with Python's.
//
// usage: optimizer_twin JOBS
//
// JOBS has one job a line, with tabs between: "train", "schedule" or "random", the class, the number of steps, the file to
// begin from and the file to write.
//
//   train       {"parameters": [...], "noise": [[...], ...], "optimizer": state_dict()}
//               -> {"parameters": [...], "optimizer": ...}. The gradient of a parameter p in a step is p / 4 + noise.
//   schedule    {"optimizer": state_dict(), "scheduler": state_dict(), "metrics": [...]}
//               -> {"scheduler": ..., "rates": [[one a group], ...]}
//   random      {"random": {"cpu": get_rng_state()}}
//               -> {"random": ..., "numbers": what was drawn}

#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ATen/core/ivalue.h"
#include "ATen/ops/rand.h"
#include "ATen/ops/randn.h"
#include "ATen/ops/randperm.h"
#include "ATen/ops/zeros.h"
#include "absl/log/absl_check.h"
#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "cohort/checkpoint/optimizer_state.h"
#include "cohort/checkpoint/rng_state.h"
#include "cohort/checkpoint/state_file.h"
#include "cohort/checkpoint/torch_file.h"
#include "cohort/checkpoint/writable_file.h"
#include "cohort/trainers/lr_scheduler.h"
#include "torch/optim/adagrad.h"
#include "torch/optim/adam.h"
#include "torch/optim/adamw.h"
#include "torch/optim/rmsprop.h"
#include "torch/optim/sgd.h"

namespace cohort {
namespace {

using ::c10::impl::GenericDict;
using ::c10::impl::GenericList;
namespace optim = torch::optim;

class StreamFile : public WritableFile {
 public:
  explicit StreamFile(const std::string& path) : stream_(path, std::ios::binary | std::ios::trunc) {}

  absl::Status Append(std::string_view bytes) override {
    stream_.write(bytes.data(), bytes.size());
    num_bytes_ += bytes.size();
    return stream_ ? absl::OkStatus() : absl::UnavailableError("write failed");
  }
  absl::Status Overwrite(int64_t offset, std::string_view bytes) override {
    stream_.seekp(offset);
    stream_.write(bytes.data(), bytes.size());
    stream_.seekp(0, std::ios::end);
    return stream_ ? absl::OkStatus() : absl::UnavailableError("write failed");
  }
  int64_t num_bytes() const override { return num_bytes_; }

 private:
  std::ofstream stream_;
  int64_t num_bytes_ = 0;
};

GenericDict Read(const std::string& path) { return StateFile::Open(path)->Read()->toGenericDict(); }

void Write(const std::string& path, const GenericDict& state) {
  StreamFile file(path);
  ABSL_CHECK_OK(WriteTorchFile(c10::IValue(state), file));
}

GenericDict NewDict() { return GenericDict(c10::AnyType::get(), c10::AnyType::get()); }

template <typename Values>
GenericList ListOf(const Values& values) {
  GenericList list(c10::AnyType::get());
  for (const auto& value : values) list.push_back(c10::IValue(value));
  return list;
}

// With options that are not those of the state: loading must bring them.
std::unique_ptr<optim::Optimizer> MakeOptimizer(std::string_view type,
                                                const std::vector<optim::OptimizerParamGroup>& groups) {
  if (type == "SGD") return std::make_unique<optim::SGD>(groups, optim::SGDOptions(7));
  if (type == "Adam") return std::make_unique<optim::Adam>(groups, optim::AdamOptions(7));
  if (type == "AdamW") return std::make_unique<optim::AdamW>(groups, optim::AdamWOptions(7));
  if (type == "RMSprop") return std::make_unique<optim::RMSprop>(groups, optim::RMSpropOptions(7));
  ABSL_CHECK(type == "Adagrad") << type;
  return std::make_unique<optim::Adagrad>(groups, optim::AdagradOptions(7));
}

struct Job {
  std::string type;
  int64_t steps;
  std::string from, to;
};

void Train(const Job& job) {
  const GenericDict begin = Read(job.from);
  const GenericDict state = begin.at("optimizer").toGenericDict();
  std::vector<at::Tensor> parameters;
  for (const c10::IValue& value : begin.at("parameters").toListRef()) {
    parameters.push_back(value.toTensor().detach().clone().requires_grad_(true));
  }
  std::vector<optim::OptimizerParamGroup> groups;
  std::vector<std::string> names;
  size_t next = 0;
  for (const c10::IValue& value : state.at("param_groups").toListRef()) {
    const GenericDict group = value.toGenericDict();
    const size_t end = next + group.at("params").toListRef().size();
    groups.push_back(
        optim::OptimizerParamGroup(std::vector<at::Tensor>(parameters.begin() + next, parameters.begin() + end)));
    next = end;
    if (!group.contains("param_names")) continue;
    for (const c10::IValue& name : group.at("param_names").toListRef()) names.push_back(name.toStringRef());
  }
  const auto optimizer = MakeOptimizer(job.type, groups);
  const auto extras = LoadOptimizerState(*optimizer, state, names);
  ABSL_CHECK_OK(extras.status());

  const auto noise = begin.at("noise").toListRef();
  for (int64_t n = 0; n < job.steps; ++n) {
    for (size_t i = 0; i < parameters.size(); ++i) {
      parameters[i].mutable_grad() = parameters[i].detach() / 4 + noise[n].toListRef()[i].toTensor();
    }
    optimizer->step();
  }
  for (at::Tensor& parameter : parameters) parameter = parameter.detach();
  GenericDict end = NewDict();
  end.insert("parameters", ListOf(parameters));
  end.insert("optimizer", OptimizerState(*optimizer, names, *extras).value());
  Write(job.to, end);
}

template <typename Scheduler, typename Options>
void Schedule(const Job& job, const Options& options) {
  const GenericDict begin = Read(job.from);
  std::vector<optim::OptimizerParamGroup> groups;
  for (const c10::IValue& group : begin.at("optimizer").toGenericDict().at("param_groups").toListRef()) {
    std::vector<at::Tensor> parameters(group.toGenericDict().at("params").toListRef().size());
    for (at::Tensor& parameter : parameters) parameter = at::zeros({1});
    groups.push_back(optim::OptimizerParamGroup(parameters));
  }
  optim::SGD optimizer(groups, optim::SGDOptions(7));
  const auto scheduler = Scheduler::Create(optimizer, options).value();
  ABSL_CHECK_OK(LoadOptimizerState(optimizer, begin.at("optimizer")).status());
  ABSL_CHECK_OK(scheduler->Load(begin.at("scheduler")));

  GenericList rates(c10::AnyType::get());
  for (int64_t n = 0; n < job.steps; ++n) {
    if constexpr (std::is_same_v<Scheduler, ReduceLROnPlateau>) {
      ABSL_CHECK_OK(scheduler->Step(begin.at("metrics").toListRef()[n].toDouble()));
    } else {
      ABSL_CHECK_OK(scheduler->Step());
    }
    rates.push_back(ListOf(scheduler->last_lr()));
  }
  GenericDict end = NewDict();
  end.insert("scheduler", scheduler->State());
  end.insert("rates", std::move(rates));
  Write(job.to, end);
}

void Draw(const Job& job) {
  ABSL_CHECK_OK(SetRngState(Read(job.from).at("random")));
  const int64_t n = job.steps;
  std::vector<at::Tensor> numbers;
  if (n > 0) numbers = {at::rand({n}), at::randn({n}), at::randn({5}, at::kDouble), at::randperm(n)};
  GenericDict end = NewDict();
  end.insert("random", RngState().value());
  end.insert("numbers", ListOf(numbers));
  Write(job.to, end);
}

void Run(std::string_view line) {
  const std::vector<std::string> words = absl::StrSplit(line, '\t');
  ABSL_CHECK(words.size() == 5) << line;
  Job job{.type = words[1], .from = words[3], .to = words[4]};
  ABSL_CHECK(absl::SimpleAtoi(words[2], &job.steps)) << line;
  if (words[0] == "train") return Train(job);
  if (words[0] == "random") return Draw(job);
  if (job.type == "StepLR") return Schedule<StepLR>(job, StepLROptions{.step_size = 1});
  if (job.type == "CosineAnnealingLR") return Schedule<CosineAnnealingLR>(job, CosineAnnealingLROptions{.T_max = 1});
  if (job.type == "LinearLR") return Schedule<LinearLR>(job, LinearLROptions{});
  ABSL_CHECK(job.type == "ReduceLROnPlateau") << line;
  Schedule<ReduceLROnPlateau>(job, ReduceLROnPlateauOptions{});
}

}  // namespace
}  // namespace cohort

int main(int argc, char** argv) {
  ABSL_CHECK(argc == 2) << "usage: optimizer_twin JOBS";
  std::ifstream jobs(argv[1]);
  for (std::string line; std::getline(jobs, line);) cohort::Run(line);
}
