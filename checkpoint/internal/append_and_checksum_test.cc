#include "cohort/checkpoint/internal/append_and_checksum.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "cohort/checkpoint/internal/checksummed_file.h"
#include "cohort/checkpoint/internal/crc32.h"
#include "cohort/checkpoint/internal/string_file.h"
#include "cohort/checkpoint/writable_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::internal {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::IsOkAndHolds;
using ::absl_testing::StatusIs;

constexpr size_t kMiB = size_t{1} << 20;

TEST(AppendAndChecksumTest, WritesEverythingAndKnowsItsChecksum) {
  std::string bytes;
  for (size_t i = 0; i < 5 * kMiB + 1; ++i) bytes.push_back(static_cast<char>(i * 2654435761u >> 13));
  for (const size_t size : {size_t{0}, size_t{1}, kMiB / 4, kMiB, 2 * kMiB - 1, 2 * kMiB, 4 * kMiB, 5 * kMiB + 1}) {
    StringFile out;
    ChecksummedFile file(out);
    const std::string_view part = std::string_view(bytes).substr(0, size);
    ASSERT_THAT(file.Append("before"), IsOk());
    EXPECT_THAT(AppendAndChecksum(part, file), IsOkAndHolds(Crc32(part))) << size;
    EXPECT_EQ(out.contents().substr(6), part) << size;
    EXPECT_THAT(file.Crc32(), IsOkAndHolds(Crc32(out.contents()))) << size;
  }
}

TEST(AppendAndChecksumTest, AnErrorOfTheFileEndsIt) {
  class FullFile final : public WritableFile {
   public:
    absl::Status Append(std::string_view bytes) override {
      if (num_bytes_ > static_cast<int64_t>(kMiB)) return absl::ResourceExhaustedError("full");
      num_bytes_ += static_cast<int64_t>(bytes.size());
      return absl::OkStatus();
    }
    absl::Status Overwrite(int64_t, std::string_view) override { return absl::OkStatus(); }
    int64_t num_bytes() const override { return num_bytes_; }

   private:
    int64_t num_bytes_ = 0;
  };
  FullFile file;
  EXPECT_THAT(AppendAndChecksum(std::string(20 * kMiB, 'x'), file), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_LT(file.num_bytes(), static_cast<int64_t>(2 * kMiB));
}

}  // namespace
}  // namespace cohort::internal
