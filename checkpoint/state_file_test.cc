#include "cohort/checkpoint/state_file.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ATen/ATen.h"
#include "absl/log/absl_check.h"
#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "cohort/checkpoint/internal/string_file.h"
#include "cohort/checkpoint/safetensors_file.h"
#include "cohort/checkpoint/testing/files.h"
#include "cohort/checkpoint/torch_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::c10::IValue;
using ::cohort::internal::StringFile;
using ::cohort::testing::FreshDirectory;
using ::cohort::testing::WriteFile;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Items = std::vector<std::pair<IValue, IValue>>;

IValue Dict(const Items& items) {
  c10::impl::GenericDict dict(c10::AnyType::get(), c10::AnyType::get());
  for (const auto& [key, value] : items) dict.insert(key, value);
  return dict;
}

IValue List(const std::vector<IValue>& items) {
  c10::impl::GenericList list(c10::AnyType::get());
  for (const IValue& item : items) list.push_back(item);
  return list;
}

std::string Bytes(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.resolve_conj().resolve_neg().contiguous();
  return std::string(static_cast<const char*>(dense.const_data_ptr()), dense.nbytes());
}

// Every value as text, doubles and tensors by their bytes: equal texts are equal states.
std::string Show(const IValue& value) {
  if (value.isTensor()) {
    const at::Tensor& t = value.toTensor();
    return absl::StrCat("tensor(", c10::toString(t.scalar_type()), " [", absl::StrJoin(t.sizes(), ","), "] ",
                        absl::BytesToHexString(Bytes(t)), ")");
  }
  if (value.isDouble()) {
    const double number = value.toDouble();
    return absl::StrCat("double(", absl::BytesToHexString(std::string_view(reinterpret_cast<const char*>(&number), 8)),
                        ")");
  }
  if (value.isGenericDict()) {
    std::string text = "{";
    for (const auto& item : value.toGenericDict())
      absl::StrAppend(&text, Show(item.key()), ":", Show(item.value()), ",");
    return text + "}";
  }
  if (value.isList() || value.isTuple()) {
    std::string text = value.isList() ? "[" : "(";
    const auto items = value.isList() ? value.toListRef().vec() : value.toTupleRef().elements().vec();
    for (const IValue& item : items) absl::StrAppend(&text, Show(item), ",");
    return text + (value.isList() ? "]" : ")");
  }
  return absl::StrCat(value.tagKind(), "(", value.isNone() ? "" : c10::str(value), ")");
}

class StateFileTest : public ::testing::TestWithParam<StateFormat> {
 protected:
  std::string Contents(const IValue& state) {
    StringFile file;
    const absl::Status written = GetParam() == StateFormat::kTorch
                                     ? WriteTorchFile(state, file)
                                     : WriteSafetensorsFile(state, {{"made by", "a test"}}, file);
    EXPECT_THAT(written, IsOk());
    return file.contents();
  }

  absl::StatusOr<StateFile> OpenContents(std::string_view contents) {
    WriteFile(path_, contents);
    return StateFile::Open(path_);
  }

  StateFile Written(const IValue& state) {
    absl::StatusOr<StateFile> file = OpenContents(Contents(state));
    ABSL_CHECK_OK(file);
    return *file;
  }

  IValue RoundTrip(const IValue& state, const ReadOptions& options = {}) {
    const absl::StatusOr<IValue> read = Written(state).Read(options);
    ABSL_CHECK_OK(read);
    return *read;
  }

  const std::string path_ = FreshDirectory() + "/state";
};

INSTANTIATE_TEST_SUITE_P(, StateFileTest, ::testing::Values(StateFormat::kTorch, StateFormat::kSafetensors),
                         [](const auto& info) { return info.param == StateFormat::kTorch ? "Torch" : "Safetensors"; });

