// Both files are verified first, because values that no checksum vouches for say nothing. Then tensors are read one pair
// at a time.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "cohort/checkpoint/internal/quoted.h"
#include "cohort/checkpoint/state_file.h"
#include "cohort/checkpoint/tensor_header.h"
#include "cohort/runtime/torch_status.h"
#include "cohort/tools/ckpt/commands.h"
#include "cohort/tools/ckpt/console.h"
#include "cohort/tools/ckpt/state_text.h"
#include "cohort/tools/ckpt/tensor_difference.h"
#include "cohort/tools/ckpt/text.h"

namespace cohort::ckpt {
namespace {

constexpr std::string_view kOnlyInFirst = "only in the first";
constexpr std::string_view kOnlyInSecond = "only in the second";

// A name, and which of those that have it: in a .pt file several tensors may have one name.
using Key = std::pair<std::string, int>;

template <typename Named>
std::map<Key, const Named*> ByName(absl::Span<const Named> all) {
  std::map<Key, const Named*> by_name;
  for (const Named& named : all) {
    int number = 0;
    while (!by_name.emplace(Key(named.name, number), &named).second) ++number;
  }
  return by_name;
}

std::string Text(const TensorDifference& difference, int64_t num_elements) {
  if (difference.num_different == 0) return "bit-equal";
  std::string text =
      absl::StrCat(difference.num_different, " of ", num_elements, " elements differ, max abs difference ");
  if (difference.is_integral) return absl::StrCat(text, difference.max_integral);
  const bool is_all_nan = difference.num_nan == difference.num_different;
  absl::StrAppend(&text, is_all_nan ? "nan" : FloatText(difference.max));
  if (difference.num_nan > 0 && !is_all_nan) absl::StrAppend(&text, ", and ", difference.num_nan, " nan");
  return text;
}

class Differ {
 public:
  Differ(StateFile first, StateFile second, std::string what)
      : first_(std::move(first)), second_(std::move(second)), bar_(std::move(what)) {
    for (const StateFile* file : {&first_, &second_}) {
      const int64_t passes = file->has_checksums() ? 2 : 1;
      for (const TensorHeader& header : file->tensors()) total_ += passes * NumBytes(header);
    }
  }

  absl::Status Run() {
    ABSL_RETURN_IF_ERROR(Verify(first_));
    ABSL_RETURN_IF_ERROR(Verify(second_));
    ABSL_RETURN_IF_ERROR(CompareTensors());
    ABSL_RETURN_IF_ERROR(CompareValues());
    CompareMetadata();
    return absl::OkStatus();
  }

  bool is_same() const { return num_differences_ == 0; }

  std::string Text() const {
    std::string out = table_.Text();
    if (is_same()) return absl::StrCat(out, "the same, bit for bit\n");
    return absl::StrCat(out, num_differences_, num_differences_ == 1 ? " difference\n" : " differences\n");
  }

 private:
  absl::Status Verify(const StateFile& file) {
    const int64_t before = done_;
    return file.Verify([&](int64_t done, int64_t) {
      done_ = before + done;
      bar_.Show(done_, total_);
    });
  }

  void AddDifference(std::string_view name, std::string_view text) {
    ++num_differences_;
    table_.Add({Shortened(NameText(name)), std::string(text)});
  }

  absl::Status CompareTensors() {
    const auto firsts = ByName(first_.tensors());
    const auto seconds = ByName(second_.tensors());
    for (const auto& [key, header] : firsts) {
      const auto found = seconds.find(key);
      if (found == seconds.end()) {
        AddDifference(key.first, absl::StrCat("tensor ", kOnlyInFirst));
      } else {
        ABSL_RETURN_IF_ERROR(ComparePair(*header, *found->second));
      }
    }
    for (const auto& [key, header] : seconds) {
      if (!firsts.contains(key)) AddDifference(key.first, absl::StrCat("tensor ", kOnlyInSecond));
    }
    return absl::OkStatus();
  }

