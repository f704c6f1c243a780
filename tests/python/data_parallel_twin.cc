// A rank of a job of data_parallel_test.py, with our DistributedDataParallel. What data_parallel_twin.py does, line for line.
//
// usage: data_parallel_twin GROUP CASES OUT        (with torchrun's environment)
//
// GROUP is "cohort", a ProcessGroup; or "c10d", LibTorch's own as Python's init_process_group makes it, so that ranks of both
// languages meet.

#include <chrono>
#include <cstdint>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "ATen/ATen.h"
#include "ATen/core/ivalue.h"
#include "absl/log/absl_check.h"
#include "absl/status/status.h"
#include "cohort/checkpoint/state_file.h"
#include "cohort/checkpoint/torch_file.h"
#include "cohort/checkpoint/writable_file.h"
#include "cohort/runtime/distributed_data_parallel.h"
#include "cohort/runtime/init_process_group.h"
#include "cohort/runtime/rank_info.h"
#include "torch/csrc/distributed/c10d/PrefixStore.hpp"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"
#include "torch/csrc/distributed/c10d/ProcessGroupGloo.hpp"
#include "torch/csrc/distributed/c10d/TCPStore.hpp"
#include "torch/nn/functional/loss.h"
#include "torch/nn/modules/activation.h"
#include "torch/nn/modules/batchnorm.h"
#include "torch/nn/modules/container/sequential.h"
#include "torch/nn/modules/embedding.h"
#include "torch/nn/modules/linear.h"
#include "torch/optim/adam.h"
#include "torch/optim/sgd.h"

