#include "cohort/runtime/internal/text_hash.h"

#include "gtest/gtest.h"

namespace cohort::internal {
namespace {

TEST(HashOfTextTest, IsTheOneThatIsPublished) {
  // From the test vectors of FNV-1a with 64 bits.
  EXPECT_EQ(HashOfText(""), 0xcbf29ce484222325);
  EXPECT_EQ(HashOfText("a"), 0xaf63dc4c8601ec8c);
  EXPECT_EQ(HashOfText("foobar"), 0x85944171f73967e8);
  EXPECT_NE(HashOfText("\xff"), HashOfText("\x7f"));
}

}  // namespace
}  // namespace cohort::internal
