// File: text.h
//
// Names, numbers and tables as ckpt prints them. Local; never fails. What comes from files goes through this or through
// internal::Quoted and internal::Printable, so that nothing of it drives the terminal or passes for something else.

#ifndef COHORT_TOOLS_CKPT_TEXT_H_
#define COHORT_TOOLS_CKPT_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::ckpt {

// A name: as it is if it is one plain word, else internal::Quoted.
std::string NameText(std::string_view name);

// `text`, or its beginning and how long it is if it is too long to be looked at.
std::string Shortened(std::string_view text);

// The shortest form that reads back as the same, recognizable as a float; of a NaN that is not the usual one, its bits.
std::string FloatText(double value);

// "17 bytes", "1.5 MiB".
std::string BytesText(int64_t num_bytes);

// Lines of columns that stand below each other. The last column is as wide as it comes.
class Table {
 public:
  // `right_aligned`: places of columns of numbers.
  explicit Table(std::vector<size_t> right_aligned = {}) : right_aligned_(std::move(right_aligned)) {}
  void Add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  bool empty() const { return rows_.empty(); }
  // Every line begins with `indent` and ends with a newline.
  std::string Text(std::string_view indent = "") const;

 private:
  std::vector<size_t> right_aligned_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace cohort::ckpt

#endif  // COHORT_TOOLS_CKPT_TEXT_H_