namespace cohort {
namespace {

using ::c10::impl::GenericDict;
using ::c10::impl::GenericList;
namespace nn = torch::nn;

using TorchGroup = c10::intrusive_ptr<c10d::ProcessGroup>;
using Group = std::variant<ProcessGroup*, TorchGroup>;

// ---- The models ----

struct Branches : nn::Module {
  at::Tensor forward(const at::Tensor& x, int64_t which) {
    const at::Tensor h = at::tanh(trunk(x));
    return which == 0 ? left(h) : which == 1 ? right(h) : left(h) + right(h);
  }
  nn::Linear trunk = register_module("trunk", nn::Linear(24, 16));
  nn::Linear left = register_module("left", nn::Linear(16, 3));
  nn::Linear right = register_module("right", nn::Linear(16, 3));
  nn::Linear never = register_module("never", nn::Linear(16, 3));
};

struct Heads : nn::Module {
  std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& x) {
    const at::Tensor h = at::tanh(trunk(x));
    const at::Tensor a = first(h), b = second(h);
    return {a, b};
  }
  nn::Linear trunk = register_module("trunk", nn::Linear(24, 16));
  nn::Linear first = register_module("first", nn::Linear(16, 3));
  nn::Linear second = register_module("second", nn::Linear(16, 3));
};

struct Lookup : nn::Module {
  at::Tensor forward(const at::Tensor& rows) { return last(table(rows).mean(1)); }
  nn::Embedding table = register_module("table", nn::Embedding(nn::EmbeddingOptions(50, 8).sparse(true)));
  nn::Linear last = register_module("last", nn::Linear(8, 3));
};

struct TwoTypes : nn::Module {
  TwoTypes() { last->to(at::kDouble); }
  at::Tensor forward(const at::Tensor& x) { return last(at::tanh(first(x)).to(at::kDouble)); }
  nn::Linear first = register_module("first", nn::Linear(24, 16));
  nn::Linear last = register_module("last", nn::Linear(16, 3));
};

// ---- A case ----

struct Case {
  DistributedDataParallelOptions options;
  std::string optimizer;
  bool set_to_none = true;
  GenericDict weights;
  int64_t num_rows = 0;
  at::Tensor x, y, which;  // this rank's, by step and micro-batch
};

GenericDict NewDict() { return GenericDict(c10::AnyType::get(), c10::AnyType::get()); }
GenericList NewList() { return GenericList(c10::AnyType::get()); }

DistributedDataParallelOptions ReadOptionsOf(const GenericDict& dict) {
  DistributedDataParallelOptions options;
  if (dict.contains("bucket_bytes")) {
    // In Python the first bucket differs from the others only by default.
    options.bucket_bytes = options.first_bucket_bytes = dict.at("bucket_bytes").toInt();
  }
  for (const auto& [name, option] :
       {std::pair("forward_sync_buffers", &options.broadcast_buffers),
        std::pair("find_unused_parameters", &options.find_unused_parameters),
        std::pair("gradient_as_bucket_view", &options.gradient_as_bucket_view),
        std::pair("static_graph", &options.static_graph), std::pair("rebuild_buckets", &options.rebuild_buckets)}) {
    if (dict.contains(name)) *option = dict.at(name).toBool();
  }
  if (dict.contains("compression")) {
    const std::string compression = dict.at("compression").toStringRef();
    ABSL_CHECK(compression == "half" || compression == "bfloat16") << compression;
    options.compression = compression == "half" ? GradientCompression::kHalf : GradientCompression::kBFloat16;
  }
  return options;
}

c10::IValue Saved(const at::Tensor& gradient) {
  if (!gradient.defined()) return c10::IValue();
  if (!gradient.is_sparse()) return gradient.detach().clone();
  const at::Tensor sum = gradient.coalesce();
  GenericDict parts = NewDict();
  parts.insert("indices", sum.indices().clone());
  parts.insert("values", sum.values().clone());
  return parts;
}

GenericDict StateOf(const nn::Module& module) {
  GenericDict state = NewDict();
  const auto parameters = module.named_parameters();
  for (const auto& parameter : parameters) state.insert(parameter.key(), parameter.value().detach());
  const auto buffers = module.named_buffers();
  for (const auto& buffer : buffers) state.insert(buffer.key(), buffer.value());
  return state;
}

void LoadWeights(const GenericDict& weights, const nn::Module& module) {
  const at::NoGradGuard no_grad;
  const GenericDict state = StateOf(module);
  ABSL_CHECK_EQ(state.size(), weights.size());
  for (const auto& entry : state) entry.value().toTensor().copy_(weights.at(entry.key()).toTensor());
}

std::unique_ptr<torch::optim::Optimizer> MakeOptimizer(const Case& now, const nn::Module& module) {
  if (now.optimizer == "sgd") {
    return std::make_unique<torch::optim::SGD>(module.parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  }
  ABSL_CHECK_EQ(now.optimizer, "adam");
  return std::make_unique<torch::optim::Adam>(module.parameters(), torch::optim::AdamOptions(0.01));
}

// As Python's Optimizer.zero_grad. LibTorch's calls detach_() if gradients are to be kept, which views do not allow.
void ZeroGradients(const nn::Module& module, bool set_to_none) {
  for (const at::Tensor& parameter : module.parameters()) {
    at::Tensor& gradient = parameter.mutable_grad();
    if (set_to_none) {
      gradient.reset();
    } else if (gradient.defined()) {
      gradient.zero_();
    }
  }
}

// `loss_of(ddp, x, y, which)` calls ddp.Forward.
template <typename Module, typename LossOf>
GenericDict Train(const Case& now, const Group& group, bool is_main, std::shared_ptr<Module> module, LossOf loss_of) {
  if (is_main) LoadWeights(now.weights, *module);
  const auto create = [&](const auto& its) {
    return DistributedDataParallel<Module>::Create(its, module, now.options).value();
  };
  const auto ddp = std::visit(create, group);
  const auto optimizer = MakeOptimizer(now, *module);
  GenericList gradients = NewList(), losses = NewList();
  for (int64_t step = 0; step < now.x.size(0); ++step) {
    ZeroGradients(*module, now.set_to_none);
    for (int64_t micro = 0; micro < now.x.size(1); ++micro) {
      const auto no_sync = ddp->NoSync(micro + 1 < now.x.size(1));
      const at::Tensor loss =
          loss_of(*ddp, now.x[step][micro].narrow(0, 0, now.num_rows), now.y[step][micro].narrow(0, 0, now.num_rows),
                  now.which[step][micro].template item<int64_t>());
      ABSL_CHECK_OK(ddp->Backward(loss));
      losses.push_back(loss.template item<double>());
    }
    GenericList of_step = NewList();
    for (const at::Tensor& parameter : module->parameters()) of_step.push_back(Saved(parameter.grad()));
    gradients.push_back(of_step);
    optimizer->step();
  }
  GenericDict result = NewDict();
  result.insert("gradients", gradients);
  result.insert("losses", losses);
  result.insert("state", StateOf(*module));
  return result;
}

GenericDict TrainModel(std::string_view model, const Case& now, const Group& group, bool is_main) {
  const auto plain = [](auto& ddp, const at::Tensor& x, const at::Tensor& y, int64_t) {
    return at::mse_loss(ddp.Forward(x).value(), y);
  };
  if (model == "mlp") {
    nn::Sequential mlp(nn::Linear(24, 40), nn::Tanh(), nn::Linear(40, 56), nn::ReLU(), nn::Linear(56, 3));
    return Train(now, group, is_main, mlp.ptr(), plain);
  }
  if (model == "norm") {
    nn::Sequential norm(nn::Linear(24, 32), nn::BatchNorm1d(32), nn::ReLU(), nn::Linear(32, 3));
    return Train(now, group, is_main, norm.ptr(), plain);
  }
  if (model == "lookup") return Train(now, group, is_main, std::make_shared<Lookup>(), plain);
  if (model == "two types") return Train(now, group, is_main, std::make_shared<TwoTypes>(), plain);
  if (model == "branches") {
    return Train(now, group, is_main, std::make_shared<Branches>(),
                 [](auto& ddp, const at::Tensor& x, const at::Tensor& y, int64_t which) {
                   return at::mse_loss(ddp.Forward(x, which).value(), y);
                 });
  }
  ABSL_CHECK_EQ(model, "heads");
  return Train(now, group, is_main, std::make_shared<Heads>(),
               [](auto& ddp, const at::Tensor& x, const at::Tensor& y, int64_t which) {
                 const auto [first, second] = ddp.Forward(x).value();
                 return at::mse_loss(which == 0 ? first : which == 1 ? second : first + second, y);
               });
}

// ---- The job ----

// What Python's init_process_group("gloo") makes under torchrun, with the same keys in the store.
TorchGroup JoinPythonsGroup(const RankInfo& info) {
  c10d::TCPStoreOptions options;
  options.port = info.master_port;
  options.waitWorkers = false;
  const auto tcp = c10::make_intrusive<c10d::TCPStore>(info.master_addr, options);
  const auto store =
      c10::make_intrusive<c10d::PrefixStore>("0/", c10::make_intrusive<c10d::PrefixStore>("default_pg", tcp));
  const auto gloo_options = c10d::ProcessGroupGloo::Options::create();
  gloo_options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  const auto gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(c10::make_intrusive<c10d::PrefixStore>("cpu/", store),
                                                                info.rank, info.world_size, gloo_options);
  const auto group = c10::make_intrusive<c10d::ProcessGroup>(store, info.rank, info.world_size);
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
  group->setBackend(c10::kCPU, c10d::ProcessGroup::BackendType::GLOO, gloo);
  return group;
}

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

void RunCases(const Group& group, int rank, const std::string& cases, const std::string& out) {
  GenericDict results = NewDict();
  const GenericDict all = StateFile::Open(cases)->Read()->toGenericDict();
  for (const auto& entry : all) {
    const GenericDict dict = entry.value().toGenericDict();
    const auto mine = [&](const char* name) { return dict.at(name).toTensor().select(1, rank); };
    const Case now = {.options = ReadOptionsOf(dict.at("options").toGenericDict()),
                      .optimizer = dict.at("optimizer").toStringRef(),
                      .set_to_none = dict.at("set_to_none").toBool(),
                      .weights = dict.at("weights").toGenericDict(),
                      .num_rows = dict.at("rows").toListRef()[rank].toInt(),
                      .x = mine("x"),
                      .y = mine("y"),
                      .which = mine("which")};
    torch::manual_seed(1000 + rank);
    results.insert(entry.key(), TrainModel(dict.at("model").toStringRef(), now, group, rank == 0));
  }
  StreamFile file(out);
  ABSL_CHECK_OK(WriteTorchFile(c10::IValue(results), file));
}

}  // namespace
}  // namespace cohort

int main(int argc, char** argv) {
  ABSL_CHECK(argc == 4) << "usage: data_parallel_twin GROUP CASES OUT";
  const cohort::RankInfo info = cohort::RankInfoFromEnvironment().value();
  if (std::string_view(argv[1]) == "c10d") {
    cohort::RunCases(cohort::JoinPythonsGroup(info), info.rank, argv[2], argv[3]);
    return 0;
  }
  const auto group = cohort::InitProcessGroup({.backend = "gloo"}).value();
  cohort::RunCases(group.get(), info.rank, argv[2], argv[3]);
  ABSL_CHECK_OK(group->Shutdown());
  return 0;
}
