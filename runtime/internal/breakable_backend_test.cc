#include "cohort/runtime/internal/breakable_backend.h"

#include <exception>
#include <memory>
#include <stdexcept>
#include <thread>  // NOLINT: the standard thread is all that is needed
#include <vector>

#include "ATen/core/ivalue.h"
#include "c10/util/Exception.h"
#include "c10/util/intrusive_ptr.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::internal {
namespace {

using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;

FuturePtr MakeFuture() { return c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get()); }

TEST(OpenOperationsTest, AnOperationEndsWithTheInnerOnesValue) {
  const auto operations = std::make_shared<OpenOperations>();
  const FuturePtr inner = MakeFuture(), outer = operations->Follow(inner);
  EXPECT_FALSE(outer->completed());
  inner->markCompleted(c10::IValue(7));
  EXPECT_EQ(outer->value().toInt(), 7);
  EXPECT_FALSE(operations->has_failed());
}

TEST(OpenOperationsTest, AnOperationThatIsOverAlreadyEndsAtOnce) {
  const auto operations = std::make_shared<OpenOperations>();
  const FuturePtr inner = MakeFuture();
  inner->markCompleted(c10::IValue(7));
  EXPECT_EQ(operations->Follow(inner)->value().toInt(), 7);
}

TEST(OpenOperationsTest, TheInnerOnesErrorIsHandedOnAsItIs) {
  const auto operations = std::make_shared<OpenOperations>();
  const FuturePtr inner = MakeFuture(), outer = operations->Follow(inner);
  inner->setError(std::make_exception_ptr(std::out_of_range("pipe")));
  EXPECT_THROW(outer->waitAndThrow(), std::out_of_range);
  EXPECT_TRUE(operations->has_failed());
}

TEST(OpenOperationsTest, PoisonEndsWhoWaitsAndWhatComesLater) {
  const auto operations = std::make_shared<OpenOperations>();
  const FuturePtr inner = MakeFuture(), outer = operations->Follow(inner);
  std::thread poisoner([&] { operations->Poison(); });
  EXPECT_THROW(outer->waitAndThrow(), c10::DistError);
  poisoner.join();
  EXPECT_TRUE(operations->has_failed());
  EXPECT_TRUE(operations->Follow(MakeFuture())->hasError());
}

TEST(OpenOperationsTest, WhatEndsAfterThePoisonChangesNothing) {
  const auto operations = std::make_shared<OpenOperations>();
  const FuturePtr inner = MakeFuture(), outer = operations->Follow(inner);
  operations->Poison();
  inner->markCompleted(c10::IValue(7));
  EXPECT_TRUE(outer->hasError());
}

TEST(OpenOperationsTest, AnOperationMayEndAfterNobodyIsInterestedAnyMore) {
  const FuturePtr inner = MakeFuture();
  std::make_shared<OpenOperations>()->Follow(inner);
  inner->markCompleted(c10::IValue(7));  // a sanitizer finds a use of what is gone
}

}  // namespace
}  // namespace cohort::internal
