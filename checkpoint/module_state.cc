// How a state is matched to a module:
//
//   1. Every tensor of the module becomes a slot. Slots of the very same memory (same place, shape and strides) are tied:
//      one of them leads. Those that overlap otherwise are remembered as pairs.
//   2. Every slot looks for its name in the state, and notes what does not fit.
//   3. A slot without a value is missing, unless one tied to it has one. A value without a slot is unexpected.
//   4. All that is wrong becomes one message. Otherwise the first slot of each piece of memory that has a value becomes a
//      target, and its twins' values are listed as tied: they are known only to who loads.
//
// Loading checks the values, then copies. Values that lie in the module's own memory (a program that exchanges two
// weights) are copied out first, because an earlier target may be their storage.

#include "cohort/checkpoint/module_state.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <string_view>
#include <tuple>

#include "ATen/MemoryOverlap.h"
#include "ATen/ops/zeros.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "c10/core/GradMode.h"
#include "cohort/checkpoint/internal/crc32.h"
#include "cohort/checkpoint/internal/quoted.h"
#include "cohort/runtime/torch_status.h"
#include "torch/nn/module.h"

namespace cohort {
namespace {

using ::cohort::internal::Quoted;

// A tensor of the module.
struct Slot {
  std::string name;
  at::Tensor tensor;
  size_t leader = 0;            // the first slot of the same memory: itself, if there is none before
  std::optional<size_t> value;  // its place in the state
};

struct Slots {
  std::vector<Slot> slots;
  std::vector<std::pair<size_t, size_t>> overlapping;  // in part
};

// Why nothing can be copied into or out of `tensor`; empty if it can.
std::string_view WhyUnusable(const at::Tensor& tensor) {
  if (!tensor.defined()) return "is undefined";
  if (tensor.is_nested() || tensor.layout() != at::kStrided || tensor.is_quantized()) return "is not dense";
  if (tensor.is_meta() || !tensor.has_storage()) return "has no data";
  return "";
}

// What of its storage a tensor uses, in bytes.
struct Extent {
  const void* storage;
  int64_t begin, end;
};

Extent ExtentOf(const at::Tensor& tensor) {
  int64_t num_elements = 1;
  for (int64_t i = 0; i < tensor.dim(); ++i) num_elements += (tensor.size(i) - 1) * tensor.stride(i);
  const int64_t begin = tensor.storage_offset() * tensor.element_size();
  return {tensor.storage().unsafeGetStorageImpl(), begin, begin + num_elements * tensor.element_size()};
}

bool IsSameMemory(const at::Tensor& a, const at::Tensor& b) {
  return a.is_alias_of(b) && a.storage_offset() == b.storage_offset() && a.scalar_type() == b.scalar_type() &&
         a.sizes() == b.sizes() && a.strides() == b.strides() && a.is_conj() == b.is_conj() && a.is_neg() == b.is_neg();
}

// Whether two tensors of one storage, whose extents meet, have an element in common. The columns of a matrix have none.
bool Overlap(const at::Tensor& a, const at::Tensor& b) {
  if (a.element_size() != b.element_size() || (a.is_contiguous() && b.is_contiguous())) return true;
  const int64_t first = std::min(a.storage_offset(), b.storage_offset());
  const int64_t end = std::max(ExtentOf(a).end, ExtentOf(b).end) / a.element_size();
  const at::Tensor used = at::zeros({end - first}, at::kBool);
  used.as_strided(a.sizes(), a.strides(), a.storage_offset() - first).fill_(true);
  return used.as_strided(b.sizes(), b.strides(), b.storage_offset() - first).any().item<bool>();
}

Slots SlotsOf(const torch::nn::Module& module) {
  Slots result;
  for (auto& [name, tensor] : ModuleState(module)) {
    result.slots.push_back({.name = std::move(name), .tensor = std::move(tensor), .leader = result.slots.size()});
  }
  std::vector<Slot>& slots = result.slots;

  std::vector<std::pair<Extent, size_t>> order;
  for (size_t i = 0; i < slots.size(); ++i) {
    if (!WhyUnusable(slots[i].tensor).empty() || slots[i].tensor.numel() == 0) continue;
    order.emplace_back(ExtentOf(slots[i].tensor), i);
  }
  const auto place = [](const std::pair<Extent, size_t>& entry) {
    return std::tuple(entry.first.storage, entry.first.begin, entry.first.end, entry.second);
  };
  std::sort(order.begin(), order.end(), [&](const auto& a, const auto& b) { return place(a) < place(b); });

  std::vector<std::pair<Extent, size_t>> open;  // of those before, the leaders that reach beyond where we are
  for (const auto& [extent, i] : order) {
    std::erase_if(open, [&extent = extent](const auto& entry) {
      return entry.first.storage != extent.storage || entry.first.end <= extent.begin;
    });
    for (const auto& [other_extent, other] : open) {
      if (IsSameMemory(slots[i].tensor, slots[other].tensor)) {
        slots[i].leader = other;
      } else if (Overlap(slots[i].tensor, slots[other].tensor)) {
        result.overlapping.emplace_back(other, i);
      }
    }
    if (slots[i].leader == i) open.emplace_back(extent, i);
  }
  return result;
}

std::string Describe(at::ScalarType dtype, absl::Span<const int64_t> sizes) {
  return absl::StrCat(c10::toString(dtype), " [", absl::StrJoin(sizes, ", "), "]");
}

std::string QuotedList(absl::Span<const std::string> names) {
  return absl::StrJoin(names, ", ", [](std::string* out, const std::string& name) { *out += Quoted(name); });
}

// Appends what keeps `header`'s value from going to `slot`.
void CheckFit(const Slot& slot, const TensorHeader& header, bool cast, std::vector<std::string>& problems) {
  if (const std::string_view why = WhyUnusable(slot.tensor); !why.empty()) {
    problems.push_back(absl::StrCat(Quoted(slot.name), " ", why, " in the module"));
    return;
  }
  if (at::has_internal_overlap(slot.tensor) == at::MemOverlap::Yes) {
    problems.push_back(absl::StrCat(Quoted(slot.name), " has elements that share memory in the module"));
  }
  const at::ScalarType wanted = slot.tensor.scalar_type();
  const bool dtype_fits =
      header.dtype == wanted || (cast && (!c10::isComplexType(header.dtype) || c10::isComplexType(wanted)));
  if (!dtype_fits || slot.tensor.sizes() != at::IntArrayRef(header.sizes)) {
    problems.push_back(absl::StrCat(Quoted(header.name), " is ", Describe(header.dtype, header.sizes),
                                    " in the state and ", Describe(wanted, slot.tensor.sizes()), " in the module"));
  }
}

// Gives every slot its value, and reports what has no counterpart.
absl::StatusOr<LoadModuleReport> FindValues(absl::Span<const TensorHeader> headers, std::string_view prefix,
                                            std::vector<Slot>& slots) {
  absl::flat_hash_map<std::string_view, size_t> places;
  LoadModuleReport report;
  absl::flat_hash_map<std::string_view, size_t> slot_of;
  for (size_t i = 0; i < slots.size(); ++i) slot_of.emplace(slots[i].name, i);
  for (size_t i = 0; i < headers.size(); ++i) {
    if (!places.emplace(headers[i].name, i).second) {
      return absl::InvalidArgumentError(absl::StrCat("two tensors of the state are named ", Quoted(headers[i].name)));
    }
    std::string_view name = headers[i].name;
    const auto found = absl::ConsumePrefix(&name, prefix) ? slot_of.find(name) : slot_of.end();
    if (found == slot_of.end()) {
      report.unexpected.push_back(headers[i].name);
    } else {
      slots[found->second].value = i;
    }
  }

  absl::flat_hash_set<size_t> filled;  // leaders
  for (const Slot& slot : slots) {
    if (slot.value.has_value()) filled.insert(slot.leader);
  }
  for (const Slot& slot : slots) {
    if (!slot.value.has_value() && !filled.contains(slot.leader)) report.missing.push_back(slot.name);
  }
  return report;
}

absl::StatusOr<ModuleMatch> Match(const torch::nn::Module& module, absl::Span<const TensorHeader> headers,
                                  const LoadModuleOptions& options) {
  auto [slots, overlapping] = SlotsOf(module);
  ModuleMatch match;
  ABSL_ASSIGN_OR_RETURN(match.report, FindValues(headers, options.strip_prefix, slots));

  std::vector<std::string> problems;
  absl::flat_hash_map<size_t, size_t> first_value;  // by leader
  for (const Slot& slot : slots) {
    if (!slot.value.has_value()) continue;
    CheckFit(slot, headers[*slot.value], options.cast, problems);
    const auto [first, is_new] = first_value.emplace(slot.leader, *slot.value);
    if (is_new) {
      match.targets.emplace_back(*slot.value, slot.tensor);
    } else {
      match.tied.emplace_back(first->second, *slot.value);
    }
  }
  for (const auto& [a, b] : overlapping) {
    if (!first_value.contains(a) || !first_value.contains(b)) continue;
    problems.push_back(
        absl::StrCat(Quoted(slots[a].name), " and ", Quoted(slots[b].name), " overlap in part in the module"));
  }
  if (options.strict && !match.report.missing.empty()) {
    problems.push_back(absl::StrCat("missing: ", QuotedList(match.report.missing)));
  }
  if (options.strict && !match.report.unexpected.empty()) {
    problems.push_back(absl::StrCat("unexpected: ", QuotedList(match.report.unexpected)));
  }
  if (problems.empty()) return match;
  return absl::InvalidArgumentError(absl::StrCat("the state does not fit the module: ", absl::StrJoin(problems, "; ")));
}

// Bits, not numbers: NaN equals itself, and 0 is not -0.
bool IsSameValue(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  if (IsSameMemory(a, b)) return true;
  const auto plain = [](const at::Tensor& tensor) { return tensor.resolve_conj().resolve_neg().cpu().contiguous(); };
  const at::Tensor x = plain(a), y = plain(b);
  return x.nbytes() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

absl::StatusOr<LoadModuleReport> Load(torch::nn::Module& module,
                                      absl::Span<const std::pair<std::string, at::Tensor>> state,
                                      const LoadModuleOptions& options) {
  std::vector<TensorHeader> headers;
  headers.reserve(state.size());
  for (const auto& [name, tensor] : state) {
    if (const std::string_view why = WhyUnusable(tensor); !why.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("tensor ", Quoted(name), " of the state ", why));
    }
    headers.push_back({.name = name, .dtype = tensor.scalar_type(), .sizes = tensor.sizes().vec()});
  }
  ABSL_ASSIGN_OR_RETURN(const ModuleMatch match, Match(module, headers, options));
  for (const auto& [a, b] : match.tied) {
    if (IsSameValue(state[a].second, state[b].second)) continue;
    return absl::InvalidArgumentError(absl::StrCat("the module ties ", Quoted(state[a].first), " and ",
                                                   Quoted(state[b].first), ", whose values differ in the state"));
  }

  const c10::NoGradGuard no_grad;
  absl::flat_hash_set<const void*> written;
  for (const auto& [i, target] : match.targets) written.insert(target.storage().unsafeGetStorageImpl());
  std::vector<at::Tensor> values;
  values.reserve(match.targets.size());
  for (const auto& [i, target] : match.targets) {
    const at::Tensor& value = state[i].second;
    const bool in_the_way = written.contains(value.storage().unsafeGetStorageImpl()) && !IsSameMemory(value, target);
    values.push_back(in_the_way ? value.clone() : value);
  }
  for (size_t i = 0; i < values.size(); ++i) match.targets[i].second.copy_(values[i]);
  return match.report;
}

absl::StatusOr<ModuleMatch> MatchFile(const torch::nn::Module& module, const StateFile& state,
                                      const LoadModuleOptions& options) {
  absl::StatusOr<ModuleMatch> match = Match(module, state.tensors(), options);
  if (!match.ok()) {
    return absl::Status(match.status().code(), absl::StrCat(Quoted(state.path()), ": ", match.status().message()));
  }
  for (const auto& [a, b] : match->tied) {
    ABSL_ASSIGN_OR_RETURN(const at::Tensor first, state.ReadTensor(a));
    ABSL_ASSIGN_OR_RETURN(const at::Tensor second, state.ReadTensor(b));
    if (IsSameValue(first, second)) continue;
    return absl::InvalidArgumentError(absl::StrCat(Quoted(state.path()), ": the module ties ",
                                                   Quoted(state.tensors()[a].name), " and ",
                                                   Quoted(state.tensors()[b].name), ", whose values differ there"));
  }
  return match;
}

}  // namespace

NamedTensors ModuleState(const torch::nn::Module& module) {
  NamedTensors state;
  for (const auto& parameter : module.named_parameters()) state.emplace_back(parameter.key(), parameter.value());
  for (const auto& buffer : module.named_buffers()) state.emplace_back(buffer.key(), buffer.value());
  return state;
}

std::string ModelSignature(const torch::nn::Module& module) {
  std::vector<std::string> tensors;
  int64_t num_elements = 0;
  for (const auto& [name, tensor] : ModuleState(module)) {
    const bool has_shape = tensor.defined() && !tensor.is_nested();
    if (has_shape) num_elements += tensor.numel();
    // With its length, so that no name can look like the rest of one.
    tensors.push_back(absl::StrCat(name.size(), " ", name, " ",
                                   has_shape ? Describe(tensor.scalar_type(), tensor.sizes()) : "without a shape"));
  }
  std::sort(tensors.begin(), tensors.end());
  return absl::StrCat(tensors.size(), tensors.size() == 1 ? " tensor, " : " tensors, ", num_elements,
                      num_elements == 1 ? " element" : " elements", ", checksum ",
                      absl::Hex(internal::Crc32(absl::StrJoin(tensors, "\n")), absl::kZeroPad8));
}

absl::StatusOr<ModuleMatch> MatchModuleState(const torch::nn::Module& module, absl::Span<const TensorHeader> headers,
                                             const LoadModuleOptions& options) {
  return InvokeTorch([&] { return Match(module, headers, options); });
}

absl::StatusOr<LoadModuleReport> LoadModuleState(torch::nn::Module& module,
                                                 absl::Span<const std::pair<std::string, at::Tensor>> state,
                                                 const LoadModuleOptions& options) {
  return InvokeTorch([&] { return Load(module, state, options); });
}

absl::StatusOr<ModuleMatch> MatchModuleState(const torch::nn::Module& module, const StateFile& state,
                                             const LoadModuleOptions& options) {
  return InvokeTorch([&] { return MatchFile(module, state, options); });
}

absl::StatusOr<LoadModuleReport> ReadModuleState(torch::nn::Module& module, const StateFile& state,
                                                 const LoadModuleOptions& options) {
  ABSL_ASSIGN_OR_RETURN(ModuleMatch match, MatchModuleState(module, state, options));
  ABSL_RETURN_IF_ERROR(state.ReadInto(match.targets));
  return std::move(match.report);
}

}  // namespace cohort
