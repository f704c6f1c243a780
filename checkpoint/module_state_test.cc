#include "cohort/checkpoint/module_state.h"

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ops/arange.h"
#include "ATen/ops/full.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/scalar_tensor.h"
#include "ATen/ops/zeros.h"
#include "absl/log/absl_check.h"
#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "cohort/checkpoint/internal/string_file.h"
#include "cohort/checkpoint/state_file.h"
#include "cohort/checkpoint/testing/files.h"
#include "cohort/checkpoint/torch_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torch/nn/module.h"

namespace cohort {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

struct Layer : torch::nn::Module {
  Layer() {
    weight = register_parameter("weight", at::ones({2}));
    register_parameter("bias", at::Tensor(), /*requires_grad=*/false);  // a layer without one
    mean = register_buffer("running_mean", at::zeros({1}));
  }
  at::Tensor weight, mean;
};

struct Wrapper : torch::nn::Module {
  Wrapper() {
    module = register_module("module", std::make_shared<Layer>());
    register_module("same", module);
    scale = register_parameter("scale", at::ones({}));
  }
  std::shared_ptr<Layer> module;
  at::Tensor scale;
};

std::vector<std::string> NamesOf(const NamedTensors& state) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : state) names.push_back(name);
  return names;
}

TEST(ModuleStateTest, ListsParametersThenBuffersUnderTheModulesOwnNames) {
  EXPECT_THAT(NamesOf(ModuleState(Layer())), ElementsAre("weight", "running_mean"));
}

TEST(ModuleStateTest, StripsNothingFromTheNamesOfAWrapper) {
  const Wrapper wrapper;
  EXPECT_THAT(NamesOf(ModuleState(wrapper)),
              ElementsAre("scale", "module.weight", "same.weight", "module.running_mean", "same.running_mean"));
  EXPECT_THAT(NamesOf(ModuleState(*wrapper.module)), ElementsAre("weight", "running_mean"));
}

TEST(ModuleStateTest, HandsOutTheModulesOwnTensors) {
  const Layer layer;
  const NamedTensors state = ModuleState(layer);
  EXPECT_TRUE(state[0].second.is_same(layer.weight));
  EXPECT_TRUE(state[1].second.is_same(layer.mean));
}

// ---- Loading ----

// Parameters and buffers given by name.
struct Bag : torch::nn::Module {
  explicit Bag(const NamedTensors& parameters, const NamedTensors& buffers = {}) {
    for (const auto& [name, tensor] : parameters) register_parameter(name, tensor);
    for (const auto& [name, tensor] : buffers) register_buffer(name, tensor);
  }
};

// The bytes of every tensor.
std::vector<std::string> BytesOf(const NamedTensors& state) {
  std::vector<std::string> bytes;
  for (const auto& [name, tensor] : state) {
    const at::Tensor plain = tensor.detach().contiguous();
    bytes.emplace_back(static_cast<const char*>(plain.const_data_ptr()), plain.nbytes());
  }
  return bytes;
}

bool AreSame(const at::Tensor& a, const at::Tensor& b) { return BytesOf({{"", a}}) == BytesOf({{"", b}}); }

// Expects that `state` is refused for a reason that `message` matches, and that nothing of `module` changes.
template <typename Matcher>
void ExpectRefused(torch::nn::Module& module, const NamedTensors& state, const LoadModuleOptions& options,
                   const Matcher& message) {
  const std::vector<std::string> before = BytesOf(ModuleState(module));
  EXPECT_THAT(LoadModuleState(module, state, options), StatusIs(absl::StatusCode::kInvalidArgument, message));
  EXPECT_EQ(BytesOf(ModuleState(module)), before);
}

