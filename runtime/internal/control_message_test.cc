#include "cohort/runtime/internal/control_message.h"

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cohort/runtime/internal/backend.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::internal {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::IsOkAndHolds;
using ::absl_testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::Eq;
using ::testing::HasSubstr;

// One of each kind, with every field set.
std::vector<ControlMessage> Samples() {
  return {
      Hello{.token = "secret", .rank = 3, .world_size = 4, .run_id = "job 7", .pid = 4711},
      Arrive{.generation = 9,
             .arrival = {.operation = "Agree \"x\"",
                         .delivery = Delivery::kAllToMain,
                         .status = absl::DataLossError("oh"),
                         .payload = std::string("pay\0load", 8),
                         .timeout = absl::Milliseconds(1500)}},
      Report{.operation = "Barrier", .error = absl::UnavailableError("pipe"), .waited = absl::Seconds(2)},
      Here{.inquiry = 5, .operation = "Barrier"},
      Goodbye{.timeout = absl::InfiniteDuration()},
      Outcome{.generation = 9, .status = absl::OkStatus(), .payloads = {"", "a", "bc"}},
      Poison{.cause = absl::DeadlineExceededError("rank 3")},
      WhereAreYou{.inquiry = 5},
      Farewell{.status = absl::OkStatus()},
      Abort{.why = absl::DataLossError("no batch")},
  };
}

absl::StatusOr<std::optional<ControlMessage>> Parse(std::string_view bytes) {
  FrameParser parser(kMaxBodyBytes);
  parser.Append(bytes);
  return parser.Next();
}

// `frame` with another header field.
std::string WithByte(std::string frame, size_t index, uint8_t value) {
  frame[index] = static_cast<char>(value);
  return frame;
}

TEST(ControlMessageTest, EveryKindHasASample) {
  std::vector<ControlMessage> samples = Samples();
  ASSERT_EQ(samples.size(), std::variant_size_v<ControlMessage>);
  for (size_t kind = 0; kind < samples.size(); ++kind) EXPECT_EQ(samples[kind].index(), kind);
}

TEST(ControlMessageTest, EveryKindComesBackAsItWas) {
  for (const ControlMessage& sample : Samples()) {
    std::string frame = EncodeFrame(sample);
    absl::StatusOr<std::optional<ControlMessage>> parsed = Parse(frame);
    ASSERT_THAT(parsed, IsOk());
    ASSERT_TRUE(parsed->has_value());
    EXPECT_EQ((*parsed)->index(), sample.index());
    EXPECT_EQ(EncodeFrame(**parsed), frame);
  }
}

TEST(ControlMessageTest, FieldsComeBackAsTheyWere) {
  absl::StatusOr<std::optional<ControlMessage>> parsed = Parse(EncodeFrame(Samples()[1]));
  ASSERT_THAT(parsed, IsOk());
  const Arrive& arrive = std::get<Arrive>(parsed->value());
  EXPECT_EQ(arrive.generation, 9u);
  EXPECT_EQ(arrive.arrival.operation, "Agree \"x\"");
  EXPECT_EQ(arrive.arrival.delivery, Delivery::kAllToMain);
  EXPECT_EQ(arrive.arrival.status, absl::DataLossError("oh"));
  EXPECT_EQ(arrive.arrival.payload, std::string_view("pay\0load", 8));
  EXPECT_EQ(arrive.arrival.timeout, absl::Milliseconds(1500));
  parsed = Parse(EncodeFrame(Samples()[5]));
  ASSERT_THAT(parsed, IsOk());
  EXPECT_THAT(std::get<Outcome>(parsed->value()).payloads, ElementsAre("", "a", "bc"));
}

// The layout is a promise between versions that say 1.
TEST(ControlMessageTest, TheLayoutIsFixed) {
  EXPECT_EQ(EncodeFrame(WhereAreYou{.inquiry = 0x0102}),
            std::string_view("co\x01\x07\x08\0\0\0\x02\x01\0\0\0\0\0\0", 16));
  EXPECT_EQ(EncodeFrame(Poison{absl::CancelledError("ab")}),
            std::string_view("co\x01\x06\x07\0\0\0\x01\x02\0\0\0ab", 15));
}

TEST(ControlMessageTest, AnInfiniteTimeoutStaysVeryLong) {
  absl::StatusOr<std::optional<ControlMessage>> parsed =
      Parse(EncodeFrame(Goodbye{.timeout = absl::InfiniteDuration()}));
  ASSERT_THAT(parsed, IsOk());
  EXPECT_GT(std::get<Goodbye>(parsed->value()).timeout, absl::Hours(24 * 365 * 100));
}

TEST(ControlMessageTest, AnEndlessErrorTextIsCut) {
  absl::StatusOr<std::optional<ControlMessage>> parsed =
      Parse(EncodeFrame(Poison{absl::InternalError(std::string(1 << 20, 'x'))}));
  ASSERT_THAT(parsed, IsOk());
  EXPECT_EQ(std::get<Poison>(parsed->value()).cause.message().size(), kMaxTextBytes);
}

TEST(FrameParserTest, MessagesMayArriveByteByByte) {
  std::string stream;
  for (const ControlMessage& sample : Samples()) stream += EncodeFrame(sample);
  FrameParser parser(kMaxBodyBytes);
  std::string again;
  for (char byte : stream) {
    parser.Append(std::string_view(&byte, 1));
    absl::StatusOr<std::optional<ControlMessage>> message = parser.Next();
    ASSERT_THAT(message, IsOk());
    if (message->has_value()) again += EncodeFrame(**message);
  }
  EXPECT_EQ(again, stream);
}

TEST(FrameParserTest, MessagesMayArriveAllAtOnce) {
  std::string stream;
  for (const ControlMessage& sample : Samples()) stream += EncodeFrame(sample);
  FrameParser parser(kMaxBodyBytes);
  parser.Append(stream);
  std::string again;
  while (true) {
    absl::StatusOr<std::optional<ControlMessage>> message = parser.Next();
    ASSERT_THAT(message, IsOk());
    if (!message->has_value()) break;
    again += EncodeFrame(**message);
  }
  EXPECT_EQ(again, stream);
}

TEST(FrameParserTest, TheLargestPayloadPasses) {
  Arrive arrive{.generation = 1,
                .arrival = {.payload = std::string(kMaxPayloadBytes, 'x'), .timeout = absl::Seconds(1)}};
  absl::StatusOr<std::optional<ControlMessage>> parsed = Parse(EncodeFrame(arrive));
  ASSERT_THAT(parsed, IsOk());
  EXPECT_EQ(std::get<Arrive>(parsed->value()).arrival.payload.size(), static_cast<size_t>(kMaxPayloadBytes));
}

TEST(FrameParserTest, AStartIsNotYetAMessage) {
  for (const ControlMessage& sample : Samples()) {
    std::string frame = EncodeFrame(sample);
    for (size_t size = 0; size < frame.size(); ++size) {
      EXPECT_THAT(Parse(std::string_view(frame).substr(0, size)), IsOkAndHolds(Eq(std::nullopt)));
    }
  }
}

TEST(FrameParserTest, WhatIsNotAFrameIsRefusedByItsHeader) {
  std::string frame = EncodeFrame(Samples()[0]);
  auto refused = StatusIs(absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Parse("GET / HTTP/1.1\r\n"), refused);
  EXPECT_THAT(Parse(WithByte(frame, 0, 'C')), refused);
  EXPECT_THAT(Parse(WithByte(frame, 2, 2)), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("version 1")));
  EXPECT_THAT(Parse(WithByte(frame, 3, std::variant_size_v<ControlMessage>)), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("unknown kind")));
  EXPECT_THAT(Parse(WithByte(frame, 3, 255)), refused);
}

