#include "cohort/checkpoint/rng_state.h"

#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ATen/CPUGeneratorImpl.h"
#include "ATen/ops/equal.h"
#include "ATen/ops/rand.h"
#include "ATen/ops/randn.h"
#include "ATen/ops/zeros.h"
#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::testing::HasSubstr;

c10::impl::GenericDict Dict() { return c10::impl::GenericDict(c10::AnyType::get(), c10::AnyType::get()); }

c10::IValue CpuState(const at::Tensor& tensor) {
  c10::impl::GenericDict state = Dict();
  state.insert("cpu", tensor);
  return state;
}

at::Tensor CpuTensor() { return RngState().value().toGenericDict().at("cpu").toTensor(); }

TEST(RngStateTest, TheSameNumbersComeAgain) {
  at::randn({3});  // leaves a spare normal sample in the generator
  const auto state = RngState();
  ASSERT_THAT(state, IsOk());
  const at::Tensor numbers = at::rand({1000}), normal = at::randn({17});
  ASSERT_THAT(SetRngState(*state), IsOk());
  EXPECT_TRUE(at::equal(at::rand({1000}), numbers));
  EXPECT_TRUE(at::equal(at::randn({17}), normal));
}

TEST(RngStateTest, IsWhatPythonCallsTheStateOfTheCpu) {
  const at::Tensor state = CpuTensor();
  EXPECT_EQ(state.scalar_type(), at::kByte);
  EXPECT_EQ(state.sizes(), at::IntArrayRef({5056}));
}

TEST(RngStateTest, IsACopy) {
  const at::Tensor state = CpuTensor(), before = state.clone();
  at::rand({700});
  EXPECT_TRUE(at::equal(state, before));
  EXPECT_FALSE(at::equal(CpuTensor(), before));
}

TEST(RngStateTest, KnowsTheDevicesThatAreThere) {
  EXPECT_THAT(RngState({-1}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("CUDA device -1")));
  EXPECT_THAT(RngState({1000}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("CUDA device 1000")));
}

// Expects that `state` is refused and the generator left alone.
template <typename Matcher>
void ExpectRefused(const c10::IValue& state, const Matcher& message) {
  const at::Tensor before = CpuTensor();
  EXPECT_THAT(SetRngState(state), StatusIs(absl::StatusCode::kInvalidArgument, message));
  EXPECT_TRUE(at::equal(CpuTensor(), before));
}

TEST(SetRngStateTest, RefusesOtherValues) {
  ExpectRefused(c10::IValue("state"), "the random state is a str, not a dict");
  ExpectRefused(Dict(), "the random state has no \"cpu\"");
  c10::impl::GenericDict extra = Dict();
  extra.insert("cpu", CpuTensor());
  extra.insert("numpy", 1);
  ExpectRefused(extra, HasSubstr("\"numpy\" beside"));
  c10::impl::GenericDict text = Dict();
  text.insert("cpu", "bytes");
  ExpectRefused(text, "\"cpu\" of the random state is a str, not a tensor");
}

TEST(SetRngStateTest, RefusesOtherSizesAndDtypes) {
  ExpectRefused(CpuState(at::zeros({5055}, at::kByte)), "\"cpu\" of the random state is Byte [5055], not Byte [5056]");
  ExpectRefused(CpuState(at::zeros({5056}, at::kChar)), HasSubstr("is Char [5056]"));
  ExpectRefused(CpuState(at::zeros({2, 2528}, at::kByte)), HasSubstr("is Byte [2, 2528]"));
}

TEST(SetRngStateTest, RefusesContentsThatNoGeneratorHas) {
  const auto damaged = [](int64_t where, uint8_t byte) {
    const at::Tensor tensor = CpuTensor();
    tensor.data_ptr<uint8_t>()[where] = byte;
    return CpuState(tensor);
  };
  ExpectRefused(CpuState(at::zeros({5056}, at::kByte)), HasSubstr("seeded is 0"));
  ExpectRefused(damaged(9, 0x77), HasSubstr("left is"));
  ExpectRefused(damaged(12, 2), HasSubstr("seeded is 2"));
  ExpectRefused(damaged(18, 1), HasSubstr("next is"));
  ExpectRefused(damaged(24 + 8 * 100 + 4, 1), HasSubstr("a word is"));
  ExpectRefused(damaged(24 + 8 * 624 + 24, 3), HasSubstr("normal_is_valid is 3"));
  ExpectRefused(damaged(5052, 2), HasSubstr("is_next_float_normal_sample_valid is 2"));
}

TEST(SetRngStateTest, TakesAViewOfALargerTensor) {
  const at::Tensor state = CpuTensor();
  const at::Tensor numbers = at::rand({5});
  const at::Tensor wide = at::zeros({5056, 3}, at::kByte);
  wide.select(1, 1).copy_(state);
  ASSERT_THAT(SetRngState(CpuState(wide.select(1, 1))), IsOk());
  EXPECT_TRUE(at::equal(at::rand({5}), numbers));
}