TEST(LoadModuleStateTest, CopiesIntoTheMemoryThatIsThere) {
  const at::Tensor wide = at::zeros({3, 2});
  Bag module({{"weight", wide.t()}}, {{"count", at::zeros({}, at::kLong)}, {"empty", at::zeros({0})}});
  const void* memory = wide.const_data_ptr();
  const at::Tensor value = at::arange(6, at::kFloat).view({2, 3});

  const auto report = LoadModuleState(
      module, {{"count", at::scalar_tensor(7, at::kLong)}, {"empty", at::ones({0})}, {"weight", value}});
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(report->missing, IsEmpty());
  EXPECT_THAT(report->unexpected, IsEmpty());
  EXPECT_TRUE(AreSame(module.parameters()[0], value));
  EXPECT_EQ(module.parameters()[0].const_data_ptr(), memory);
  EXPECT_TRUE(AreSame(wide.t(), value));
  EXPECT_TRUE(module.parameters()[0].requires_grad());
  EXPECT_TRUE(module.parameters()[0].is_leaf());
  EXPECT_EQ(module.buffers()[0].item<int64_t>(), 7);
}

TEST(LoadModuleStateTest, ListsEveryMismatchWithWhatIsSavedAndWhatIsWanted) {
  Bag module({{"fine", at::zeros({2})}, {"half", at::zeros({64, 1}, at::kBFloat16)}},
             {{"steps", at::zeros({}, at::kInt)}, {"last", at::zeros({64, 32})}});
  ExpectRefused(
      module,
      {{"fine", at::ones({2})}, {"half", at::ones({64, 1})}, {"steps", at::ones({})}, {"last", at::ones({64, 1})}}, {},
      AllOf(HasSubstr("\"half\" is Float [64, 1] in the state and BFloat16 [64, 1] in the module"),
            HasSubstr("\"steps\" is Float [] in the state and Int [] in the module"),
            HasSubstr("\"last\" is Float [64, 1] in the state and Float [64, 32] in the module"),
            Not(HasSubstr("fine"))));
}

TEST(LoadModuleStateTest, CastsOnlyWhenAskedAndNeverToAnotherShape) {
  Bag module({{"weight", at::zeros({2}, at::kBFloat16)}});
  ExpectRefused(module, {{"weight", at::ones({2}, at::kComplexFloat)}}, {.cast = true}, HasSubstr("ComplexFloat"));
  ExpectRefused(module, {{"weight", at::ones({1})}}, {.cast = true}, HasSubstr("Float [1]"));
  EXPECT_THAT(LoadModuleState(module, {{"weight", at::full({2}, 1.5)}}, {.cast = true}), IsOk());
  EXPECT_TRUE(AreSame(module.parameters()[0], at::full({2}, 1.5, at::kBFloat16)));
}

TEST(LoadModuleStateTest, StrictListsExactlyWhatIsMissingAndUnexpected) {
  Bag module({{"fc_weight", at::zeros({2})}, {"fc_bias", at::zeros({1})}});
  const NamedTensors state = {{"fc_weight", at::ones({2})}, {"fc_weight.x", at::ones({2})}, {"other", at::ones({2})}};
  ExpectRefused(module, state, {},
                "the state does not fit the module: missing: \"fc_bias\"; unexpected: \"fc_weight.x\", \"other\"");

  const auto report = LoadModuleState(module, state, {.strict = false});
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(report->missing, ElementsAre("fc_bias"));
  EXPECT_THAT(report->unexpected, ElementsAre("fc_weight.x", "other"));
  EXPECT_TRUE(AreSame(module.parameters()[0], at::ones({2})));
  EXPECT_TRUE(AreSame(module.parameters()[1], at::zeros({1})));
}

TEST(LoadModuleStateTest, NotStrictStillWantsShapesToFit) {
  Bag module({{"weight", at::zeros({2})}, {"bias", at::zeros({1})}});
  ExpectRefused(module, {{"weight", at::ones({2})}, {"bias", at::ones({2})}}, {.strict = false}, HasSubstr("\"bias\""));
}