TEST(FrameParserTest, ATooLongFrameIsRefusedBeforeItArrives) {
  std::string header = EncodeFrame(WhereAreYou{}).substr(0, 8);
  EXPECT_THAT(Parse(WithByte(header, 7, 0xff)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("at most 67174400 are allowed")));
}

TEST(FrameParserTest, OnlyTheFirstFrameHasTheStrangersLimit) {
  std::string large = EncodeFrame(Here{.inquiry = 1, .operation = std::string(2 * kMaxHelloBytes, 'x')});
  FrameParser parser(kMaxHelloBytes);
  parser.Append(large);
  EXPECT_THAT(parser.Next(), StatusIs(absl::StatusCode::kInvalidArgument));
  parser = FrameParser(kMaxHelloBytes);
  parser.Append(EncodeFrame(Samples()[0]) + large);
  EXPECT_THAT(parser.Next(), IsOk());
  EXPECT_THAT(parser.Next(), IsOk());
}

TEST(FrameParserTest, ABodyThatEndsTooEarlyOrTooLateIsRefused) {
  for (const ControlMessage& sample : Samples()) {
    std::string frame = EncodeFrame(sample);
    std::string longer = WithByte(frame + '\0', 4, static_cast<uint8_t>(frame.size() - 8 + 1));
    EXPECT_THAT(Parse(longer), StatusIs(absl::StatusCode::kInvalidArgument)) << "kind " << sample.index();
    for (size_t size = 8; size < frame.size(); ++size) {
      std::string shorter = WithByte(frame.substr(0, size), 4, static_cast<uint8_t>(size - 8));
      EXPECT_THAT(Parse(shorter), StatusIs(absl::StatusCode::kInvalidArgument)) << "kind " << sample.index();
    }
  }
}

