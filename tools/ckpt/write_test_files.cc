// Writes the files that ckpt_test.sh looks at into the directory that is its one argument.

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ATen/Functions.h"
#include "ATen/core/ivalue.h"
#include "absl/log/absl_check.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/strings/str_cat.h"
#include "cohort/checkpoint/main_only_saver.h"
#include "cohort/checkpoint/safetensors_file.h"
#include "cohort/checkpoint/torch_file.h"
#include "cohort/checkpoint/writable_file.h"
#include "cohort/runtime/process_group.h"

namespace {

using c10::IValue;

IValue Dict(const std::vector<std::pair<IValue, IValue>>& items) {
  c10::impl::GenericDict dict(c10::AnyType::get(), c10::AnyType::get());
  for (const auto& [key, value] : items) dict.insert(key, value);
  return dict;
}

IValue List(const std::vector<IValue>& items) {
  c10::impl::GenericList list(c10::AnyType::get());
  for (const IValue& item : items) list.push_back(item);
  return list;
}

IValue Tuple(std::vector<IValue> items) { return c10::ivalue::Tuple::create(std::move(items)); }

// A run's state, as SaveTrainingState lays it out.
IValue Run(double lr, int64_t step, const at::Tensor& weight, const at::Tensor& bias) {
  const IValue group = Dict({{"lr", lr},
                             {"betas", Tuple({0.9, 0.999})},
                             {"amsgrad", false},
                             {"maximize", IValue()},
                             {"params", List({0, 1})}});
  return Dict({{"version", 1},
               {"model", Dict({{"weight", weight}, {"bias", bias}})},
               {"optimizer",
                Dict({{"state", Dict({{0, Dict({{"step", at::tensor(3.0f)}})}})}, {"param_groups", List({group})}})},
               {"step", step},
               {"epoch", 2},
               {"note", "two\nlines"}});
}

at::Tensor Weight() { return at::arange(6, at::kFloat).reshape({2, 3}); }

IValue Hostile() {
  return Dict({{"\x1b[31mred", at::zeros({2}, at::kLong)},
               {"a b", at::zeros({0, 4})},
               {"turn\xE2\x80\xAEme", "\x07\xC2\x9B\"\\"},
               {"", 1},
               {"ok\nfile.pt: ok", std::numeric_limits<double>::infinity()}});
}

// Every kind of dtype; the second has other values in some places.
IValue Dtypes(bool is_second) {
  const float nan = std::nanf("");
  at::Tensor floats = at::tensor({1.0f, nan, 3.0f, 0.0f});
  at::Tensor longs = at::tensor({int64_t{1}, std::numeric_limits<int64_t>::min(), int64_t{3}}, at::kLong);
  at::Tensor bytes = at::arange(4, at::kByte);
  at::Tensor halves = at::tensor({1.0f, 2.0f}).to(at::kHalf);
  at::Tensor complex = at::zeros({2}, at::kComplexFloat);
  at::Tensor large = at::zeros({1 << 19}, at::kFloat).view({2, 1 << 18}).t();
  if (is_second) {
    floats[2] = 3.5f;
    floats[3] = -0.0f;
    longs[1] = std::numeric_limits<int64_t>::max();
    bytes[3] = 255;
    halves[0] = nan;
    at::view_as_real(complex)[1].copy_(at::tensor({3.0f, 4.0f}));
    large[(1 << 18) - 1][1] = -2.0f;
  }
  return Dict({{"bools", at::tensor({1, 0}).to(at::kBool)},
               {"bytes", bytes},
               {"complex", complex},
               {"floats", floats},
               {"halves", halves},
               {"large", large},
               {"longs", longs},
               {"unsigned", longs.view(at::kUInt64)}});
}

// The same joined name twice: .pt holds it, safetensors does not.
IValue TwoOfOneName() { return Dict({{"a.b", at::zeros({1})}, {"a", Dict({{"b", at::ones({1})}})}}); }

// Of another writer: no checksums, and the tensor lies where the processor cannot load it from.
absl::Status WriteOthersFile(cohort::WritableFile& file) {
  using std::string_view_literals::operator""sv;
  const std::string_view header = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  ABSL_RETURN_IF_ERROR(file.Append(std::string(1, static_cast<char>(header.size()))));
  ABSL_RETURN_IF_ERROR(file.Append("\0\0\0\0\0\0\0"sv));
  ABSL_RETURN_IF_ERROR(file.Append(header));
  return file.Append("\0\0\x80\x3f\0\0\0\x40"sv);
}

class Writer {
 public:
  explicit Writer(std::string directory) : directory_(std::move(directory)) {}

  void Torch(std::string_view name, const IValue& state) {
    Write(name, [&](cohort::WritableFile& file) { return cohort::WriteTorchFile(state, file); });
  }

  void Safetensors(std::string_view name, const IValue& state,
                   const std::vector<std::pair<std::string, std::string>>& metadata = {}) {
    Write(name, [&](cohort::WritableFile& file) { return cohort::WriteSafetensorsFile(state, metadata, file); });
  }

  void Write(std::string_view name, const std::function<absl::Status(cohort::WritableFile&)>& write) {
    const auto group = cohort::ProcessGroup::WorldOfOne();
    const auto report = cohort::MainOnlySaver(group.get()).Save(absl::StrCat(directory_, "/", name), write);
    ABSL_CHECK_OK(report.status());
  }

 private:
  const std::string directory_;
};

}  // namespace

int main(int argc, char** argv) {
  ABSL_CHECK_EQ(argc, 2);
  Writer writer(argv[1]);
  const at::Tensor bias = at::tensor({0.5, -0.5}, at::kDouble);
  const IValue run = Run(0.1, 1200, Weight(), bias);
  writer.Torch("runs/run.pt", run);
  writer.Safetensors("runs/run.safetensors", run, {{"author", "\x1b[2Jme"}});
  writer.Torch("other.pth", Run(0.01, 1200, at::add(Weight(), at::ones({2, 3}), 0.25), at::zeros({3}, at::kDouble)));
  writer.Torch("hostile.pt", Hostile());
  writer.Torch("dtypes1.pt", Dtypes(false));
  writer.Safetensors("dtypes1.safetensors", Dtypes(false));
  writer.Torch("dtypes2.pt", Dtypes(true));
  writer.Torch("twice.pt", TwoOfOneName());
  writer.Torch("expanded.pt", Dict({{"x", at::zeros({1}).expand({int64_t{1} << 50})}}));
  writer.Torch("list.pt", List({at::zeros({1}), 1}));
  writer.Torch("tuple.pt", Tuple({at::zeros({1}), 1}));
  writer.Torch("scalar.pt", IValue(7));
  writer.Write("others.safetensors", WriteOthersFile);
  writer.Torch("large.pt", Dict({{"x", at::zeros({1 << 24})}}));
  return 0;
}
