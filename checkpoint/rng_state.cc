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
#include "ATen/ops/zeros.h"
#include "absl/status/status_macros.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
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

// Copies of what a state has, which generators can have.
struct States {
  at::Tensor cpu;
  std::vector<at::Tensor> cuda;
};

absl::StatusOr<States> Parse(const c10::IValue& value) {
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
  States parsed{.cpu = CopyOf(cpu_value.toTensor())};
  ABSL_RETURN_IF_ERROR(CheckCpuBytes(parsed.cpu.const_data_ptr<uint8_t>()));
  // Whatever else LibTorch may have against it comes up with a generator that nobody uses.
  SetState(at::detail::createCPUGenerator(), parsed.cpu);
  if (state.contains("cuda")) {
    ABSL_ASSIGN_OR_RETURN(parsed.cuda, CudaStates(state.at("cuda")));
  }
  return parsed;
}

absl::Status Set(const c10::IValue& value, absl::Span<const int> cuda_devices) {
  ABSL_ASSIGN_OR_RETURN(const States states, Parse(value));
  if (!cuda_devices.empty() && states.cuda.size() != cuda_devices.size()) {
    return absl::InvalidArgumentError(absl::StrCat("the random state has ", states.cuda.size(), " CUDA states for ",
                                                   cuda_devices.size(), " devices"));
  }
  ABSL_ASSIGN_OR_RETURN(const std::vector<at::Generator> generators, CudaGenerators(cuda_devices));
  for (size_t i = 0; i < generators.size(); ++i) SetState(generators[i], states.cuda[i]);
  SetState(at::detail::getDefaultCPUGenerator(), states.cpu);
  return absl::OkStatus();
}

// A hash of bytes and numbers that follow each other: FNV-1a, and the end of SplitMix64, because FNV's last bytes reach
// few bits.
class Hash {
 public:
  void Add(const at::Tensor& bytes) {
    const uint8_t* const data = bytes.const_data_ptr<uint8_t>();
    for (int64_t i = 0; i < bytes.numel(); ++i) AddByte(data[i]);
  }
  void Add(uint64_t number) {
    for (int shift = 0; shift < 64; shift += 8) AddByte(static_cast<uint8_t>(number >> shift));
  }
  uint64_t value() const {
    uint64_t mixed = hash_;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
    return mixed ^ (mixed >> 31);
  }

 private:
  void AddByte(uint8_t byte) { hash_ = (hash_ ^ byte) * 0x100000001b3; }

  uint64_t hash_ = 0xcbf29ce484222325;
};

at::Tensor CudaStateOfSeed(uint64_t seed) {
  const at::Tensor bytes = at::zeros({kCudaBytes}, at::kByte);
  std::memcpy(bytes.mutable_data_ptr<uint8_t>(), &seed, sizeof(seed));
  return bytes;
}

absl::StatusOr<c10::IValue> Derive(absl::Span<const c10::IValue> saved, int rank, int world_size,
                                   int num_cuda_devices) {
  if (saved.empty()) return absl::InvalidArgumentError("there is no random state to go on from");
  Hash hash;
  for (size_t i = 0; i < saved.size(); ++i) {
    const absl::StatusOr<States> states = Parse(saved[i]);
    if (!states.ok()) {
      return absl::Status(states.status().code(), absl::StrCat("rank ", i, "'s: ", states.status().message()));
    }
    hash.Add(states->cpu);
    hash.Add(states->cuda.size());
    for (const at::Tensor& cuda : states->cuda) hash.Add(cuda);
  }
  hash.Add(static_cast<uint64_t>(world_size));
  // A sum of 32 bits, as that is what the generator looks at.
  const uint32_t seed = static_cast<uint32_t>(hash.value()) + static_cast<uint32_t>(rank);
  c10::impl::GenericDict state = internal::NewDict();
  state.insert("cpu", StateOf(at::detail::createCPUGenerator(seed)));
  if (num_cuda_devices > 0) {
    c10::impl::GenericList cuda(c10::AnyType::get());
    for (uint64_t i = 0; i < static_cast<uint64_t>(num_cuda_devices); ++i) {
      cuda.push_back(CudaStateOfSeed((i << 32) | seed));
    }
    state.insert("cuda", std::move(cuda));
  }
  return c10::IValue(std::move(state));
}

}  // namespace

absl::StatusOr<c10::IValue> RngState(absl::Span<const int> cuda_devices) {
  return InvokeTorch([&] { return Read(cuda_devices); });
}

absl::Status SetRngState(const c10::IValue& state, absl::Span<const int> cuda_devices) {
  return InvokeTorch([&] { return Set(state, cuda_devices); });
}

absl::StatusOr<c10::IValue> DeriveRngState(absl::Span<const c10::IValue> saved, int rank, int world_size,
                                           int num_cuda_devices) {
  return InvokeTorch([&] { return Derive(saved, rank, world_size, num_cuda_devices); });
}

}  // namespace cohort
