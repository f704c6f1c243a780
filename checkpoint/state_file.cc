// Opening reads the directory of the file; a tensor is read when it is asked for.
//
// Checksums are of whole storages (.pt) or tensors (safetensors). So whoever verifies reads the whole storage, even for
// one row of it; without verifying only the part that is used is read.
//
// ReadInto verifies in a first pass and reads in a second, because memory that belongs to a module cannot be given its
// old values back. Both passes go over storages in parallel; the first reads into a small buffer that stays in the
// processor's cache, so it costs less than the second.

#include "cohort/checkpoint/state_file.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "ATen/Functions.h"
#include "ATen/Parallel.h"
#include "ATen/core/Tensor.h"
#include "ATen/core/ivalue.h"
#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "c10/core/GradMode.h"
#include "cohort/checkpoint/internal/crc32.h"
#include "cohort/checkpoint/internal/quoted.h"
#include "cohort/checkpoint/internal/random_access_file.h"
#include "cohort/checkpoint/internal/safetensors_reader.h"
#include "cohort/checkpoint/internal/saved_tensor.h"
#include "cohort/checkpoint/internal/state_tree.h"
#include "cohort/checkpoint/internal/state_value.h"
#include "cohort/checkpoint/internal/torch_reader.h"
#include "cohort/runtime/torch_status.h"

namespace cohort {

using internal::Quoted;
using internal::RandomAccessFile;
using internal::StateDict;
using internal::StateKey;
using internal::StateTree;
using internal::StoredBytes;
using internal::StoredState;
using internal::StoredTensor;
using internal::TensorIndex;

// One file.
struct StateFile::Contents {
  std::string path;
  std::string bytes;  // of a file that is in memory
  StateFormat format;
  std::unique_ptr<RandomAccessFile> file;
  StoredState state;
  std::vector<std::pair<std::string, std::string>> metadata;

  // The whole file, mapped once for all who read rows of it. Rows here and there: if what surrounds each of them came
  // into memory as well, rows of a large file would take a hundred times as long.
  absl::StatusOr<std::shared_ptr<const char>> Mapped() const {
    absl::MutexLock lock(mutex);
    if (map != nullptr) return map;
    ABSL_ASSIGN_OR_RETURN(const std::shared_ptr<char> memory, file->Map());
    if (bytes.empty()) madvise(memory.get(), file->num_bytes(), MADV_RANDOM);
    map = memory;
    return map;
  }

  mutable absl::Mutex mutex;
  mutable std::shared_ptr<const char> map ABSL_GUARDED_BY(mutex);  // null until somebody wants it

  absl::Status InThisFile(const absl::Status& status) const {
    if (status.ok()) return status;
    return absl::Status(status.code(), absl::StrCat(Quoted(path), ": ", status.message()));
  }
};

// A subtree of it.
struct StateFile::Part {
  std::shared_ptr<const Contents> contents;
  const StateTree* tree;
  std::string name;  // of this part in the file, keys joined by "."
  std::vector<TensorHeader> headers;
  std::vector<size_t> indices;  // what TensorIndex says of each header

  // Every leaf of `at` that is a tensor. `below` is what the names of its items begin with.
  void Collect(const StateTree& at, const std::string& name, const std::string& below) {
    const auto collect_item = [&](const StateKey& key, const StateTree& value) {
      const std::string item = absl::StrCat(below, internal::NameBelow("", key));
      Collect(value, item, absl::StrCat(item, "."));
    };
    const auto collect_items = [&](const std::vector<StateTree>& items) {
      for (size_t i = 0; i < items.size(); ++i) collect_item(static_cast<int64_t>(i), items[i]);
    };
    if (const auto* tensor = std::get_if<TensorIndex>(&at.value)) {
      const StoredTensor& stored = contents->state.tensors[tensor->index];
      headers.push_back({name, internal::ScalarTypeOf(stored.dtype), stored.sizes});
      indices.push_back(tensor->index);
    } else if (const auto* dict = std::get_if<StateDict>(&at.value)) {
      for (const auto& [key, value] : dict->items) collect_item(key, value);
    } else if (const auto* list = std::get_if<internal::StateList>(&at.value)) {
      collect_items(list->items);
    } else if (const auto* tuple = std::get_if<internal::StateTuple>(&at.value)) {
      collect_items(tuple->items);
    }
  }