IValue Everything() {
  const double nan = std::bit_cast<double>(uint64_t{0x7ff8000000001234});
  return Dict({
      {"model", Dict({{"fc.weight", at::arange(6, at::kFloat).reshape({2, 3})}, {"fc.bias", at::ones({2})}})},
      {"optimizer", Dict({{"state", Dict({{0, Dict({{"step", at::scalar_tensor(3.0)}})}, {-7, Dict({})}})},
                          {"param_groups", List({Dict({{"lr", 0.1},
                                                       {"betas", c10::ivalue::Tuple::create({0.9, 0.999})},
                                                       {"foreach", IValue()},
                                                       {"maximize", false}})})}})},
      {"numbers", List({INT64_MIN, INT64_MAX, 0, -1, 255, 256, 65536, -0.0, nan, INFINITY, -INFINITY, 5e-324, 1e308,
                        1.0, c10::complex<double>(1.5, -0.0)})},
      {"text", List({"", "a\"b\\c\n\x01", "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", std::string(300, 'x')})},
      {"empty", List({Dict({}), List({}), c10::ivalue::Tuple::create({})})},
      {"$tensor", true},
  });
}

TEST_P(StateFileTest, AStateOfEveryKindOfValueComesBackExactly) {
  EXPECT_EQ(Show(RoundTrip(Everything())), Show(Everything()));
  EXPECT_EQ(Show(RoundTrip(Everything(), {.map = true})), Show(Everything()));
  EXPECT_EQ(Show(RoundTrip(at::ones({2, 2}))), Show(at::ones({2, 2})));
}

TEST_P(StateFileTest, EveryDtypeComesBackBitForBit) {
  for (const at::ScalarType type : {at::kBool,          at::kByte,
                                    at::kUInt16,        at::kUInt32,
                                    at::kUInt64,        at::kChar,
                                    at::kShort,         at::kInt,
                                    at::kLong,          at::kHalf,
                                    at::kBFloat16,      at::kFloat,
                                    at::kDouble,        at::kComplexHalf,
                                    at::kComplexFloat,  at::kComplexDouble,
                                    at::kFloat8_e5m2,   at::kFloat8_e5m2fnuz,
                                    at::kFloat8_e4m3fn, at::kFloat8_e4m3fnuz,
                                    at::kFloat8_e8m0fnu}) {
    const int64_t size = c10::elementSize(type);
    // Every byte there is; bools are 0 or 1.
    at::Tensor bytes = at::arange(256, at::kByte).repeat({size});
    if (type == at::kBool) bytes.bitwise_and_(1);
    const IValue state = Dict({{"t", bytes.view(type)}, {"none", at::empty({3, 0, 2}, type)}});
    if (GetParam() == StateFormat::kSafetensors && (type == at::kComplexHalf || type == at::kComplexDouble)) {
      StringFile file;
      EXPECT_THAT(WriteSafetensorsFile(state, {}, file),
                  StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("\"t\"")));
      EXPECT_EQ(file.contents(), "");
      continue;
    }
    EXPECT_EQ(Show(RoundTrip(state)), Show(state)) << type;
  }
}

TEST_P(StateFileTest, EveryShapeAndLayoutComesBack) {
  const at::Tensor base = at::arange(24, at::kFloat).reshape({2, 3, 4});
  const at::Tensor complex = at::complex(at::randn({2, 2}), at::randn({2, 2}));
  const IValue state = Dict({{"scalar", at::scalar_tensor(1.5)},
                             {"none", at::empty({0})},
                             {"ones", at::ones({1, 1, 1, 1, 1, 1, 1, 1, 1, 1})},
                             {"transposed", base.clone().transpose(0, 2)},
                             {"holes", at::arange(100, at::kInt).slice(0, 3, 90, 7)},
                             {"expanded", at::ones({1, 3}).expand({4, 3})},
                             {"conjugated", at::complex(at::randn({2}), at::randn({2})).conj()},
                             {"negated", at::imag(at::complex(at::randn({2}), at::randn({2})).conj())}});
  EXPECT_EQ(Show(RoundTrip(state)), Show(state));
  EXPECT_EQ(Show(RoundTrip(state, {.map = true})), Show(state));
}

TEST_P(StateFileTest, TiedTensorsAreStoredOnceAndStayTied) {
  const at::Tensor weight = at::randn({100, 100});
  const IValue state = Dict({{"emb", weight}, {"out", weight}});
  EXPECT_LT(Contents(state).size(), 100 * 100 * 4 + 8192);
  const auto read = RoundTrip(state).toGenericDict();
  const at::Tensor emb = read.at("emb").toTensor();
  const at::Tensor out = read.at("out").toTensor();
  EXPECT_TRUE(at::equal(emb, weight));
  emb[3][4] = 17;
  EXPECT_EQ(out[3][4].item<float>(), 17);
}

