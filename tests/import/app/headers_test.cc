// cohort's public headers in a repository of somebody else's, with -Wall -Wextra -Werror.

#include "app/public_headers.inc"
#include "gtest/gtest.h"

#if defined(GLOO_VERSION_MAJOR) || defined(NCCL_MAJOR) || defined(CUDART_VERSION)
#error "a public header of cohort includes one of Gloo, NCCL or CUDA"
#endif
#if defined(C10_API) || defined(TORCH_API)
#error "a public header of cohort that needs no LibTorch includes it"
#endif
#if defined(LOG) || defined(CHECK)
#error "a public header of cohort leaks LOG or CHECK"
#endif

const char* HeadersBeforeClash();
const char* HeadersAfterClash();
const char* TorchHeadersBeforeClash();

namespace {

TEST(HeadersTest, GetAlongWithADefinitionOfLog) {
  EXPECT_STREQ(HeadersBeforeClash(), "the monorepo's own");
  EXPECT_STREQ(HeadersAfterClash(), "the monorepo's own");
  EXPECT_STREQ(TorchHeadersBeforeClash(), "the monorepo's own");
}

TEST(HeadersTest, AreEnoughForAWorldOfOne) {
  const std::unique_ptr<cohort::ProcessGroup> group = cohort::ProcessGroup::WorldOfOne();
  EXPECT_TRUE(group->Agree("headers", absl::OkStatus()).ok());
}

}  // namespace
