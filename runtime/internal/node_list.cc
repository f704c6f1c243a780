// The grammar, as hosts are written by Slurm:
//
//   list   = node *( "," node )
//   node   = 1*( characters of a host name / "[" range *( "," range ) "]" )
//   range  = digits [ "-" digits ]
//
// The first number of a range is written as it stands, zeros included: n[01-03] is n01, n02, n03.

#include "cohort/runtime/internal/node_list.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cohort/runtime/internal/environment_values.h"

namespace cohort::internal {
namespace {

// More digits than any host's name has; and their number fits.
constexpr size_t kMaxDigits = 18;

// Each step multiplies or adds what is at most kMaxWorldSize: nothing overflows.
bool IsTooMany(int64_t num_nodes) { return num_nodes > kMaxWorldSize; }

// The nodes of "01-03,7", with the first number as `first`.
std::optional<NodeList> ParseRanges(std::string_view text) {
  NodeList numbers;
  for (const std::string_view range : absl::StrSplit(text, ',')) {
    const size_t dash = range.find('-');
    const std::string_view from = range.substr(0, dash);
    const std::string_view to = dash == std::string_view::npos ? from : range.substr(dash + 1);
    if (from.size() > kMaxDigits || to.size() > kMaxDigits) return std::nullopt;
    const std::optional<int64_t> first = ParseDigits(from);
    const std::optional<int64_t> last = ParseDigits(to);
    if (!first.has_value() || !last.has_value() || *first > *last) return std::nullopt;
    if (numbers.num_nodes == 0) numbers.first = std::string(from);
    const int64_t num_numbers = *last - *first + 1;
    if (IsTooMany(num_numbers)) return std::nullopt;
    numbers.num_nodes += num_numbers;
    if (IsTooMany(numbers.num_nodes)) return std::nullopt;
  }
  return numbers;
}

// The nodes of "rack[1-2]n[0-63]", which holds no comma outside of brackets.
std::optional<NodeList> ParseNode(std::string_view text) {
  NodeList nodes = {.first = "", .num_nodes = 1};
  while (!text.empty()) {
    const size_t open = text.find('[');
    absl::StrAppend(&nodes.first, text.substr(0, open));
    if (open == std::string_view::npos) break;
    const size_t close = text.find(']', open);
    if (close == std::string_view::npos) return std::nullopt;
    const std::optional<NodeList> numbers = ParseRanges(text.substr(open + 1, close - open - 1));
    if (!numbers.has_value()) return std::nullopt;
    absl::StrAppend(&nodes.first, numbers->first);
    nodes.num_nodes *= numbers->num_nodes;
    if (IsTooMany(nodes.num_nodes)) return std::nullopt;
    text.remove_prefix(close + 1);
  }
  if (!IsHostName(nodes.first)) return std::nullopt;
  return nodes;
}

// The first comma outside of brackets, or the end.
size_t EndOfNode(std::string_view text) {
  bool is_inside = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '[') is_inside = true;
    if (text[i] == ']') is_inside = false;
    if (text[i] == ',' && !is_inside) return i;
  }
  return text.size();
}

}  // namespace

std::optional<NodeList> ParseNodeList(std::string_view text) {
  NodeList list;
  while (true) {
    const size_t end = EndOfNode(text);
    std::optional<NodeList> nodes = ParseNode(text.substr(0, end));
    if (!nodes.has_value()) return std::nullopt;
    if (list.num_nodes == 0) list.first = std::move(nodes->first);
    list.num_nodes += nodes->num_nodes;
    if (IsTooMany(list.num_nodes)) return std::nullopt;
    if (end == text.size()) return list;
    text.remove_prefix(end + 1);
  }
}

}  // namespace cohort::internal