  static std::shared_ptr<const Part> Make(std::shared_ptr<const Contents> contents, const StateTree& tree,
                                          std::string name) {
    auto part = std::make_shared<Part>();
    part->contents = std::move(contents);
    part->tree = &tree;
    part->name = std::move(name);
    part->Collect(tree, "", "");
    return part;
  }
};

namespace {

constexpr int64_t kPieceBytes = int64_t{1} << 20;  // stays in the processor's cache until its checksum is made

using Progress = std::function<void(int64_t done, int64_t total)>;

// Calls `work` with each of 0 to n - 1, on as many threads as LibTorch uses. Returns one of the errors; what has not
// begun by then is left out.
absl::Status InParallel(size_t n, absl::FunctionRef<absl::Status(size_t)> work) {
  std::atomic<size_t> next = 0;
  absl::Mutex mutex;
  absl::Status failure;  // guarded by mutex
  std::atomic<bool> failed = false;
  const auto worker = [&](int64_t, int64_t) {
    for (size_t i = next++; i < n && !failed; i = next++) {
      const absl::Status status = work(i);
      if (status.ok()) continue;
      absl::MutexLock lock(mutex);
      failure.Update(status);
      failed = true;
    }
  };
  const auto num_threads = static_cast<int64_t>(std::min(n, static_cast<size_t>(at::get_num_threads())));
  if (num_threads <= 1) {
    worker(0, 1);
  } else {
    at::parallel_for(0, num_threads, 1, worker);
  }
  return failure;
}

absl::Status Compare(const StoredBytes& stored, uint32_t found) {
  if (!stored.crc32.has_value() || found == *stored.crc32) return absl::OkStatus();
  return absl::DataLossError(absl::StrFormat(
      "the %d bytes from %d on have the checksum %08x, and %08x was saved with them: the file is damaged",
      stored.num_bytes, stored.begin, found, *stored.crc32));
}

// Reads all of `stored` into `memory`, and verifies it if it is asked to.
absl::Status ReadAll(const RandomAccessFile& file, const StoredBytes& stored, bool verify, char* memory) {
  if (!verify || !stored.crc32.has_value()) return file.Read(stored.begin, stored.num_bytes, memory);
  uint32_t crc = 0;
  for (int64_t done = 0; done < stored.num_bytes; done += kPieceBytes) {
    const int64_t size = std::min(kPieceBytes, stored.num_bytes - done);
    ABSL_RETURN_IF_ERROR(file.Read(stored.begin + done, size, memory + done));
    crc = internal::Crc32(std::string_view(memory + done, size), crc);
  }
  return Compare(stored, crc);
}

absl::Status VerifyOnly(const RandomAccessFile& file, const StoredBytes& stored,
                        absl::FunctionRef<void(int64_t)> done_more) {
  if (!stored.crc32.has_value()) return absl::OkStatus();
  const std::unique_ptr<char[]> buffer(new char[std::min(kPieceBytes, std::max<int64_t>(stored.num_bytes, 1))]);
  uint32_t crc = 0;
  for (int64_t done = 0; done < stored.num_bytes; done += kPieceBytes) {
    const int64_t size = std::min(kPieceBytes, stored.num_bytes - done);
    ABSL_RETURN_IF_ERROR(file.Read(stored.begin + done, size, buffer.get()));
    crc = internal::Crc32(std::string_view(buffer.get(), size), crc);
    done_more(size);
  }
  return Compare(stored, crc);
}

// The storages of some tensors, each once.
std::vector<size_t> StoragesOf(const StoredState& state, absl::Span<const size_t> tensors) {
  std::vector<size_t> storages;
  storages.reserve(tensors.size());
  for (const size_t i : tensors) storages.push_back(state.tensors[i].storage);
  std::sort(storages.begin(), storages.end());
  storages.erase(std::unique(storages.begin(), storages.end()), storages.end());
  return storages;
}

absl::Status VerifyStorages(const StoredState& state, const RandomAccessFile& file, absl::Span<const size_t> storages,
                            const Progress& progress) {
  int64_t total = 0;
  for (const size_t i : storages) total += state.storages[i].crc32.has_value() ? state.storages[i].num_bytes : 0;
  absl::Mutex mutex;
  int64_t done = 0;  // guarded by mutex
  return InParallel(storages.size(), [&](size_t i) {
    return VerifyOnly(file, state.storages[storages[i]], [&](int64_t more) {
      if (!progress) return;
      absl::MutexLock lock(mutex);
      progress(done += more, total);
    });
  });
}

// The elements that a tensor uses of its storage, in bytes from the storage's beginning.
std::pair<int64_t, int64_t> Extent(const StoredTensor& stored) {
  const int64_t size = internal::InfoOf(stored.dtype).num_bytes;
  // Nothing was checked about the strides of an empty tensor.
  if (std::find(stored.sizes.begin(), stored.sizes.end(), 0) != stored.sizes.end()) {
    return {stored.offset * size, stored.offset * size};
  }
  int64_t last = stored.offset;
  for (size_t i = 0; i < stored.sizes.size(); ++i) last += (stored.sizes[i] - 1) * stored.strides[i];
  return {stored.offset * size, (last + 1) * size};
}

bool IsRowMajor(const StoredTensor& stored) {
  int64_t stride = 1;
  for (size_t i = stored.sizes.size(); i-- > 0;) {
    if (stored.sizes[i] != 1 && stored.strides[i] != stride) return false;
    stride *= stored.sizes[i];
  }
  return true;
}

// The tensor, if `bytes` is its storage from byte `begin` on.
at::Tensor View(const StoredTensor& stored, const at::Tensor& bytes, int64_t begin) {
  const int64_t size = internal::InfoOf(stored.dtype).num_bytes;
  at::Tensor view = at::empty({0}, bytes.options().dtype(internal::ScalarTypeOf(stored.dtype)));
  view.set_(bytes.storage(), stored.offset - begin / size, stored.sizes, stored.strides);
  if (stored.conjugated) view = view._conj();
  if (stored.negated) view = view._neg_view();
  return view;
}

// Reads tensors, each storage once.
class Reader {
 public:
  Reader(const StoredState& state, const RandomAccessFile& file, const ReadOptions& options)
      : state_(state), file_(file), options_(options), storages_(state.storages.size()) {}