  absl::Status ComparePair(const TensorHeader& first, const TensorHeader& second) {
    if (first.dtype != second.dtype || first.sizes != second.sizes) {
      AddDifference(first.name, absl::StrCat(DtypeText(first), " ", ShapeText(first), " and ", DtypeText(second), " ",
                                             ShapeText(second)));
      return absl::OkStatus();
    }
    const ReadOptions options = {.verify = false};
    ABSL_ASSIGN_OR_RETURN(const at::Tensor a, first_.ReadTensor(&first - first_.tensors().data(), options));
    ABSL_ASSIGN_OR_RETURN(const at::Tensor b, second_.ReadTensor(&second - second_.tensors().data(), options));
    ABSL_ASSIGN_OR_RETURN(const TensorDifference difference, InvokeTorch([&] {
                            return Compare(a, b, [&](int64_t more) {
                              done_ += 2 * more * static_cast<int64_t>(a.element_size());
                              bar_.Show(done_, total_);
                            });
                          }));
    if (difference.num_different > 0) ++num_differences_;
    table_.Add({Shortened(NameText(first.name)), ckpt::Text(difference, a.numel())});
    return absl::OkStatus();
  }

  absl::Status CompareValues() {
    ABSL_ASSIGN_OR_RETURN(const std::vector<Value> first, ValuesOf(first_));
    ABSL_ASSIGN_OR_RETURN(const std::vector<Value> second, ValuesOf(second_));
    const auto firsts = ByName(absl::MakeConstSpan(first));
    const auto seconds = ByName(absl::MakeConstSpan(second));
    for (const auto& [key, value] : firsts) {
      const auto found = seconds.find(key);
      if (found == seconds.end()) {
        AddValue(*value, kOnlyInFirst);
      } else if (value->type != found->second->type || value->text != found->second->text) {
        AddDifference(key.first, absl::StrCat(Shortened(value->text), " and ", Shortened(found->second->text)));
      }
    }
    for (const auto& [key, value] : seconds) {
      if (!firsts.contains(key)) AddValue(*value, kOnlyInSecond);
    }
    return absl::OkStatus();
  }

  // Of a dict on one side only its items tell: {"a": {"b": tensor}} is {"a.b": tensor}.
  void AddValue(const Value& value, std::string_view where) {
    if (!value.is_split) AddDifference(value.name, absl::StrCat(Shortened(value.text), " ", where));
  }

  // Files of other formats have none, which is no difference of their states.
  void CompareMetadata() {
    if (first_.format() != second_.format()) return;
    std::map<std::string, std::string> firsts(first_.metadata().begin(), first_.metadata().end());
    std::map<std::string, std::string> seconds(second_.metadata().begin(), second_.metadata().end());
    for (const auto& [key, text] : firsts) {
      const auto found = seconds.find(key);
      const bool is_there = found != seconds.end();
      if (is_there && found->second == text) continue;
      AddDifference(key, absl::StrCat("metadata ", Shortened(internal::Quoted(text)), " ",
                                      is_there ? absl::StrCat("and ", Shortened(internal::Quoted(found->second)))
                                               : std::string(kOnlyInFirst)));
    }
    for (const auto& [key, text] : seconds) {
      if (firsts.contains(key)) continue;
      AddDifference(key, absl::StrCat("metadata ", Shortened(internal::Quoted(text)), " ", kOnlyInSecond));
    }
  }

  const StateFile first_;
  const StateFile second_;
  ProgressBar bar_;
  Table table_;
  int64_t total_ = 0;
  int64_t done_ = 0;
  int64_t num_differences_ = 0;
};

absl::StatusOr<bool> Diff(const std::string& first, const std::string& second) {
  ABSL_ASSIGN_OR_RETURN(StateFile a, OpenState(first));
  ABSL_ASSIGN_OR_RETURN(StateFile b, OpenState(second));
  std::string text;
  bool is_same = false;
  {
    Differ differ(std::move(a), std::move(b), absl::StrCat(NameText(first), " ", NameText(second)));
    ABSL_RETURN_IF_ERROR(differ.Run());
    text = differ.Text();
    is_same = differ.is_same();
  }
  Print(text);  // when the bar is gone
  return is_same;
}

}  // namespace

int DiffFiles(const std::string& first, const std::string& second) {
  const absl::StatusOr<bool> is_same = Diff(first, second);
  if (is_same.ok()) return *is_same ? kExitGood : kExitBad;
  Complain(is_same.status().message());
  return kExitTrouble;
}

}  // namespace cohort::ckpt