TEST_P(StateFileTest, ViewsThatOverlapInPartHaveTheirValues) {
  const at::Tensor base = at::arange(10, at::kFloat);
  const IValue state = Dict({{"a", base.slice(0, 0, 6)}, {"b", base.slice(0, 4, 10)}});
  EXPECT_EQ(Show(RoundTrip(state)), Show(state));
}

TEST_P(StateFileTest, OfALargeStorageOnlyWhatIsUsedIsWritten) {
  const at::Tensor rows = at::zeros({10000, 1000}).slice(0, 5, 15);
  EXPECT_LT(Contents(Dict({{"rows", rows}})).size(), rows.nbytes() + 65536);
}

TEST_P(StateFileTest, TensorsAreListedByTheirJoinedKeys) {
  const StateFile file = Written(Everything());
  EXPECT_EQ(file.format(), GetParam());
  EXPECT_TRUE(file.has_checksums());
  std::vector<std::string> names;
  for (const TensorHeader& header : file.tensors()) names.push_back(header.name);
  EXPECT_THAT(names, ElementsAre("model.fc.weight", "model.fc.bias", "optimizer.state.0.step"));
  EXPECT_THAT(file.tensors()[0].sizes, ElementsAre(2, 3));
  EXPECT_EQ(file.tensors()[0].dtype, at::kFloat);
}

TEST_P(StateFileTest, AnEmptyKeyIsAPartOfTheName) {
  const IValue state = Dict({{"", Dict({{"x", at::ones({1})}, {"", at::ones({1})}})}, {"x", at::ones({1})}});
  const StateFile file = Written(state);
  std::vector<std::string> names;
  for (const TensorHeader& header : file.tensors()) names.push_back(header.name);
  EXPECT_THAT(names, ElementsAre(".x", ".", "x"));
}