c10::IValue WithCuda(int64_t offset) {
  const at::Tensor bytes = at::zeros({16}, at::kByte);
  std::memcpy(bytes.data_ptr<uint8_t>() + 8, &offset, 8);
  c10::impl::GenericList cuda(c10::AnyType::get());
  cuda.push_back(bytes);
  c10::impl::GenericDict state = Dict();
  state.insert("cpu", CpuTensor());
  state.insert("cuda", std::move(cuda));
  return state;
}

TEST(SetRngStateTest, AStateOfAGpuLoadsWithoutOne) { EXPECT_THAT(SetRngState(WithCuda(8)), IsOk()); }

TEST(SetRngStateTest, ChecksTheStatesOfGpusAllTheSame) {
  ExpectRefused(WithCuda(7), "item 0 of \"cuda\" of the random state is not a generator's: its offset is 7");
  c10::impl::GenericDict state = Dict();
  state.insert("cpu", CpuTensor());
  state.insert("cuda", at::zeros({16}, at::kByte));
  ExpectRefused(state, "\"cuda\" of the random state is a tensor, not a list");
  EXPECT_THAT(SetRngState(WithCuda(8), {0, 1}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("1 CUDA states for 2 devices")));
}

// The numbers that come first after a state.
std::vector<double> Numbers(const absl::StatusOr<c10::IValue>& state) {
  EXPECT_THAT(state, IsOk());
  EXPECT_THAT(SetRngState(*state), IsOk());
  const at::Tensor numbers = at::rand({4}, at::kDouble);
  return std::vector<double>(numbers.const_data_ptr<double>(), numbers.const_data_ptr<double>() + 4);
}

// What two ranks have saved.
std::vector<c10::IValue> TwoSaved() {
  at::manual_seed(5);
  std::vector<c10::IValue> saved = {*RngState()};
  at::manual_seed(6);
  saved.push_back(*RngState());
  return saved;
}

TEST(DeriveRngStateTest, EveryRankOfEveryNumberOfRanksGetsAStreamOfItsOwn) {
  const std::vector<c10::IValue> saved = TwoSaved();
  std::set<std::vector<double>> streams = {Numbers(saved[0]), Numbers(saved[1])};
  for (const int world_size : {1, 3, 4}) {
    for (int rank = 0; rank < world_size; ++rank) {
      EXPECT_TRUE(streams.insert(Numbers(DeriveRngState(saved, rank, world_size))).second) << rank << world_size;
    }
  }
}

TEST(DeriveRngStateTest, TheSameAgainFromTheSame) {
  const std::vector<c10::IValue> saved = TwoSaved();
  const std::vector<double> first = Numbers(DeriveRngState(saved, 2, 3));
  at::rand({100});
  EXPECT_EQ(Numbers(DeriveRngState(TwoSaved(), 2, 3)), first);
}

TEST(DeriveRngStateTest, DependsOnWhatEveryRankHasSaved) {
  std::vector<c10::IValue> saved = TwoSaved();
  const std::vector<double> before = Numbers(DeriveRngState(saved, 0, 3));
  ASSERT_THAT(SetRngState(saved[1]), IsOk());
  at::rand({1}, at::kDouble);
  saved[1] = *RngState();
  EXPECT_NE(Numbers(DeriveRngState(saved, 0, 3)), before);
}

TEST(DeriveRngStateTest, GivesEveryDeviceItsOwnSeed) {
  std::set<std::string> seeds;
  for (int rank = 0; rank < 3; ++rank) {
    const absl::StatusOr<c10::IValue> state = DeriveRngState(TwoSaved(), rank, 3, /*num_cuda_devices=*/2);
    ASSERT_THAT(state, IsOk());
    EXPECT_THAT(SetRngState(*state), IsOk());  // which checks them
    for (const c10::IValue& cuda : state->toGenericDict().at("cuda").toListRef()) {
      seeds.insert(std::string(static_cast<const char*>(cuda.toTensor().const_data_ptr()), 16));
    }
  }
  EXPECT_EQ(seeds.size(), 6u);
}

TEST(DeriveRngStateTest, LeavesTheGeneratorAlone) {
  const std::vector<c10::IValue> saved = TwoSaved();
  const at::Tensor before = CpuTensor();
  ASSERT_THAT(DeriveRngState(saved, 0, 3), IsOk());
  EXPECT_TRUE(at::equal(CpuTensor(), before));
}

TEST(DeriveRngStateTest, SaysWhoseStateIsNone) {
  std::vector<c10::IValue> saved = TwoSaved();
  saved[1] = "state";
  EXPECT_THAT(DeriveRngState(saved, 0, 3),
              StatusIs(absl::StatusCode::kInvalidArgument, "rank 1's: the random state is a str, not a dict"));
  EXPECT_THAT(DeriveRngState({}, 0, 3),
              StatusIs(absl::StatusCode::kInvalidArgument, "there is no random state to go on from"));
}

}  // namespace
}  // namespace cohort
