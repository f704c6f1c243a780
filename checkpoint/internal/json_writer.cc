#include "cohort/checkpoint/internal/json_writer.h"

#include <charconv>
#include <cmath>
#include <string>
#include <string_view>

#include "absl/log/absl_check.h"
#include "nlohmann/json.hpp"

namespace cohort::internal {

void AppendJsonString(std::string_view utf8, std::string& json) { json += nlohmann::json(utf8).dump(); }

void AppendJsonDouble(double value, std::string& json) {
  ABSL_CHECK(std::isfinite(value));
  char buffer[32];  // the shortest form that reads back as the same has at most 24 characters
  const std::to_chars_result end = std::to_chars(buffer, buffer + sizeof(buffer), value);
  const std::string_view text(buffer, end.ptr - buffer);
  json += text;
  if (text.find_first_of(".e") == std::string_view::npos) json += ".0";
}

}  // namespace cohort::internal