TEST_P(StateFileTest, APartIsReadAlone) {
  const absl::StatusOr<StateFile> model = Written(Everything()).At("model");
  ASSERT_THAT(model, IsOk());
  EXPECT_EQ(model->tensors()[1].name, "fc.bias");
  EXPECT_EQ(Show(*model->Read()), Show(Everything().toGenericDict().at("model")));
  EXPECT_THAT(model->At("fc"),
              StatusIs(absl::StatusCode::kNotFound, AllOf(HasSubstr(path_), HasSubstr("\"model\" has no key \"fc\""),
                                                          HasSubstr("it has \"fc.weight\", \"fc.bias\""))));
  EXPECT_THAT(model->At("fc.bias")->At("x"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is no dict")));
}

TEST_P(StateFileTest, OneTensorIsReadByItsName) {
  const at::Tensor weight = at::randn({50, 50});
  const StateFile file = Written(Dict({{"w", weight}, {"column", weight.slice(1, 3, 4)}}));
  for (const bool verify : {true, false}) {
    for (const bool map : {true, false}) {
      const absl::StatusOr<at::Tensor> column = file.ReadTensor("column", {.verify = verify, .map = map});
      ASSERT_THAT(column, IsOk());
      EXPECT_EQ(Bytes(*column), Bytes(weight.slice(1, 3, 4)));
    }
  }
  EXPECT_THAT(file.ReadTensor("v"), StatusIs(absl::StatusCode::kNotFound, HasSubstr("\"v\"")));
  EXPECT_THAT(file.ReadTensor("w", {.device = c10::Device("cuda"), .map = true}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("only tensors for the CPU can be mapped")));
}

TEST_P(StateFileTest, ForTheMetaDeviceNoTensorIsRead) {
  std::string contents = Contents(Dict({{"a", at::zeros({3, 2}, at::kLong)}, {"step", 7}}));
  const auto damaged = contents.find(std::string(48, '\0'));
  ASSERT_NE(damaged, std::string::npos);
  contents[damaged + 24] = 1;  // among the tensor's bytes: whoever reads them must complain
  const absl::StatusOr<StateFile> file = StateFile::FromBytes(contents, "file");
  ASSERT_THAT(file, IsOk());
  EXPECT_THAT(file->Read(), StatusIs(absl::StatusCode::kDataLoss));
  const absl::StatusOr<IValue> state = file->Read({.device = c10::kMeta});
  ASSERT_THAT(state, IsOk());
  EXPECT_EQ(state->toGenericDict().at("step").toInt(), 7);
  const at::Tensor a = state->toGenericDict().at("a").toTensor();
  EXPECT_TRUE(a.is_meta());
  EXPECT_EQ(a.sizes(), at::IntArrayRef({3, 2}));
  EXPECT_EQ(a.scalar_type(), at::kLong);
  EXPECT_THAT(file->ReadTensor("a", {.device = c10::kMeta, .verify = false}), IsOk());
}

TEST_P(StateFileTest, ReadsIntoMemoryOfAnyLayout) {
  const at::Tensor weight = at::randn({3, 4});
  const StateFile file = Written(Dict({{"w", weight}, {"v", weight.t().clone().t()}}));
  const at::Tensor same = at::zeros({3, 4});
  for (const ReadOptions& options : {ReadOptions{}, ReadOptions{.verify = false}, ReadOptions{.map = true}}) {
    same.zero_();
    const at::Tensor transposed = at::zeros({4, 3}).t();
    const at::Tensor wider = at::zeros({3, 4}, at::kDouble).requires_grad_();
    const void* const memory = same.const_data_ptr();
    ASSERT_THAT(file.ReadInto({{0, same}, {0, transposed}, {1, wider}}, options), IsOk());
    EXPECT_EQ(same.const_data_ptr(), memory);
    EXPECT_TRUE(at::equal(same, weight));
    EXPECT_TRUE(at::equal(transposed, weight));
    EXPECT_TRUE(at::equal(wider, weight.to(at::kDouble)));
  }
  EXPECT_THAT(file.ReadInto({{0, at::zeros({4, 3})}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("\"w\" has sizes [3, 4], and is to go into one of "
                                                                     "sizes [4, 3]")));
  EXPECT_THAT(file.ReadInto({{2, same}}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("there are 2")));
}

TEST_P(StateFileTest, SomeRowsAreReadAlone) {
  const at::Tensor w = at::randn({10, 3, 2});
  const at::Tensor part = at::arange(100, at::kLong).view({10, 10}).slice(0, 4, 8);
  const StateFile file = Written(Dict({{"w", w}, {"part", part}, {"empty", at::zeros({5, 0})}}));
  for (const std::vector<int64_t>& rows :
       std::vector<std::vector<int64_t>>{{}, {3}, {0, 1, 2}, {3, 2, 1}, {1, 1, 2, 3, 0, 3}}) {
    const at::Tensor index = at::tensor(rows, at::kLong);
    for (const bool map : {false, true}) {
      const at::Tensor some = at::zeros({static_cast<int64_t>(rows.size()), 3, 2});
      ASSERT_THAT(file.ReadRows(0, rows, some, {.map = map}), IsOk());
      EXPECT_TRUE(at::equal(some, w.index_select(0, index)));
      const at::Tensor of_part = at::zeros({static_cast<int64_t>(rows.size()), 10}, at::kLong);
      ASSERT_THAT(file.ReadRows(1, rows, of_part, {.map = map}), IsOk());
      EXPECT_TRUE(at::equal(of_part, part.index_select(0, index)));
      EXPECT_THAT(file.ReadRows(2, rows, at::zeros({static_cast<int64_t>(rows.size()), 0}), {.map = map}), IsOk());
    }
  }
}

TEST_P(StateFileTest, RowsThatCannotBeReadAreRefused) {
  const StateFile file = Written(Dict({{"w", at::zeros({4, 3})}, {"scalar", at::scalar_tensor(1.0)}}));
  const auto refused = [](std::string_view why) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(why));
  };
  const at::Tensor two = at::zeros({2, 3});
  EXPECT_THAT(file.ReadRows(0, {0, 4}, two), refused("tensor \"w\" has 4 rows, and no row 4"));
  EXPECT_THAT(file.ReadRows(0, {-1, 0}, two), refused("no row -1"));
  EXPECT_THAT(file.ReadRows(1, {0}, at::zeros({1})), refused("\"scalar\" has no dimension"));
  for (const at::Tensor& target : {at::Tensor(), at::zeros({3, 3}), at::zeros({2, 3, 1}), at::zeros({2, 3}, at::kLong),
                                   at::zeros({3, 2}).t(), at::empty({2, 3}, at::kMeta)}) {
    EXPECT_THAT(file.ReadRows(0, {0, 1}, target), refused("\"w\" gives rows of Float [2, 3], which the memory"));
  }
}

// A state dict of Python may hold transposed tensors; safetensors stores them row-major.
TEST_P(StateFileTest, RowsOfATransposedTensorAreThereIfTheyAreStoredTogether) {
  const at::Tensor w = at::randn({3, 4}).t();
  const StateFile file = Written(Dict({{"w", w}}));
  const at::Tensor some = at::zeros({1, 3});
  if (GetParam() == StateFormat::kTorch) {
    EXPECT_THAT(file.ReadRows(0, {1}, some),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("\"w\" is not stored row-major")));
  } else {
    ASSERT_THAT(file.ReadRows(0, {1}, some), IsOk());
    EXPECT_TRUE(at::equal(some[0], w[1]));
  }
}

