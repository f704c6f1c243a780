// File: distributed_data_parallel_options.h
//
// DistributedDataParallelOptions: how gradients are averaged. The names and defaults are Python's, but for sizes, which are
// in bytes.

#ifndef COHORT_RUNTIME_DISTRIBUTED_DATA_PARALLEL_OPTIONS_H_
#define COHORT_RUNTIME_DISTRIBUTED_DATA_PARALLEL_OPTIONS_H_

#if __cplusplus < 202002L
#error "cohort needs C++20: build with --cxxopt=-std=c++20"
#endif

#include <cstdint>

namespace cohort {

// What gradients travel as, of parameters of whatever type. Both halve the bytes of a float. kHalf has 11 bits of
// precision, and what is beyond 65504 becomes infinite, also of a double or bfloat16; kBFloat16 has 8 bits and the range
// of a float. Python: fp16_compress_hook, bf16_compress_hook.
enum class GradientCompression { kNone, kHalf, kBFloat16 };

// Must be equal on all ranks.
struct DistributedDataParallelOptions {
  // Gradients that become known one after the other travel together until they are so many bytes; the first of them, so
  // that something travels early, until they are `first_bucket_bytes`. At least 1.
  int64_t bucket_bytes = int64_t{25} << 20;
  int64_t first_bucket_bytes = int64_t{1} << 20;
  // After the first Backward the buckets are made anew, in the order in which gradients came. Without, they are from the
  // beginning what they become if gradients come in the opposite order of the parameters, and stay so: sums over three
  // and more ranks are then added up in the same order in every step of every process, and a run that is resumed makes,
  // bit for bit, what the unbroken one would have made.
  bool rebuild_buckets = true;
  // Before each Forward the buffers become the main rank's: running means of batch normalization, for example. Python:
  // forward_sync_buffers; its older broadcast_buffers=False does not send them at the beginning either, and an exchange
  // with ranks that do goes wrong.
  bool broadcast_buffers = true;
  // Parameters may have no part in a rank's loss, others at each step: Forward looks for them in the graph of its outputs.
  // Their grad() stays as it is if they have no part in any rank's loss.
  bool find_unused_parameters = false;
  // grad() is a view of what travels: saves a copy of all gradients in memory and a pass over them. Do not detach_() it,
  // as the zero_grad() of LibTorch's optimizers does: call the module's.
  bool gradient_as_bucket_view = false;
  // The same parameters are used in the same way at every step: finds unused ones once, and allows a parameter to get its
  // gradient in several parts (activation checkpoints).
  bool static_graph = false;
  GradientCompression compression = GradientCompression::kNone;
};

}  // namespace cohort

#endif  // COHORT_RUNTIME_DISTRIBUTED_DATA_PARALLEL_OPTIONS_H_
