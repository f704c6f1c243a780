#include "cohort/checkpoint/internal/append_and_checksum.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "cohort/checkpoint/internal/crc32.h"
#include "cohort/checkpoint/writable_file.h"

namespace cohort::internal {
namespace {

// How much is checksummed before it is written, so that the copy into the page cache finds it in the processor's cache.
constexpr size_t kPieceBytes = size_t{256} << 10;
// A thread costs as much as the checksum of this.
constexpr size_t kWorthAThread = size_t{2} << 20;

// The checksums of the pieces of some bytes, computed by a thread that tries to be ahead of whoever asks for them. Nobody waits:
// where there is no processor for it, and it is not ahead, whoever asks computes.
class ChecksumsAhead {
 public:
  explicit ChecksumsAhead(std::string_view bytes) : bytes_(bytes), crc32s_((bytes.size() - 1) / kPieceBytes + 1) {
    // Signals are for the program's own threads.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      thread_ = std::thread([this] { ComputeAhead(); });
    } catch (const std::system_error&) {
      // No more threads; then it is never ahead.
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  ~ChecksumsAhead() {
    asked_ = crc32s_.size();
    if (thread_.joinable()) thread_.join();
  }

  // Of the piece that begins at `offset`. To be asked for in their order.
  uint32_t At(size_t offset) {
    const size_t piece = offset / kPieceBytes;
    asked_ = piece;
    const uint64_t known = crc32s_[piece];
    return known & kKnown ? static_cast<uint32_t>(known) : Compute(piece);
  }

 private:
  static constexpr uint64_t kKnown = uint64_t{1} << 32;

  uint32_t Compute(size_t piece) const { return Crc32(bytes_.substr(piece * kPieceBytes, kPieceBytes)); }

  void ComputeAhead() {
    for (size_t piece = 1; piece < crc32s_.size(); piece = std::max(piece, asked_.load()) + 1) {
      crc32s_[piece] = kKnown | Compute(piece);
    }
  }

  const std::string_view bytes_;
  std::vector<std::atomic<uint64_t>> crc32s_;  // kKnown and the checksum, or 0
  std::atomic<size_t> asked_ = 0;              // the last piece that was
  std::thread thread_;
};

template <typename ChecksumOf>
absl::StatusOr<uint32_t> AppendPieces(std::string_view bytes, WritableFile& file, ChecksumOf checksum_of) {
  uint32_t whole = 0;
  for (size_t offset = 0; offset < bytes.size(); offset += kPieceBytes) {
    const std::string_view piece = bytes.substr(offset, kPieceBytes);
    const uint32_t crc32 = checksum_of(offset, piece);
    whole = offset == 0 ? crc32 : CombineCrc32(whole, crc32, static_cast<int64_t>(piece.size()));
    ABSL_RETURN_IF_ERROR(file.AppendWithCrc32(piece, crc32));
  }
  return whole;
}

}  // namespace

absl::StatusOr<uint32_t> AppendAndChecksum(std::string_view bytes, WritableFile& file) {
  static const bool has_processors = std::thread::hardware_concurrency() > 1;
  if (bytes.size() < kWorthAThread || !has_processors) {
    return AppendPieces(bytes, file, [](size_t, std::string_view piece) { return Crc32(piece); });
  }
  ChecksumsAhead ahead(bytes);
  return AppendPieces(bytes, file, [&](size_t offset, std::string_view) { return ahead.At(offset); });
}

}  // namespace cohort::internal
