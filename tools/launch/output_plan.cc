#include "cohort/tools/launch/output_plan.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cohort/tools/launch/flag_values.h"

namespace cohort::launch {
namespace {

// torchrun's numbers: a bit for each stream.
constexpr int kOut = 1;
constexpr int kErr = 2;

std::optional<int> ParseStreams(std::string_view value) {
  if (value.size() != 1 || value[0] < '0' || value[0] > '3') return std::nullopt;
  return value[0] - '0';
}

absl::StatusOr<int> ParseLocalRank(std::string_view what, std::string_view value, std::string_view rank,
                                   int num_ranks) {
  // The whole value is quoted: a rank alone would not be found in a long list.
  const absl::StatusOr<int> number = ParseInteger(what, rank, 0, num_ranks - 1);
  if (number.ok()) return number;
  return BadValue(what, value, absl::StrCat("of local ranks, 0 to ", num_ranks - 1));
}

absl::Status NamedTwice(std::string_view what, std::string_view value, int rank) {
  return absl::InvalidArgumentError(absl::StrCat(what, "=", value, ": names local rank ", rank, " twice"));
}

// The streams of each local rank.
absl::StatusOr<std::vector<int>> ParseSpec(std::string_view what, std::string_view value, int num_ranks) {
  if (value.empty()) value = "0";
  if (const std::optional<int> for_all = ParseStreams(value)) return std::vector<int>(num_ranks, *for_all);
  constexpr int kNotNamed = -1;
  std::vector<int> streams(num_ranks, kNotNamed);
  for (const std::string_view entry : absl::StrSplit(value, ',')) {
    const std::pair<std::string_view, std::string_view> parts = absl::StrSplit(entry, absl::MaxSplits(':', 1));
    const std::optional<int> number = ParseStreams(parts.second);
    if (!number.has_value()) {
      return BadValue(what, value,
                      "0 (nothing), 1 (standard output), 2 (standard error) or 3 (both), "
                      "or a list of such by local rank (0:1,3:3)");
    }
    ABSL_ASSIGN_OR_RETURN(const int rank, ParseLocalRank(what, value, parts.first, num_ranks));
    if (streams[rank] != kNotNamed) return NamedTwice(what, value, rank);
    streams[rank] = *number;
  }
  std::replace(streams.begin(), streams.end(), kNotNamed, 0);
  return streams;
}

// Whether each local rank may print on the console.
absl::StatusOr<std::vector<bool>> ParseFilter(std::string_view what, std::string_view value, int num_ranks) {
  if (value.empty()) return std::vector<bool>(num_ranks, true);
  std::vector<bool> is_listed(num_ranks, false);
  for (const std::string_view entry : absl::StrSplit(value, ',')) {
    ABSL_ASSIGN_OR_RETURN(const int rank, ParseLocalRank(what, value, entry, num_ranks));
    if (is_listed[rank]) return NamedTwice(what, value, rank);
    is_listed[rank] = true;
  }
  return is_listed;
}

}  // namespace

absl::StatusOr<OutputPlan> MakeOutputPlan(const OutputFlags& flags, int nproc_per_node) {
  ABSL_ASSIGN_OR_RETURN(const std::vector<int> redirects, ParseSpec("--redirects", flags.redirects, nproc_per_node));
  ABSL_ASSIGN_OR_RETURN(const std::vector<int> tee, ParseSpec("--tee", flags.tee, nproc_per_node));
  ABSL_ASSIGN_OR_RETURN(const std::vector<bool> is_listed,
                        ParseFilter("--local-ranks-filter", flags.local_ranks_filter, nproc_per_node));
  OutputPlan plan(nproc_per_node);
  for (int rank = 0; rank < nproc_per_node; ++rank) {
    auto stream = [&](int bit) -> StreamPlan {
      const bool is_redirected = (redirects[rank] & bit) != 0;
      const bool is_teed = (tee[rank] & bit) != 0;
      return {.to_console = is_listed[rank] && (is_teed || !is_redirected), .to_file = is_redirected || is_teed};
    };
    plan[rank] = {.out = stream(kOut), .err = stream(kErr)};
  }
  return plan;
}

bool HasFiles(const OutputPlan& plan) {
  return std::any_of(plan.begin(), plan.end(),
                     [](const RankOutputPlan& rank) { return rank.out.to_file || rank.err.to_file; });
}

}  // namespace cohort::launch