TEST(FrameParserTest, ALengthInsideThatPromisesTooMuchIsRefused) {
  std::string text = EncodeFrame(Poison{absl::CancelledError("ab")});
  EXPECT_THAT(Parse(WithByte(text, 12, 0xff)), StatusIs(absl::StatusCode::kInvalidArgument));
  std::string count = EncodeFrame(Outcome{.generation = 1});
  EXPECT_THAT(Parse(WithByte(count, count.size() - 1, 0xff)), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(FrameParserTest, NumbersThatNameNothingAreRefused) {
  std::string status = EncodeFrame(Poison{absl::CancelledError("")});
  EXPECT_THAT(Parse(WithByte(status, 8, 16)), IsOk());
  EXPECT_THAT(Parse(WithByte(status, 8, 17)), StatusIs(absl::StatusCode::kInvalidArgument));
  std::string arrive = EncodeFrame(Arrive{});
  size_t delivery = 8 + 8 + 4;
  EXPECT_THAT(Parse(WithByte(arrive, delivery, 3)), IsOk());
  EXPECT_THAT(Parse(WithByte(arrive, delivery, 4)), StatusIs(absl::StatusCode::kInvalidArgument));
}

// Whatever arrives, the parser ends with messages, the wish for more, or an error; the sanitizers see the rest.
TEST(FrameParserTest, MutatedFramesDoNoHarm) {
  std::mt19937 random(20260526);
  std::vector<ControlMessage> samples = Samples();
  int num_refused = 0;
  int num_parsed = 0;
  for (int round = 0; round < 50'000; ++round) {
    std::string stream =
        EncodeFrame(samples[random() % samples.size()]) + EncodeFrame(samples[random() % samples.size()]);
    for (size_t mutations = 1 + random() % 3; mutations > 0; --mutations) {
      stream[random() % stream.size()] = static_cast<char>(random());
    }
    FrameParser parser(kMaxBodyBytes);
    parser.Append(stream);
    while (true) {
      absl::StatusOr<std::optional<ControlMessage>> message = parser.Next();
      if (!message.ok()) ++num_refused;
      if (!message.ok() || !message->has_value()) break;
      EXPECT_FALSE(EncodeFrame(**message).empty());
      ++num_parsed;
    }
  }
  EXPECT_GT(num_refused, 1000);
  EXPECT_GT(num_parsed, 1000);
}

}  // namespace
}  // namespace cohort::internal
