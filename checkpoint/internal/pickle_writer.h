// File: pickle_writer.h
//
// PickleWriter: writes a Python pickle (protocol 2, the one that torch.save writes) operation by operation.

#ifndef COHORT_CHECKPOINT_INTERNAL_PICKLE_WRITER_H_
#define COHORT_CHECKPOINT_INTERNAL_PICKLE_WRITER_H_

#if __cplusplus < 202002L
#error "cohort needs C++20: build with --cxxopt=-std=c++20"
#endif

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

  void None();                                  // -> None
  void Bool(bool value);                        // -> value
  void Int(int64_t value);                      // -> value
  void Double(double value);                    // -> value
  void String(std::string_view utf8);           // -> value; less than 4 GiB
  void SharedString(std::string_view utf8);     // the same, for strings that are written again and again
  void Ints(absl::Span<const int64_t> values);  // -> tuple
  void EmptyDict();                             // -> {}
  void EmptyList();                             // -> []
  void EmptyTuple();                            // -> ()

  // -> the class or function `name` of `module`.
  void Global(std::string_view module, std::string_view name);

  uint32_t Put();           // value -> value, which Get can fetch from now on by what is returned
  void Get(uint32_t memo);  // -> value

  void Mark();          // -> mark
  void Tuple();         // mark a b ... -> (a, b, ...)
  void Appends();       // list mark a b ... -> list, with the items in it
  void SetItems();      // dict mark key value ... -> dict, with the items in it
  void Reduce();        // function tuple -> function(*tuple)
  void PersistentId();  // id -> what the reader's persistent_load(id) returns

  // Ends the program, which must have left one value on the stack, and returns it. Call once.
  std::string Finish();

 private:
  void Op(char code) { program_.push_back(code); }
  // True if `operation` was written before and its value was fetched; otherwise the caller writes it, and then calls Put.
  bool GetIfKnown(std::string_view operation);
  void Number(uint64_t bits, int num_bytes);

  std::string program_;
  uint32_t num_put_ = 0;
  absl::flat_hash_map<std::string, uint32_t> memo_;  // of globals and shared strings: the operation that makes each
};

}  // namespace cohort::internal

#endif  // COHORT_CHECKPOINT_INTERNAL_PICKLE_WRITER_H_