  // Reads the storages of these tensors, in parallel: what Tensor() then finds.
  absl::Status Prepare(absl::Span<const size_t> tensors) {
    if (options_.map) {
      ABSL_ASSIGN_OR_RETURN(map_, file_.Map());
    }
    std::vector<size_t> wanted = StoragesOf(state_, tensors);
    if (map_ != nullptr) {
      for (const size_t tensor : tensors) Map(state_.tensors[tensor]);
      std::erase_if(wanted, [&](size_t i) { return storages_[i].defined(); });
    }
    if (options_.device.is_meta()) {
      const auto meta = at::TensorOptions(at::kByte).device(at::kMeta);
      for (const size_t i : wanted) storages_[i] = at::empty({state_.storages[i].num_bytes}, meta);
      return absl::OkStatus();
    }
    // LibTorch's allocators are not to be called from its own worker threads on every build; memory is cheap to take.
    for (const size_t i : wanted) storages_[i] = at::empty({state_.storages[i].num_bytes}, at::kByte);
    ABSL_RETURN_IF_ERROR(InParallel(wanted.size(), [&](size_t k) {
      const size_t i = wanted[k];
      return ReadAll(file_, state_.storages[i], options_.verify, static_cast<char*>(storages_[i].mutable_data_ptr()));
    }));
    if (!options_.device.is_cpu()) {
      for (const size_t i : wanted) storages_[i] = storages_[i].to(options_.device);
    }
    return absl::OkStatus();
  }

  at::Tensor Tensor(size_t i) const { return View(state_.tensors[i], storages_[state_.tensors[i].storage], 0); }

 private:
  // Maps the tensor's storage, unless its elements would lie where the processor cannot load them.
  void Map(const StoredTensor& tensor) {
    at::Tensor& bytes = storages_[tensor.storage];
    const StoredBytes& stored = state_.storages[tensor.storage];
    if (bytes.defined() || stored.begin % internal::InfoOf(tensor.dtype).num_bytes != 0) return;
    bytes = at::from_blob(
        map_.get() + stored.begin, {stored.num_bytes}, [map = map_](void*) {}, at::kByte);
  }