TEST(LoadModuleStateTest, StripsAPrefixOnlyWhenToldTo) {
  Bag module({{"weight", at::zeros({2})}});
  const NamedTensors wrapped = {{"module.weight", at::ones({2})}};
  ExpectRefused(module, wrapped, {},
                AllOf(HasSubstr("missing: \"weight\""), HasSubstr("unexpected: \"module.weight\"")));
  EXPECT_THAT(LoadModuleState(module, wrapped, {.strip_prefix = "module."}), IsOk());
  EXPECT_TRUE(AreSame(module.parameters()[0], at::ones({2})));
  ExpectRefused(module, {{"module.weight", at::zeros({2})}, {"weight", at::zeros({2})}}, {.strip_prefix = "module."},
                HasSubstr("unexpected: \"weight\""));
}

TEST(LoadModuleStateTest, RefusesANameThatStandsTwice) {
  Bag module({{"weight", at::zeros({2})}});
  ExpectRefused(module, {{"weight", at::ones({2})}, {"weight", at::ones({2})}}, {.strict = false},
                "two tensors of the state are named \"weight\"");
}

TEST(LoadModuleStateTest, RefusesTensorsOfTheStateWithoutValues) {
  Bag module({{"weight", at::zeros({2})}});
  ExpectRefused(module, {{"weight", at::Tensor()}}, {}, "tensor \"weight\" of the state is undefined");
  ExpectRefused(module, {{"weight", at::ones({2}).to_sparse()}}, {}, HasSubstr("is not dense"));
  ExpectRefused(module, {{"weight", at::ones({2}, at::kMeta)}}, {}, HasSubstr("has no data"));
}

