#include "cohort/checkpoint/rng_state.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ATen/CPUGeneratorImpl.h"
#include "ATen/Context.h"
#include "ATen/core/Generator.h"
#include "absl/status/status_macros.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "cohort/checkpoint/internal/quoted.h"
#include "cohort/checkpoint/internal/value_fields.h"
#include "cohort/runtime/torch_status.h"

namespace cohort {
namespace {

using ::cohort::internal::TypeName;

// The bytes of a CPU generator's state, as LibTorch has written them since 1.8. A Mersenne Twister has 32-bit words; 64
// bits hold each.
struct CpuBytes {
  uint64_t seed;
  int32_t left;
  int32_t seeded;
  uint64_t next;
  uint64_t words[624];
  double next_double[3];
  int32_t has_next_double;
  float next_float;
  uint8_t has_next_float;
};
constexpr int64_t kCpuBytes = 5056;
static_assert(offsetof(CpuBytes, next_double) == 24 + 624 * 8);

// LibTorch's struct ends the older one, with its padding, before it goes on.
constexpr int64_t kNextFloatAt = 5048;

// The bytes of a CUDA generator's state: its seed and its offset.
constexpr int64_t kCudaBytes = 16;

absl::Status CheckTensor(const c10::IValue& value, int64_t num_bytes, std::string_view what) {
  if (!value.isTensor() || !value.toTensor().defined()) {
    return absl::InvalidArgumentError(absl::StrCat(what, " is ", TypeName(value), ", not a tensor"));
  }
  const at::Tensor& tensor = value.toTensor();
  if (tensor.layout() != at::kStrided || tensor.is_meta() || tensor.scalar_type() != at::kByte || tensor.dim() != 1 ||
      tensor.numel() != num_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(what, " is ", c10::toString(tensor.scalar_type()), " [",
                                                   absl::StrJoin(tensor.sizes(), ", "), "], not Byte [", num_bytes,
                                                   "]"));
  }
  return absl::OkStatus();
}

// A generator that had such a state would read outside of its words, or hand out others than Python's.
absl::Status CheckCpuBytes(const uint8_t* bytes) {
  CpuBytes state;
  std::memcpy(&state, bytes, offsetof(CpuBytes, next_float));
  const auto refuse = [](std::string_view field, auto value) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"cpu\" of the random state is not a generator's: ", field, " is ", value));
  };
  if (state.seeded != 1) return refuse("seeded", state.seeded);
  if (state.left < 1 || state.left > 624) return refuse("left", state.left);
  if (state.next > 624) return refuse("next", state.next);
  for (const uint64_t word : state.words) {
    if (word > UINT32_MAX) return refuse("a word", word);
  }
  if (state.has_next_double < 0 || state.has_next_double > 1) return refuse("normal_is_valid", state.has_next_double);
  const int has_next_float = bytes[kNextFloatAt + sizeof(float)];
  if (has_next_float > 1) return refuse("is_next_float_normal_sample_valid", has_next_float);
  return absl::OkStatus();
}

// LibTorch's counts in fours.
absl::Status CheckCudaBytes(const uint8_t* bytes, std::string_view what) {
  int64_t offset;
  std::memcpy(&offset, bytes + 8, sizeof(offset));
  if (offset >= 0 && offset % 4 == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, " is not a generator's: its offset is ", offset));
}

// Contiguous, on the CPU, and nobody else's: set_state looks at memory alone.
at::Tensor CopyOf(const at::Tensor& tensor) { return tensor.detach().cpu().contiguous().clone(); }

absl::StatusOr<std::vector<at::Generator>> CudaGenerators(absl::Span<const int> devices) {
  std::vector<at::Generator> generators;
  if (devices.empty()) return generators;
  // Counting makes no context.
  const int count = at::globalContext().hasCUDA() ? at::detail::getCUDAHooks().getNumGPUs() : 0;
  for (const int device : devices) {
    if (device < 0 || device >= count) {
      return absl::InvalidArgumentError(
          absl::StrCat("CUDA device ", device, " of the random state is not there; there are ", count));
    }
    generators.push_back(
        at::globalContext().defaultGenerator(at::Device(at::kCUDA, static_cast<at::DeviceIndex>(device))));
  }
  return generators;
}

