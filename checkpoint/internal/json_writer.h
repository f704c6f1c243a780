// File: json_writer.h

#ifndef COHORT_CHECKPOINT_INTERNAL_JSON_WRITER_H_
#define COHORT_CHECKPOINT_INTERNAL_JSON_WRITER_H_

#include <string>
#include <string_view>

namespace cohort::internal {

// Appends a JSON string. `utf8` is UTF-8.
void AppendJsonString(std::string_view utf8, std::string& json);

// Appends a JSON number that is recognizable as a double (it has a point or an exponent) and reads back as exactly
// `value`, which is finite, the sign of zero included.
void AppendJsonDouble(double value, std::string& json);

}  // namespace cohort::internal

#endif  // COHORT_CHECKPOINT_INTERNAL_JSON_WRITER_H_