  const StoredState& state_;
  const RandomAccessFile& file_;
  const ReadOptions& options_;
  std::shared_ptr<char> map_;
  std::vector<at::Tensor> storages_;  // bytes; undefined until they are read
};

absl::Status CheckOptions(const ReadOptions& options) {
  if (!options.map || options.device.is_cpu()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("device ", options.device.str(), ": only tensors for the CPU can be mapped"));
}

// One tensor without the rest of its storage; not verified.
absl::StatusOr<at::Tensor> ReadExtent(const RandomAccessFile& file, const StoredState& state,
                                      const StoredTensor& stored) {
  const auto [begin, end] = Extent(stored);
  at::Tensor bytes = at::empty({end - begin}, at::kByte);
  ABSL_RETURN_IF_ERROR(file.Read(state.storages[stored.storage].begin + begin, end - begin,
                                 static_cast<char*>(bytes.mutable_data_ptr())));
  return View(stored, bytes, begin);
}

// Reads a tensor's elements into `target`'s own memory. False if they would have to be converted or moved about.
absl::StatusOr<bool> ReadDirectly(const RandomAccessFile& file, const StoredState& state, const StoredTensor& stored,
                                  const at::Tensor& target) {
  const bool is_same = target.is_cpu() && target.is_contiguous() && !target.is_conj() && !target.is_neg() &&
                       target.scalar_type() == internal::ScalarTypeOf(stored.dtype) && !stored.conjugated &&
                       !stored.negated && IsRowMajor(stored);
  if (!is_same) return false;
  const auto [begin, end] = Extent(stored);
  ABSL_RETURN_IF_ERROR(file.Read(state.storages[stored.storage].begin + begin, end - begin,
                                 static_cast<char*>(target.mutable_data_ptr())));
  return true;
}

absl::Status CheckRows(const TensorHeader& header, const StoredTensor& stored, absl::Span<const int64_t> rows,
                       const at::Tensor& target) {
  const auto refuse = [&](const auto&... why) {
    return absl::InvalidArgumentError(absl::StrCat("tensor ", Quoted(header.name), " ", why...));
  };
  if (header.sizes.empty()) return refuse("has no dimension, and so no rows");
  const bool has_values = std::find(header.sizes.begin(), header.sizes.end(), 0) == header.sizes.end();
  if (has_values && (stored.conjugated || stored.negated || !IsRowMajor(stored))) {
    return refuse("is not stored row-major");
  }
  for (const int64_t row : rows) {
    if (row < 0 || row >= header.sizes[0]) return refuse("has ", header.sizes[0], " rows, and no row ", row);
  }
  std::vector<int64_t> sizes = header.sizes;
  sizes[0] = static_cast<int64_t>(rows.size());
  const bool fits = target.defined() && target.is_cpu() && target.is_contiguous() && !target.is_conj() &&
                    !target.is_neg() && target.scalar_type() == header.dtype &&
                    target.sizes() == at::IntArrayRef(sizes);
  if (fits) return absl::OkStatus();
  return refuse("gives rows of ", at::toString(header.dtype), " [", absl::StrJoin(sizes, ", "),
                "], which the memory they are to go into is not");
}

// `targets`: places in the table of tensors, and where each goes.
absl::Status ReadAllInto(const RandomAccessFile& file, const StoredState& state,
                         absl::Span<const std::pair<size_t, at::Tensor>> targets, const ReadOptions& options) {
  std::vector<size_t> tensors;
  for (const auto& [i, target] : targets) tensors.push_back(i);
  const at::NoGradGuard no_grad;
  if (options.map) {
    const ReadOptions mapped = {.verify = false, .map = true};
    Reader reader(state, file, mapped);
    ABSL_RETURN_IF_ERROR(reader.Prepare(tensors));
    for (const auto& [i, target] : targets) at::Tensor(target).copy_(reader.Tensor(i));
    return absl::OkStatus();
  }
  if (options.verify) {
    ABSL_RETURN_IF_ERROR(VerifyStorages(state, file, StoragesOf(state, tensors), {}));
  }
  std::vector<char> is_read(targets.size());
  ABSL_RETURN_IF_ERROR(InParallel(targets.size(), [&](size_t i) -> absl::Status {
    ABSL_ASSIGN_OR_RETURN(is_read[i], ReadDirectly(file, state, state.tensors[targets[i].first], targets[i].second));
    return absl::OkStatus();
  }));
  for (size_t i = 0; i < targets.size(); ++i) {
    if (is_read[i]) continue;
    ABSL_ASSIGN_OR_RETURN(const at::Tensor values, ReadExtent(file, state, state.tensors[targets[i].first]));
    at::Tensor target = targets[i].second;
    target.copy_(values);
  }
  return absl::OkStatus();
}

// A zip archive begins with its first entry, or with the directory's end if it is empty; a safetensors file with the
// length of its header, and then JSON.
absl::StatusOr<StateFormat> FormatOf(const RandomAccessFile& file) {
  char begin[9] = {};
  ABSL_RETURN_IF_ERROR(file.Read(0, std::min<int64_t>(file.num_bytes(), sizeof(begin)), begin));
  return begin[8] == '{' ? StateFormat::kSafetensors : StateFormat::kTorch;
}

}  // namespace

absl::StatusOr<StateFile> StateFile::Open(std::string_view path) {
  auto contents = std::make_shared<Contents>();
  contents->path = std::string(path);
  ABSL_ASSIGN_OR_RETURN(contents->file, internal::OpenRandomAccessFile(contents->path));
  return Describe(std::move(contents));
}

absl::StatusOr<StateFile> StateFile::FromBytes(std::string bytes, std::string_view name) {
  auto contents = std::make_shared<Contents>();
  contents->path = std::string(name);
  contents->bytes = std::move(bytes);
  contents->file = internal::MemoryAsFile(contents->bytes);
  return Describe(std::move(contents));
}

absl::StatusOr<StateFile> StateFile::Describe(std::shared_ptr<Contents> contents) {
  const absl::Status read = [&]() -> absl::Status {
    ABSL_ASSIGN_OR_RETURN(contents->format, FormatOf(*contents->file));
    if (contents->format == StateFormat::kTorch) {
      ABSL_ASSIGN_OR_RETURN(contents->state, internal::ReadTorchState(*contents->file));
      return absl::OkStatus();
    }
    ABSL_ASSIGN_OR_RETURN(internal::SafetensorsFile found, internal::ReadSafetensors(*contents->file));
    contents->state = std::move(found.state);
    contents->metadata = std::move(found.metadata);
    return absl::OkStatus();
  }();
  ABSL_RETURN_IF_ERROR(contents->InThisFile(read));
  const StateTree& tree = contents->state.tree;
  return StateFile(Part::Make(std::move(contents), tree, ""));
}

const std::string& StateFile::path() const { return part_->contents->path; }

StateFormat StateFile::format() const { return part_->contents->format; }

absl::Span<const std::pair<std::string, std::string>> StateFile::metadata() const { return part_->contents->metadata; }

bool StateFile::has_checksums() const {
  const auto& storages = part_->contents->state.storages;
  return std::all_of(storages.begin(), storages.end(), [](const StoredBytes& s) { return s.crc32.has_value(); });
}

absl::Span<const TensorHeader> StateFile::tensors() const { return part_->headers; }

absl::StatusOr<StateFile> StateFile::At(std::string_view key) const {
  const auto* const dict = std::get_if<StateDict>(&part_->tree->value);
  const std::string what = part_->name.empty() ? "the state" : Quoted(part_->name);
  if (dict == nullptr) {
    return part_->contents->InThisFile(absl::InvalidArgumentError(absl::StrCat(what, " is no dict, and has no keys")));
  }
  std::vector<std::string> keys;
  for (const auto& [present, value] : dict->items) {
    const std::string name = internal::NameBelow("", present);
    if (std::holds_alternative<std::string>(present) && name == key) {
      return StateFile(Part::Make(part_->contents, value, internal::NameBelow(part_->name, present)));
    }
    if (keys.size() < 20) keys.push_back(Quoted(name));
  }
  return part_->contents->InThisFile(absl::NotFoundError(
      absl::StrCat(what, " has no key ", Quoted(key), "; it has ", keys.empty() ? "none" : absl::StrJoin(keys, ", "))));
}

absl::StatusOr<c10::IValue> StateFile::Read(const ReadOptions& options) const {
  const Contents& contents = *part_->contents;
  absl::StatusOr<c10::IValue> result = InvokeTorch([&]() -> absl::StatusOr<c10::IValue> {
    ABSL_RETURN_IF_ERROR(CheckOptions(options));
    Reader reader(contents.state, *contents.file, options);
    ABSL_RETURN_IF_ERROR(reader.Prepare(part_->indices));
    return internal::PutTogether(*part_->tree,
                                 [&](size_t i) -> absl::StatusOr<at::Tensor> { return reader.Tensor(i); });
  });
  ABSL_RETURN_IF_ERROR(contents.InThisFile(result.status()));
  return result;
}

absl::StatusOr<at::Tensor> StateFile::ReadTensor(std::string_view name, const ReadOptions& options) const {
  const auto& headers = part_->headers;
  const auto has_name = [&](const TensorHeader& header) { return header.name == name; };
  const auto found = std::find_if(headers.begin(), headers.end(), has_name);
  if (found == headers.end()) {
    return part_->contents->InThisFile(absl::NotFoundError(absl::StrCat("no tensor has the name ", Quoted(name))));
  }
  if (std::any_of(found + 1, headers.end(), has_name)) {
    return part_->contents->InThisFile(
        absl::InvalidArgumentError(absl::StrCat("several tensors have the name ", Quoted(name))));
  }
  return ReadTensor(static_cast<size_t>(found - headers.begin()), options);
}

absl::StatusOr<at::Tensor> StateFile::ReadTensor(size_t place, const ReadOptions& options) const {
  const Contents& contents = *part_->contents;
  const size_t index = part_->indices.at(place);
  absl::StatusOr<at::Tensor> result = InvokeTorch([&]() -> absl::StatusOr<at::Tensor> {
    ABSL_RETURN_IF_ERROR(CheckOptions(options));
    if (!options.verify && !options.map && !options.device.is_meta()) {
      ABSL_ASSIGN_OR_RETURN(const at::Tensor tensor,
                            ReadExtent(*contents.file, contents.state, contents.state.tensors[index]));
      return tensor.to(options.device);
    }
    Reader reader(contents.state, *contents.file, options);
    ABSL_RETURN_IF_ERROR(reader.Prepare({index}));
    return reader.Tensor(index);
  });
  ABSL_RETURN_IF_ERROR(contents.InThisFile(result.status()));
  return result;
}

absl::Status StateFile::ReadInto(absl::Span<const std::pair<size_t, at::Tensor>> targets,
                                 const ReadOptions& options) const {
  const Contents& contents = *part_->contents;
  return contents.InThisFile(InvokeTorch([&]() -> absl::Status {
    std::vector<std::pair<size_t, at::Tensor>> stored;
    stored.reserve(targets.size());
    for (const auto& [place, target] : targets) {
      if (place >= part_->indices.size()) {
        return absl::InvalidArgumentError(
            absl::StrCat("there is no tensor ", place, "; there are ", part_->indices.size()));
      }
      const TensorHeader& header = part_->headers[place];
      if (!target.defined() || target.sizes() != at::IntArrayRef(header.sizes)) {
        return absl::InvalidArgumentError(absl::StrFormat(
            "tensor %s has sizes [%s], and is to go into one of sizes [%s]", Quoted(header.name),
            absl::StrJoin(header.sizes, ", "), target.defined() ? absl::StrJoin(target.sizes(), ", ") : "undefined"));
      }
      stored.emplace_back(part_->indices[place], target);
    }
    return ReadAllInto(*contents.file, contents.state, stored, options);
  }));
}

absl::Status StateFile::ReadRows(size_t place, absl::Span<const int64_t> rows, const at::Tensor& target,
                                 const ReadOptions& options) const {
  const Contents& contents = *part_->contents;
  const StoredTensor& stored = contents.state.tensors[part_->indices.at(place)];
  return contents.InThisFile([&]() -> absl::Status {
    ABSL_RETURN_IF_ERROR(CheckRows(part_->headers[place], stored, rows, target));
    if (target.numel() == 0) return absl::OkStatus();
    std::shared_ptr<const char> map;
    if (options.map) {
      ABSL_ASSIGN_OR_RETURN(map, contents.Mapped());
    }
    const auto row_bytes = static_cast<int64_t>(target.nbytes() / rows.size());
    const int64_t begin = contents.state.storages[stored.storage].begin + Extent(stored).first;
    char* memory = static_cast<char*>(target.mutable_data_ptr());
    for (size_t i = 0, end; i < rows.size(); i = end) {
      // What lies together is read at once.
      for (end = i + 1; end < rows.size() && rows[end] == rows[end - 1] + 1;) ++end;
      const int64_t offset = begin + rows[i] * row_bytes, num_bytes = static_cast<int64_t>(end - i) * row_bytes;
      if (map != nullptr) {
        std::memcpy(memory, map.get() + offset, num_bytes);
      } else {
        ABSL_RETURN_IF_ERROR(contents.file->Read(offset, num_bytes, memory));
      }
      memory += num_bytes;
    }
    return absl::OkStatus();
  }());
}

std::optional<uint32_t> StateFile::checksum(size_t place) const {
  const StoredState& state = part_->contents->state;
  return state.storages[state.tensors[part_->indices.at(place)].storage].crc32;
}

absl::Status StateFile::Verify(const Progress& progress) const {
  const Contents& contents = *part_->contents;
  return contents.InThisFile(
      VerifyStorages(contents.state, *contents.file, StoragesOf(contents.state, part_->indices), progress));
}

}  // namespace cohort