at::Tensor StateOf(at::Generator generator) {
  const std::scoped_lock lock(generator.mutex());
  return generator.get_state();
}

void SetState(at::Generator generator, const at::Tensor& state) {
  const std::scoped_lock lock(generator.mutex());
  generator.set_state(state);
}

absl::StatusOr<c10::IValue> Read(absl::Span<const int> cuda_devices) {
  ABSL_ASSIGN_OR_RETURN(const std::vector<at::Generator> generators, CudaGenerators(cuda_devices));
  c10::impl::GenericDict state = internal::NewDict();
  state.insert("cpu", StateOf(at::detail::getDefaultCPUGenerator()));
  if (generators.empty()) return c10::IValue(std::move(state));
  c10::impl::GenericList cuda(c10::AnyType::get());
  for (const at::Generator& generator : generators) cuda.push_back(StateOf(generator));
  state.insert("cuda", std::move(cuda));
  return c10::IValue(std::move(state));
}

absl::StatusOr<std::vector<at::Tensor>> CudaStates(const c10::IValue& value) {
  if (!value.isList()) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"cuda\" of the random state is ", TypeName(value), ", not a list"));
  }
  std::vector<at::Tensor> states;
  for (const c10::IValue& item : value.toListRef()) {
    const std::string what = absl::StrCat("item ", states.size(), " of \"cuda\" of the random state");
    ABSL_RETURN_IF_ERROR(CheckTensor(item, kCudaBytes, what));
    states.push_back(CopyOf(item.toTensor()));
    ABSL_RETURN_IF_ERROR(CheckCudaBytes(states.back().const_data_ptr<uint8_t>(), what));
  }
  return states;
}

absl::Status Set(const c10::IValue& value, absl::Span<const int> cuda_devices) {
  ABSL_ASSIGN_OR_RETURN(const c10::impl::GenericDict state, internal::AsDict(value, "the random state"));
  for (const auto& entry : state) {
    if (entry.key() == "cpu" || entry.key() == "cuda") continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the random state has ",
                     entry.key().isString() ? internal::Quoted(entry.key().toStringRef()) : TypeName(entry.key()),
                     " beside \"cpu\" and \"cuda\""));
  }
  ABSL_ASSIGN_OR_RETURN(const c10::IValue cpu_value, internal::ValueAt(state, "cpu", "the random state"));
  ABSL_RETURN_IF_ERROR(CheckTensor(cpu_value, kCpuBytes, "\"cpu\" of the random state"));
  const at::Tensor cpu = CopyOf(cpu_value.toTensor());
  ABSL_RETURN_IF_ERROR(CheckCpuBytes(cpu.const_data_ptr<uint8_t>()));
  // Whatever else LibTorch may have against it comes up with a generator that nobody uses.
  SetState(at::detail::createCPUGenerator(), cpu);

  std::vector<at::Tensor> cuda;
  if (state.contains("cuda")) {
    ABSL_ASSIGN_OR_RETURN(cuda, CudaStates(state.at("cuda")));
  }
  if (!cuda_devices.empty() && cuda.size() != cuda_devices.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the random state has ", cuda.size(), " CUDA states for ", cuda_devices.size(), " devices"));
  }
  ABSL_ASSIGN_OR_RETURN(const std::vector<at::Generator> generators, CudaGenerators(cuda_devices));
  for (size_t i = 0; i < generators.size(); ++i) SetState(generators[i], cuda[i]);
  SetState(at::detail::getDefaultCPUGenerator(), cpu);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<c10::IValue> RngState(absl::Span<const int> cuda_devices) {
  ABSL_ASSIGN_OR_RETURN(absl::StatusOr<c10::IValue> state,
                        InvokeTorch(absl::InfiniteFuture(), [&] { return Read(cuda_devices); }));
  return state;
}

absl::Status SetRngState(const c10::IValue& state, absl::Span<const int> cuda_devices) {
  ABSL_ASSIGN_OR_RETURN(const absl::Status set,
                        InvokeTorch(absl::InfiniteFuture(), [&] { return Set(state, cuda_devices); }));
  return set;
}

}  // namespace cohort
