#include "cohort/checkpoint/internal/test_archive.h"

#include <complex>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/log/absl_check.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cohort/checkpoint/internal/dtype.h"
#include "cohort/checkpoint/internal/quoted.h"
#include "cohort/checkpoint/internal/state_tree.h"
#include "cohort/checkpoint/internal/zip_writer.h"

namespace cohort::internal {
namespace {

class Printer {
 public:
  explicit Printer(const StoredState& state) : state_(state) {}

  std::string Text(const StateTree& tree) const {
    return std::visit([this](const auto& value) { return Text(value); }, tree.value);
  }

 private:
  std::string Text(std::monostate) const { return "None"; }
  std::string Text(bool value) const { return value ? "True" : "False"; }
  std::string Text(int64_t value) const { return absl::StrCat(value); }
  std::string Text(double value) const { return absl::StrFormat("%.17g", value); }
  std::string Text(const std::complex<double>& value) const {
    return absl::StrFormat("(%.17g%+.17gj)", value.real(), value.imag());
  }
  std::string Text(const std::string& value) const { return Quoted(value); }
  std::string Text(const StateList& list) const { return absl::StrCat("[", Items(list.items), "]"); }
  std::string Text(const StateTuple& tuple) const { return absl::StrCat("(", Items(tuple.items), ")"); }
  std::string Text(const StateDict& dict) const {
    return absl::StrCat("{",
                        absl::StrJoin(dict.items, ", ",
                                      [this](std::string* out, const auto& item) {
                                        absl::StrAppend(
                                            out, std::visit([this](const auto& key) { return this->Text(key); }, item.key),
                                            ": ", Text(item.value));
                                      }),
                        "}");
  }
  std::string Text(TensorIndex index) const {
    const StoredTensor& tensor = state_.tensors[index.index];
    return absl::StrCat("tensor#", index.index, "(", InfoOf(tensor.dtype).name, ", [",
                        absl::StrJoin(tensor.sizes, ", "), "], [", absl::StrJoin(tensor.strides, ", "), "], ",
                        tensor.offset, ", storage ", tensor.storage, tensor.conjugated ? ", conj" : "",
                        tensor.negated ? ", neg" : "", tensor.requires_grad ? ", grad" : "", ")");
  }
  std::string Items(const std::vector<StateTree>& items) const {
    return absl::StrJoin(items, ", ", [this](std::string* out, const StateTree& item) { *out += Text(item); });
  }

  const StoredState& state_;
};

}  // namespace

std::string ZipOf(const std::vector<std::pair<std::string, std::string>>& entries) {
  StringFile file;
  ZipWriter zip(file);
  for (const auto& [name, contents] : entries) ABSL_CHECK_OK(zip.AddEntry(name, contents));
  ABSL_CHECK_OK(zip.Finish());
  return file.contents();
}

std::string TorchFileOf(std::string_view pickle, const std::vector<std::string>& storages) {
  std::vector<std::pair<std::string, std::string>> entries = {{"archive/data.pkl", std::string(pickle)},
                                                              {"archive/byteorder", "little"}};
  for (size_t i = 0; i < storages.size(); ++i) entries.emplace_back(absl::StrCat("archive/data/", i), storages[i]);
  entries.emplace_back("archive/version", "3\n");
  return ZipOf(entries);
}

std::string TextOf(const StoredState& state) { return Printer(state).Text(state.tree); }

}  // namespace cohort::internal