TEST(LoadModuleStateTest, RefusesTensorsOfTheModuleThatCannotBeWritten) {
  Bag meta({{"weight", at::zeros({2}, at::kMeta)}});
  EXPECT_THAT(LoadModuleState(meta, {{"weight", at::ones({2})}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("\"weight\" has no data in the module")));
  Bag expanded({}, {{"scale", at::zeros({1}).expand({4})}});
  ExpectRefused(expanded, {{"scale", at::ones({4})}}, {}, HasSubstr("\"scale\" has elements that share memory"));
}

// ---- Signature ----

std::string SignatureOf(NamedTensors parameters, NamedTensors buffers = {}) {
  return ModelSignature(Bag(std::move(parameters), std::move(buffers)));
}

TEST(ModelSignatureTest, IsOneLineOfWhatThereIs) {
  EXPECT_EQ(SignatureOf({}), "0 tensors, 0 elements, checksum 00000000");
  EXPECT_THAT(SignatureOf({{"x", at::zeros({})}}), StartsWith("1 tensor, 1 element, checksum "));
  // It stands in manifests, and so must stay what it is: Python's zlib.crc32(b"4 bias Float [1]\n6 weight Float [1, 10]").
  EXPECT_EQ(SignatureOf({{"weight", at::zeros({1, 10})}, {"bias", at::zeros({1})}}),
            "2 tensors, 11 elements, checksum b5b8b2c6");
}

TEST(ModelSignatureTest, ValuesAndOrderDoNotMatter) {
  const std::string signature = SignatureOf({{"a", at::zeros({2, 3})}, {"b", at::zeros({4})}});
  EXPECT_EQ(SignatureOf({{"b", at::ones({4})}, {"a", at::full({3, 2}, 7.0).t()}}), signature);
  EXPECT_EQ(SignatureOf({{"a", at::zeros({2, 3})}}, {{"b", at::zeros({4})}}), signature);
}

TEST(ModelSignatureTest, NamesDtypesAndShapesDo) {
  const std::string signature = SignatureOf({{"a", at::zeros({2, 3})}, {"b", at::zeros({4})}});
  EXPECT_NE(SignatureOf({{"c", at::zeros({2, 3})}, {"b", at::zeros({4})}}), signature);
  EXPECT_NE(SignatureOf({{"b", at::zeros({2, 3})}, {"a", at::zeros({4})}}), signature);
  EXPECT_NE(SignatureOf({{"a", at::zeros({3, 2})}, {"b", at::zeros({4})}}), signature);
  EXPECT_NE(SignatureOf({{"a", at::zeros({2, 3, 1})}, {"b", at::zeros({4})}}), signature);
  EXPECT_NE(SignatureOf({{"a", at::zeros({2, 3}, at::kDouble)}, {"b", at::zeros({4})}}), signature);
  EXPECT_NE(SignatureOf({{"a", at::zeros({2, 3})}}), signature);
  // A name that holds what stands between names.
  EXPECT_NE(SignatureOf({{"a Float [2]\n1 b", at::zeros({2})}}),
            SignatureOf({{"a", at::zeros({2})}, {"b", at::zeros({2})}}));
}

TEST(ModelSignatureTest, ATensorThatIsNotThereIsNoError) {
  EXPECT_THAT(SignatureOf({}, {{"later", at::Tensor()}}),
              AnyOf(StartsWith("0 tensors"), StartsWith("1 tensor, 0 elements")));
}

// ---- Tied ----

TEST(LoadModuleStateTest, TiedWeightsStayTied) {
  const at::Tensor shared = at::zeros({2, 2});
  Bag module({{"embedding", shared}, {"out", shared}});
  const at::Tensor value = at::arange(4, at::kFloat).view({2, 2});
  ASSERT_THAT(LoadModuleState(module, {{"embedding", value}, {"out", value.clone()}}), IsOk());
  shared.data().fill_(9);
  for (const auto& [name, tensor] : ModuleState(module)) EXPECT_TRUE(AreSame(tensor, at::full({2, 2}, 9.0f))) << name;
}

TEST(LoadModuleStateTest, OneOfTheTiedNamesIsEnough) {
  const at::Tensor shared = at::zeros({2});
  Bag module({{"embedding", shared}, {"out", shared.view({2})}});
  const auto report = LoadModuleState(module, {{"out", at::ones({2})}});
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(report->missing, IsEmpty());
  EXPECT_TRUE(AreSame(shared, at::ones({2})));
}

TEST(LoadModuleStateTest, RefusesTiedNamesWithOtherValues) {
  const at::Tensor shared = at::zeros({2});
  Bag module({{"embedding", shared}, {"out", shared}});
  ExpectRefused(module, {{"embedding", at::zeros({2})}, {"out", at::full({2}, -0.0)}}, {},
                "the module ties \"embedding\" and \"out\", whose values differ in the state");
  const at::Tensor nan = at::full({2}, std::nan(""));
  EXPECT_THAT(LoadModuleState(module, {{"embedding", nan}, {"out", nan.clone()}}), IsOk());
}

TEST(LoadModuleStateTest, ATiedStateFillsAnUntiedModuleWithCopies) {
  Bag module({{"embedding", at::zeros({2})}, {"out", at::zeros({2})}});
  const at::Tensor value = at::ones({2});
  ASSERT_THAT(LoadModuleState(module, {{"embedding", value}, {"out", value}}), IsOk());
  module.parameters()[0].data().fill_(5);
  value.fill_(6);
  EXPECT_TRUE(AreSame(module.parameters()[1], at::ones({2})));
}

TEST(LoadModuleStateTest, RefusesTensorsOfTheModuleThatOverlapInPart) {
  const at::Tensor base = at::zeros({6});
  Bag module({}, {{"first", base.slice(0, 0, 4)}, {"second", base.slice(0, 3, 6)}});
  ExpectRefused(module, {{"first", at::ones({4})}, {"second", at::ones({3})}}, {},
                HasSubstr("\"first\" and \"second\" overlap in part"));
}

TEST(LoadModuleStateTest, LoadsTensorsThatInterleaveInOneStorage) {
  const at::Tensor base = at::zeros({3, 2});
  Bag module({}, {{"left", base.select(1, 0)}, {"right", base.select(1, 1)}});
  ASSERT_THAT(LoadModuleState(module, {{"left", at::ones({3})}, {"right", at::full({3}, 2.0)}}), IsOk());
  EXPECT_TRUE(AreSame(base.select(1, 0), at::ones({3})));
  EXPECT_TRUE(AreSame(base.select(1, 1), at::full({3}, 2.0)));
}

TEST(LoadModuleStateTest, ExchangesTheModulesOwnTensors) {
  Bag module({{"a", at::zeros({2})}, {"b", at::ones({2})}});
  const at::Tensor a = module.parameters()[0], b = module.parameters()[1];
  ASSERT_THAT(LoadModuleState(module, {{"a", b}, {"b", a}}), IsOk());
  EXPECT_TRUE(AreSame(a, at::ones({2})));
  EXPECT_TRUE(AreSame(b, at::zeros({2})));
}

// ---- Matching ----

TEST(MatchModuleStateTest, GivesEachPieceOfMemoryOnceAndSaysWhatIsTied) {
  const at::Tensor shared = at::zeros({2});
  const Bag module({{"embedding", shared}, {"bias", at::zeros({1})}, {"out", shared}});
  const auto match = MatchModuleState(
      module, {{"out", at::kFloat, {2}}, {"embedding", at::kFloat, {2}}, {"bias", at::kFloat, {1}}}, {});
  ASSERT_THAT(match, IsOk());
  ASSERT_EQ(match->targets.size(), 2u);
  EXPECT_TRUE(match->targets[0].second.is_same(module.parameters()[0]));
  EXPECT_EQ(match->targets[0].first, 1u);
  EXPECT_EQ(match->targets[1].first, 2u);
  EXPECT_THAT(match->tied, ElementsAre(std::pair<size_t, size_t>(1, 0)));
}

// ---- Straight from a file ----

StateFile Written(const NamedTensors& state) {
  internal::StringFile contents;
  ABSL_CHECK_OK(WriteTorchFile(state, contents));
  const std::string path = testing::FreshDirectory() + "/m.pt";
  testing::WriteFile(path, contents.contents());
  absl::StatusOr<StateFile> file = StateFile::Open(path);
  ABSL_CHECK_OK(file);
  return *std::move(file);
}

TEST(ReadModuleStateTest, ReadsIntoTheModulesOwnMemory) {
  Layer layer;
  const void* const memory = layer.weight.const_data_ptr();
  ASSERT_THAT(ReadModuleState(layer, Written({{"weight", at::full({2}, 7.0)}, {"running_mean", at::full({1}, 8.0)}})),
              IsOk());
  EXPECT_EQ(layer.weight.const_data_ptr(), memory);
  EXPECT_TRUE(AreSame(layer.weight, at::full({2}, 7.0)));
  EXPECT_TRUE(AreSame(layer.mean, at::full({1}, 8.0)));
}

TEST(ReadModuleStateTest, ReadsDistinctFilesIntoTiedNamesOnlyIfTheyAgree) {
  const at::Tensor shared = at::zeros({2});
  Bag module({{"embedding", shared}, {"out", shared}});
  ASSERT_THAT(ReadModuleState(module, Written({{"embedding", at::ones({2})}, {"out", at::ones({2})}})), IsOk());
  EXPECT_TRUE(AreSame(module.parameters()[0], at::ones({2})));
  const StateFile differs = Written({{"embedding", at::zeros({2})}, {"out", at::ones({2})}});
  EXPECT_THAT(
      ReadModuleState(module, differs),
      StatusIs(absl::StatusCode::kInvalidArgument, AllOf(HasSubstr(differs.path()), HasSubstr("whose values differ"))));
  EXPECT_TRUE(AreSame(module.parameters()[0], at::ones({2})));
}

TEST(ReadModuleStateTest, ChangesNothingIfTheFileDoesNotFit) {
  Layer layer;
  const StateFile file = Written({{"weight", at::full({2}, 7.0)}, {"running_mean", at::zeros({3})}});
  EXPECT_THAT(ReadModuleState(layer, file), StatusIs(absl::StatusCode::kInvalidArgument,
                                                     AllOf(HasSubstr(file.path()), HasSubstr("\"running_mean\""))));
  EXPECT_TRUE(AreSame(layer.weight, at::ones({2})));
}

}  // namespace
}  // namespace cohort