TEST_P(StateFileTest, SaysTheChecksumOfATensor) {
  const auto checksum = [&](const at::Tensor& tensor) { return Written(Dict({{"w", tensor}})).checksum(0); };
  const at::Tensor w = at::arange(6, at::kFloat);
  ASSERT_TRUE(checksum(w).has_value());
  EXPECT_EQ(checksum(w), checksum(w.clone()));
  EXPECT_NE(checksum(w), checksum(w + 1));
}

// Flips one bit of each byte's eight, everywhere.
TEST_P(StateFileTest, AnyFlippedBitIsAnErrorOrChangesNothing) {
  const IValue state = Dict({{"w", at::arange(8, at::kFloat)}, {"lr", 0.5}});
  std::string contents = Contents(state);
  const std::string wanted = Show(state);
  int num_errors = 0;
  for (size_t bit = 0; bit < contents.size() * 8; ++bit) {
    contents[bit / 8] ^= static_cast<char>(1 << bit % 8);
    const absl::StatusOr<StateFile> file = OpenContents(contents);
    const absl::StatusOr<IValue> read = file.ok() ? file->Read() : file.status();
    if (read.ok()) {
      EXPECT_EQ(Show(*read), wanted) << "bit " << bit;
    } else {
      ++num_errors;
      EXPECT_THAT(read.status().message(), HasSubstr(path_));
    }
    contents[bit / 8] ^= static_cast<char>(1 << bit % 8);
  }
  EXPECT_GT(num_errors, 32 * 8);  // the tensor's bits, at least
}

