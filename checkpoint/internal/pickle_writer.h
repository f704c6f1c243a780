// File: pickle_writer.h
//
// PickleWriter: writes a Python pickle (protocol 2, the one that torch.save writes) operation by operation.

#ifndef COHORT_CHECKPOINT_INTERNAL_PICKLE_WRITER_H_
#define COHORT_CHECKPOINT_INTERNAL_PICKLE_WRITER_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"

namespace cohort::internal {

// A pickle is a program for a stack machine. Every method appends one operation, or the few that push one value; the
// comment says what it does to the stack, top at the right. The caller keeps the stack in order.
class PickleWriter {
 public:
  PickleWriter();

  void Bool(bool value);                        // -> value
  void Int(int64_t value);                      // -> value
  void String(std::string_view utf8);           // -> value; less than 4 GiB
  void Ints(absl::Span<const int64_t> values);  // -> tuple
  void EmptyDict();                             // -> {}
  void EmptyTuple();                            // -> ()

  // -> the class or function `name` of `module`. At most 256 different ones.
  void Global(std::string_view module, std::string_view name);

  void Mark();          // -> mark
  void Tuple();         // mark a b ... -> (a, b, ...)
  void SetItems();      // dict mark key value ... -> dict, with the items in it
  void Reduce();        // function tuple -> function(*tuple)
  void PersistentId();  // id -> what the reader's persistent_load(id) returns

  // Ends the program, which must have left one value on the stack, and returns it. Call once.
  std::string Finish();

 private:
  void Op(char code) { program_.push_back(code); }

  std::string program_;
  absl::flat_hash_map<std::string, int> memo_;  // of globals
};

}  // namespace cohort::internal

#endif  // COHORT_CHECKPOINT_INTERNAL_PICKLE_WRITER_H_