TEST_P(StateFileTest, DamagedBytesChangeNothingThatIsThere) {
  const at::Tensor a = at::randn({1000});
  const at::Tensor b = at::randn({1000});
  std::string contents = Contents(Dict({{"a", a}, {"b", b}}));
  const std::string needle = Bytes(b);
  const size_t place = contents.find(needle);
  ASSERT_NE(place, std::string::npos);
  contents[place + 5] ^= 1;
  const absl::StatusOr<StateFile> file = OpenContents(contents);
  ASSERT_THAT(file, IsOk());
  const at::Tensor target_a = at::zeros({1000});
  const at::Tensor target_b = at::zeros({1000});
  EXPECT_THAT(file->ReadInto({{0, target_a}, {1, target_b}}),
              StatusIs(absl::StatusCode::kDataLoss, AllOf(HasSubstr(path_), HasSubstr("the file is damaged"))));
  EXPECT_TRUE(at::equal(target_a, at::zeros({1000})));
  EXPECT_TRUE(at::equal(target_b, at::zeros({1000})));
  EXPECT_THAT(file->Verify(), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(file->ReadTensor("b"), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(file->ReadTensor("a"), IsOk());
  EXPECT_THAT(file->ReadTensor("b", {.verify = false}), IsOk());
}

TEST_P(StateFileTest, AFileThatWasCutIsDataLoss) {
  const std::string contents = Contents(Everything());
  for (size_t size = 1; size < contents.size(); size += 97) {
    const absl::StatusOr<StateFile> file = OpenContents(contents.substr(0, size));
    EXPECT_FALSE(file.ok() && file->Read().ok()) << size;
  }
  EXPECT_THAT(OpenContents(contents.substr(0, contents.size() - 1)), StatusIs(absl::StatusCode::kDataLoss));
}

TEST_P(StateFileTest, VerifyTellsHowFarItIs) {
  const StateFile file = Written(Dict({{"a", at::zeros({1 << 20})}, {"b", at::zeros({10})}}));
  int64_t last = 0;
  ASSERT_THAT(file.Verify([&](int64_t done, int64_t total) {
    EXPECT_GT(done, last);
    EXPECT_EQ(total, (4 << 20) + 40);
    last = done;
  }),
              IsOk());
  EXPECT_EQ(last, (4 << 20) + 40);
}

TEST_P(StateFileTest, AnOpenFileStaysWhatItWasWhenItsNameIsGivenAway) {
  const StateFile file = Written(Dict({{"w", at::ones({3})}}));
  ASSERT_EQ(rename(path_.c_str(), (path_ + ".old").c_str()), 0);
  WriteFile(path_, "something else");
  EXPECT_TRUE(at::equal(*file.ReadTensor("w"), at::ones({3})));
}

TEST_P(StateFileTest, RefusesWhatNoFileHolds) {
  StringFile file;
  const auto refused = [&](const IValue& state) {
    const absl::Status status =
        GetParam() == StateFormat::kTorch ? WriteTorchFile(state, file) : WriteSafetensorsFile(state, {}, file);
    EXPECT_EQ(file.contents(), "");
    return status;
  };
  EXPECT_THAT(refused(Dict({{"a", List({c10::Device("cpu")})}})),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("value \"a.0\" is of type Device")));
  EXPECT_THAT(refused(Dict({{"a", Dict({{1.5, 1}})}})),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("\"a\" has a key of type Double")));
  EXPECT_THAT(refused(Dict({{"a", "\xff"}})), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not UTF-8")));
  c10::impl::GenericList loop(c10::AnyType::get());
  loop.push_back(loop);
  EXPECT_THAT(refused(loop), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("deeper than 100")));
  loop.clear();
  EXPECT_THAT(refused(Dict({{"q", at::ones({2, 2}).to_sparse()}})),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("tensor \"q\" has layout Sparse")));
}

TEST(StateFileOpenTest, SaysWhatIsWrongWithThePath) {
  const std::string directory = FreshDirectory();
  EXPECT_THAT(StateFile::Open(directory + "/none"), StatusIs(absl::StatusCode::kNotFound, HasSubstr("/none")));
  EXPECT_THAT(StateFile::Open(directory), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("it is a directory")));
  WriteFile(directory + "/empty", "");
  EXPECT_THAT(StateFile::Open(directory + "/empty"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("empty")));
}

TEST(SafetensorsFileTest, MetadataComesBack) {
  StringFile file;
  ASSERT_THAT(WriteSafetensorsFile(Dict({{"w", at::ones({1})}}), {{"format", "pt"}, {"note", "\xc3\xa4"}}, file),
              IsOk());
  const std::string path = FreshDirectory() + "/w.safetensors";
  WriteFile(path, file.contents());
  const absl::StatusOr<StateFile> read = StateFile::Open(path);
  ASSERT_THAT(read, IsOk());
  EXPECT_THAT(read->metadata(), ElementsAre(std::pair<std::string, std::string>("format", "pt"),
                                            std::pair<std::string, std::string>("note", "\xc3\xa4")));
}

TEST(SafetensorsFileTest, WhatHasNoNegativeIsRefusedBeforeAnythingIsWritten) {
  StringFile file;
  EXPECT_THAT(WriteSafetensorsFile(Dict({{"a", at::ones({9})}, {"b", at::ones({1}).to(at::kFloat8_e5m2)._neg_view()}}),
                                   {}, file),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("\"b\" is marked as negated")));
  EXPECT_EQ(file.num_bytes(), 0);
}

TEST(SafetensorsFileTest, NamesThatCollideAreRefused) {
  StringFile file;
  EXPECT_THAT(WriteSafetensorsFile(Dict({{"a.b", Dict({{"c", at::ones({1})}})}, {"a", Dict({{"b.c", at::ones({1})}})}}),
                                   {}, file),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("a.b.c")));
  EXPECT_THAT(WriteSafetensorsFile(Dict({{"__metadata__", at::ones({1})}}), {}, file),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("__metadata__")));
  EXPECT_EQ(file.contents(), "");
}

}  // namespace
}  // namespace cohort
