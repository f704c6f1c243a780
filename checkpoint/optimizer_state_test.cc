#include "cohort/checkpoint/optimizer_state.h"

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ops/arange.h"
#include "ATen/ops/equal.h"
#include "ATen/ops/full.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/scalar_tensor.h"
#include "ATen/ops/zeros.h"
#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torch/nn/module.h"
#include "torch/optim/adagrad.h"
#include "torch/optim/adam.h"
#include "torch/optim/adamw.h"
#include "torch/optim/lbfgs.h"
#include "torch/optim/rmsprop.h"
#include "torch/optim/sgd.h"

namespace cohort {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::c10::impl::GenericDict;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
namespace optim = torch::optim;

using Groups = std::vector<optim::OptimizerParamGroup>;
using Names = std::vector<std::string>;

// Parameters: 0 and 1 in the first group, 2 in the second.
std::vector<at::Tensor> MakeParameters() {
  std::vector<at::Tensor> parameters = {at::arange(6, at::kFloat).view({2, 3}), at::ones({2, 3}), at::full({4}, 0.5f)};
  for (const at::Tensor& parameter : parameters) parameter.requires_grad_(true);
  return parameters;
}

Groups GroupsOf(const std::vector<at::Tensor>& p) {
  return {optim::OptimizerParamGroup({p[0], p[1]}), optim::OptimizerParamGroup({p[2]})};
}

// One step with gradients that depend on the parameters, the step and which parameter it is.
void Step(optim::Optimizer& optimizer, int64_t n) {
  int64_t i = 0;
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      at::Tensor p = parameter;
      p.mutable_grad() = p.detach() * 0.25 + 0.125 * static_cast<double>(n + ++i);
    }
  }
  optimizer.step();
}

// A text that is the same if, and only if, the values are, bit for bit.
std::string Dump(const c10::IValue& value) {
  std::string text;
  if (value.isGenericDict()) {
    for (const auto& entry : value.toGenericDict()) text += Dump(entry.key()) + ":" + Dump(entry.value()) + ",";
    return "{" + text + "}";
  }
  if (value.isList()) {
    for (const c10::IValue& item : value.toListRef()) text += Dump(item) + ",";
    return "[" + text + "]";
  }
  if (value.isTensor()) {
    const at::Tensor tensor = value.toTensor().contiguous();
    text = std::string(c10::toString(tensor.scalar_type())) + std::to_string(tensor.dim()) + " ";
    const auto* bytes = static_cast<const uint8_t*>(tensor.const_data_ptr());
    for (size_t i = 0; i < tensor.nbytes(); ++i) text += std::to_string(bytes[i]) + " ";
    return text;
  }
  std::ostringstream out;
  out.precision(std::numeric_limits<double>::max_digits10);
  out << value;
  return out.str();
}

std::string DumpOf(const optim::Optimizer& optimizer) { return Dump(OptimizerState(optimizer).value()); }

GenericDict StateOf(const optim::Optimizer& optimizer, const Names& names = {}) {
  return OptimizerState(optimizer, names).value().toGenericDict();
}

// Deep enough to be changed without the original: the dicts of the state and of the groups.
GenericDict CopyOf(const GenericDict& state) {
  GenericDict result = state.copy(), entries = state.at("state").toGenericDict().copy();
  for (const auto& entry : entries) entries.insert_or_assign(entry.key(), entry.value().toGenericDict().copy());
  result.insert_or_assign("state", entries);
  c10::impl::GenericList groups(c10::AnyType::get());
  for (const c10::IValue& group : state.at("param_groups").toListRef()) groups.push_back(group.toGenericDict().copy());
  result.insert_or_assign("param_groups", groups);
  return result;
}

GenericDict GroupOf(const GenericDict& state, size_t i) {
  return state.at("param_groups").toListRef()[i].toGenericDict();
}

GenericDict EntryOf(const GenericDict& state, int64_t i) {
  return state.at("state").toGenericDict().at(i).toGenericDict();
}

Names KeysOf(const GenericDict& dict) {
  Names keys;
  for (const auto& entry : dict) keys.push_back(entry.key().toStringRef());
  return keys;
}

// ---- Every optimizer ----

struct Kind {
  std::string name;
  std::function<std::unique_ptr<optim::Optimizer>(const Groups&)> make;
  std::function<std::unique_ptr<optim::Optimizer>(const Groups&)> make_default;
  Names state_keys;
  Names group_keys;
};

template <typename Optimizer, typename Options>
std::function<std::unique_ptr<optim::Optimizer>(const Groups&)> Maker(Options options) {
  return [options](const Groups& groups) { return std::make_unique<Optimizer>(groups, options); };
}

const Names kAdamGroup = {
    "lr",         "betas",          "eps",   "weight_decay",           "amsgrad", "maximize", "foreach",
    "capturable", "differentiable", "fused", "decoupled_weight_decay", "params"};

std::vector<Kind> Kinds() {
  return {
      {"SGD",
       Maker<optim::SGD>(optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.01).nesterov(true)),
       Maker<optim::SGD>(optim::SGDOptions(1)),
       {"momentum_buffer"},
       {"lr", "momentum", "dampening", "weight_decay", "nesterov", "maximize", "foreach", "differentiable", "fused",
        "params"}},
      {"Adam",
       Maker<optim::Adam>(optim::AdamOptions(0.1).betas({0.8, 0.99}).weight_decay(0.01)),
       Maker<optim::Adam>(optim::AdamOptions()),
       {"step", "exp_avg", "exp_avg_sq"},
       kAdamGroup},
      {"AdamW",
       Maker<optim::AdamW>(optim::AdamWOptions(0.1).eps(1e-6).amsgrad(true)),
       Maker<optim::AdamW>(optim::AdamWOptions()),
       {"step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"},
       kAdamGroup},
      {"RMSprop",
       Maker<optim::RMSprop>(optim::RMSpropOptions(0.1).alpha(0.9).momentum(0.5).centered(true)),
       Maker<optim::RMSprop>(optim::RMSpropOptions()),
       {"step", "square_avg", "momentum_buffer", "grad_avg"},
       {"lr", "momentum", "alpha", "eps", "centered", "weight_decay", "capturable", "foreach", "maximize",
        "differentiable", "params"}},
      {"Adagrad",
       Maker<optim::Adagrad>(optim::AdagradOptions(0.1).lr_decay(0.01).initial_accumulator_value(0.5)),
       Maker<optim::Adagrad>(optim::AdagradOptions()),
       {"step", "sum"},
       {"lr", "lr_decay", "eps", "weight_decay", "initial_accumulator_value", "foreach", "maximize", "differentiable",
        "fused", "params"}},
  };
}

TEST(OptimizerStateTest, HasPythonsKeysInPythonsOrder) {
  for (const Kind& kind : Kinds()) {
    SCOPED_TRACE(kind.name);
    const std::vector<at::Tensor> parameters = MakeParameters();
    const auto optimizer = kind.make(GroupsOf(parameters));
    Step(*optimizer, 0);
    const GenericDict state = StateOf(*optimizer);
    EXPECT_THAT(KeysOf(state), ElementsAre("state", "param_groups"));
    EXPECT_THAT(KeysOf(EntryOf(state, 2)), ElementsAreArray(kind.state_keys));
    EXPECT_THAT(KeysOf(GroupOf(state, 1)), ElementsAreArray(kind.group_keys));
    EXPECT_EQ(Dump(GroupOf(state, 0).at("params")), "[0,1,]");
    EXPECT_EQ(Dump(GroupOf(state, 1).at("params")), "[2,]");
    EXPECT_EQ(GroupOf(state, 0).at("maximize"), false);
    EXPECT_TRUE(GroupOf(state, 0).at("foreach").isNone());
    if (!EntryOf(state, 0).contains("step")) continue;
    EXPECT_EQ(Dump(EntryOf(state, 0).at("step")), Dump(at::scalar_tensor(1, at::kFloat)));
  }
}

TEST(OptimizerStateTest, ContinuesAsIfItHadNeverStopped) {
  for (const Kind& kind : Kinds()) {
    SCOPED_TRACE(kind.name);
    const std::vector<at::Tensor> parameters = MakeParameters(), others = MakeParameters();
    const auto optimizer = kind.make(GroupsOf(parameters));
    const auto resumed = kind.make_default(GroupsOf(others));  // gets the options too
    for (int64_t n = 0; n < 3; ++n) Step(*optimizer, n);
    for (size_t i = 0; i < others.size(); ++i) others[i].data().copy_(parameters[i]);
    for (int i = 0; i < 3; ++i) {
      ASSERT_THAT(LoadOptimizerState(*resumed, OptimizerState(*optimizer).value()), IsOk());
      EXPECT_EQ(resumed->state().size(), 3u);
    }
    EXPECT_EQ(DumpOf(*resumed), DumpOf(*optimizer));
    for (int64_t n = 3; n < 6; ++n) {
      Step(*optimizer, n);
      Step(*resumed, n);
    }
    EXPECT_EQ(DumpOf(*resumed), DumpOf(*optimizer));
    for (size_t i = 0; i < others.size(); ++i) EXPECT_TRUE(at::equal(others[i], parameters[i])) << i;
  }
}

TEST(OptimizerStateTest, MissingStateStaysMissing) {
  for (const Kind& kind : Kinds()) {
    SCOPED_TRACE(kind.name);
    const auto fresh = kind.make(GroupsOf(MakeParameters())), used = kind.make(GroupsOf(MakeParameters()));
    Step(*used, 0);
    ASSERT_THAT(LoadOptimizerState(*used, StateOf(*fresh)), IsOk());
    EXPECT_EQ(DumpOf(*used), DumpOf(*fresh));
    Step(*used, 1);
  }
}

TEST(OptimizerStateTest, AdagradWithoutStateBeginsAtItsInitialValue) {
  optim::Adagrad optimizer(GroupsOf(MakeParameters()), optim::AdagradOptions(0.1).initial_accumulator_value(0.5));
  GenericDict state = CopyOf(StateOf(optimizer));
  state.at("state").toGenericDict().clear();
  optim::Adagrad other(GroupsOf(MakeParameters()), optim::AdagradOptions(0.1));
  Step(other, 0);
  ASSERT_THAT(LoadOptimizerState(other, state), IsOk());
  EXPECT_EQ(DumpOf(other), DumpOf(optimizer));
}

TEST(OptimizerStateTest, LoadedMomentsAreCopies) {
  optim::SGD optimizer(GroupsOf(MakeParameters()), optim::SGDOptions(0.1).momentum(0.9));
  Step(optimizer, 0);
  const std::string before = DumpOf(optimizer);
  optim::SGD other(GroupsOf(MakeParameters()), optim::SGDOptions(0.1));
  ASSERT_THAT(LoadOptimizerState(other, StateOf(optimizer)), IsOk());
  Step(other, 1);
  EXPECT_EQ(DumpOf(optimizer), before);
}

TEST(OptimizerStateTest, RefusesOtherOptimizers) {
  optim::LBFGS optimizer(MakeParameters());
  EXPECT_THAT(OptimizerState(optimizer), StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("none of")));
  EXPECT_THAT(LoadOptimizerState(optimizer, c10::IValue()), StatusIs(absl::StatusCode::kUnimplemented));
}

// ---- Names ----

struct Model : torch::nn::Module {
  explicit Model(const std::vector<at::Tensor>& p) {
    register_parameter("first", p[0]);
    register_parameter("second", p[1]);
    register_parameter("tied", p[1]);
    register_parameter("last", p[2]);
  }
};

TEST(ParameterNamesTest, AreTheModulesFirstNames) {
  const std::vector<at::Tensor> p = MakeParameters();
  const optim::SGD optimizer(GroupsOf(p), optim::SGDOptions(0.1));
  EXPECT_EQ(ParameterNames(optimizer, Model(p)).value(), Names({"first", "second", "last"}));
  EXPECT_THAT(ParameterNames(optimizer, Model(MakeParameters())),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("parameter 0 of group 0")));
}

TEST(OptimizerStateTest, RefusesNamesThatDoNotFit) {
  const optim::SGD optimizer(GroupsOf(MakeParameters()), optim::SGDOptions(0.1));
  EXPECT_THAT(OptimizerState(optimizer, Names{"a", "b"}),
              StatusIs(absl::StatusCode::kInvalidArgument, "2 names for the optimizer's 3 parameters"));
  EXPECT_THAT(OptimizerState(optimizer, Names{"a", "b", "a"}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("parameter 2 is named \"a\"")));
  const at::Tensor p = at::ones({1});
  const optim::SGD twice({p, p}, optim::SGDOptions(0.1));
  EXPECT_THAT(OptimizerState(twice),
              StatusIs(absl::StatusCode::kInvalidArgument, "parameter 1 is in the optimizer twice"));
}

// Expects that `optimizer` refuses `state` and stays as it is.
template <typename Matcher>
void ExpectRefused(optim::Optimizer& optimizer, const c10::IValue& state, const Names& names, const Matcher& message,
                   absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
  const std::string before = DumpOf(optimizer);
  EXPECT_THAT(LoadOptimizerState(optimizer, state, names), StatusIs(code, message));
  EXPECT_EQ(DumpOf(optimizer), before);
}

TEST(OptimizerStateTest, ParametersInAnotherOrderFindTheirMomentsByName) {
  const std::vector<at::Tensor> p = MakeParameters();
  optim::Adam v1(GroupsOf(p), optim::AdamOptions(0.1));
  Step(v1, 0);
  const GenericDict state = StateOf(v1, {"a", "b", "c"});
  EXPECT_EQ(KeysOf(GroupOf(state, 0))[0], "param_names");

  optim::Adam v2(GroupsOf({p[1], p[0], p[2]}), optim::AdamOptions(0.1));
  ASSERT_THAT(LoadOptimizerState(v2, state, Names{"b", "a", "c"}), IsOk());
  const GenericDict loaded = StateOf(v2, {"b", "a", "c"});
  EXPECT_EQ(Dump(EntryOf(loaded, 0)), Dump(EntryOf(state, 1)));
  EXPECT_EQ(Dump(EntryOf(loaded, 1)), Dump(EntryOf(state, 0)));
  EXPECT_NE(Dump(EntryOf(loaded, 0)), Dump(EntryOf(loaded, 1)));
  EXPECT_EQ(Dump(EntryOf(loaded, 2)), Dump(EntryOf(state, 2)));

  // Without names, what counts is the position.
  ASSERT_THAT(LoadOptimizerState(v2, state), IsOk());
  EXPECT_EQ(Dump(EntryOf(StateOf(v2), 0)), Dump(EntryOf(state, 0)));
}

TEST(OptimizerStateTest, NamesThatAreOnlyOnOneSideAreRefused) {
  const std::vector<at::Tensor> p = MakeParameters();
  optim::Adam v1(GroupsOf(p), optim::AdamOptions(0.1));
  Step(v1, 0);
  const GenericDict state = StateOf(v1, {"a", "b", "c"});

  optim::Adam more({optim::OptimizerParamGroup({p[0], p[1], at::ones({1})}), optim::OptimizerParamGroup({p[2]})},
                   optim::AdamOptions(0.2));
  ExpectRefused(more, state, {"a", "b", "new", "c"},
                "parameter \"new\" is in group 0 of the optimizer and in no group of the state");
  ExpectRefused(more, state, {}, "group 0 has 2 parameters in the state and 3 in the optimizer");

  optim::Adam fewer({optim::OptimizerParamGroup({p[1]}), optim::OptimizerParamGroup({p[2]})}, optim::AdamOptions(0.2));
  ExpectRefused(fewer, state, {"b", "c"},
                "parameter \"a\" is in group 0 of the state and not in that of the optimizer");

  optim::Adam moved({optim::OptimizerParamGroup({p[0]}), optim::OptimizerParamGroup({p[1], p[2]})},
                    optim::AdamOptions(0.2));
  ExpectRefused(moved, state, {"c", "a", "b"},
                "parameter \"c\" is in group 0 of the optimizer and in group 1 of the state");
}

TEST(OptimizerStateTest, AnotherNumberOfGroupsIsRefused) {
  const std::vector<at::Tensor> p = MakeParameters();
  optim::Adam two(GroupsOf(p), optim::AdamOptions(0.1)), one(p, optim::AdamOptions(0.2));
  ExpectRefused(one, StateOf(two), {}, "the optimizer has 1 groups and the state 2: group 1 is only in the state");
  ExpectRefused(two, StateOf(one), {}, "the optimizer has 2 groups and the state 1: group 1 is only in the optimizer");
}

// ---- What LibTorch has no place for ----

TEST(OptimizerStateTest, ExtrasCarryWhatLibTorchCannotHold) {
  optim::AdamW optimizer(GroupsOf(MakeParameters()), optim::AdamWOptions(0.1));
  Step(optimizer, 0);
  GenericDict state = CopyOf(StateOf(optimizer, {"a", "b", "c"}));
  GenericDict group = GroupOf(state, 0);
  group.insert_or_assign("foreach", false);
  group.insert_or_assign("fused", true);
  group.insert_or_assign("differentiable", true);
  group.insert_or_assign("weight_decay", int64_t{0});
  group.insert_or_assign("lr", int64_t{1});
  EntryOf(state, 1).insert_or_assign("step", at::scalar_tensor(1, at::kDouble));
  for (const int i : {0, 2}) EntryOf(state, i).insert_or_assign("step", at::scalar_tensor(1, at::kDouble));

  optim::AdamW other(GroupsOf(MakeParameters()), optim::AdamWOptions(0.2));
  const absl::StatusOr<OptimizerExtras> extras = LoadOptimizerState(other, state);
  ASSERT_THAT(extras, IsOk());
  EXPECT_EQ(Dump(OptimizerState(other, {}, *extras).value()), Dump(state));

  // What changed since is written as it is now.
  static_cast<optim::AdamWOptions&>(other.param_groups()[0].options()).lr(0.5);
  const GenericDict later = OptimizerState(other, {}, *extras)->toGenericDict();
  EXPECT_EQ(GroupOf(later, 0).at("lr"), 0.5);
  EXPECT_TRUE(GroupOf(later, 0).at("weight_decay").isInt());
}

TEST(OptimizerStateTest, KeepsTheInitialLearningRateOfPythonsSchedulers) {
  optim::SGD optimizer(GroupsOf(MakeParameters()), optim::SGDOptions(0.1));
  GenericDict state = CopyOf(StateOf(optimizer));
  EXPECT_EQ(GroupOf(state, 1).erase("params"), 1u);
  GroupOf(state, 1).insert("initial_lr", 0.5);
  GroupOf(state, 1).insert("params", c10::List<int64_t>({2}));
  const absl::StatusOr<OptimizerExtras> extras = LoadOptimizerState(optimizer, state);
  ASSERT_THAT(extras, IsOk());
  EXPECT_EQ(Dump(OptimizerState(optimizer, {}, *extras).value()), Dump(state));
}

TEST(OptimizerStateTest, RefusesExtrasOfMoreGroups) {
  const optim::SGD optimizer(MakeParameters(), optim::SGDOptions(0.1));
  const OptimizerExtras extras = {.groups = {GenericDict(c10::AnyType::get(), c10::AnyType::get()), c10::IValue()}};
  EXPECT_THAT(OptimizerState(optimizer, {}, extras),
              StatusIs(absl::StatusCode::kInvalidArgument, "extras of 2 groups for an optimizer of 1"));
}

TEST(OptimizerStateTest, RefusesOptionsThatChangeTheUpdate) {
  const auto refused = [](optim::Optimizer&& optimizer, const char* key, const c10::IValue& value,
                          const auto& message) {
    GenericDict state = CopyOf(StateOf(optimizer));
    GroupOf(state, 0).insert_or_assign("lr", 0.75);
    GroupOf(state, 1).insert_or_assign(key, value);
    ExpectRefused(optimizer, state, {}, message, absl::StatusCode::kUnimplemented);
  };
  for (const Kind& kind : Kinds()) {
    refused(std::move(*kind.make(GroupsOf(MakeParameters()))), "maximize", true,
            "group 1 of the optimizer state: maximize=True changes the update, and LibTorch's " + kind.name +
                " does not have it");
    refused(std::move(*kind.make(GroupsOf(MakeParameters()))), "lr", at::ones({}),
            AllOf(HasSubstr("group 1"), HasSubstr("\"lr\" is a tensor")));
  }
  refused(optim::Adam(GroupsOf(MakeParameters())), "decoupled_weight_decay", true,
          HasSubstr("decoupled_weight_decay=True"));
  refused(optim::AdamW(GroupsOf(MakeParameters())), "decoupled_weight_decay", false,
          HasSubstr("decoupled_weight_decay=False"));
}

TEST(OptimizerStateTest, OlderPythonsHadFewerOptions) {
  optim::AdamW optimizer(GroupsOf(MakeParameters()), optim::AdamWOptions(0.1).amsgrad(true));
  GenericDict state = CopyOf(StateOf(optimizer));
  for (const size_t i : {0, 1}) {
    for (const char* key :
         {"amsgrad", "maximize", "foreach", "capturable", "differentiable", "fused", "decoupled_weight_decay"}) {
      EXPECT_EQ(GroupOf(state, i).erase(key), 1u);
    }
  }
  ASSERT_THAT(LoadOptimizerState(optimizer, state), IsOk());
  EXPECT_EQ(GroupOf(StateOf(optimizer), 0).at("amsgrad"), false);
  EXPECT_EQ(GroupOf(state, 1).erase("eps"), 1u);
  ExpectRefused(optimizer, state, {}, "group 1 of the optimizer state has no \"eps\"");
}

// ---- Steps ----

GenericDict AdamStateWithStep(optim::Adam& optimizer, const c10::IValue& step) {
  GenericDict state = CopyOf(StateOf(optimizer));
  EntryOf(state, 1).insert_or_assign("step", step);
  return state;
}

TEST(OptimizerStateTest, StepsAreExact) {
  optim::Adam optimizer(GroupsOf(MakeParameters()), optim::AdamOptions(0.1));
  Step(optimizer, 0);
  constexpr int64_t kLimit = int64_t{1} << 24;
  const auto written = [&](const c10::IValue& step) {
    EXPECT_THAT(LoadOptimizerState(optimizer, AdamStateWithStep(optimizer, step)), IsOk());
    return EntryOf(StateOf(optimizer), 1).at("step").toTensor();
  };
  for (const int64_t step : {int64_t{0}, int64_t{7}, kLimit - 1}) {
    const std::string expected = Dump(at::scalar_tensor(step, at::kFloat));
    EXPECT_EQ(Dump(written(at::scalar_tensor(step, at::kFloat))), expected);
    EXPECT_EQ(Dump(written(at::scalar_tensor(step, at::kDouble))), expected);
    EXPECT_EQ(Dump(written(at::scalar_tensor(step, at::kLong))), expected);
    EXPECT_EQ(Dump(written(step)), expected);
    EXPECT_EQ(Dump(written(static_cast<double>(step))), expected);
  }
  for (const int64_t step : {kLimit, kLimit + 1}) {
    EXPECT_EQ(Dump(written(step)), Dump(at::scalar_tensor(step, at::kDouble)));
  }
}

TEST(OptimizerStateTest, RefusesStepsThatPythonCannotHold) {
  optim::Adam optimizer(GroupsOf(MakeParameters()), optim::AdamOptions(0.1));
  Step(optimizer, 0);
  GenericDict state = AdamStateWithStep(optimizer, (int64_t{1} << 24) + 1);
  GroupOf(state, 0).insert_or_assign("fused", true);
  const absl::StatusOr<OptimizerExtras> extras = LoadOptimizerState(optimizer, state);
  ASSERT_THAT(extras, IsOk());
  EXPECT_THAT(OptimizerState(optimizer, {}, *extras),
              StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("step 16777217 of parameter 1")));
}

TEST(OptimizerStateTest, RefusesStepsThatAreNone) {
  optim::Adam optimizer(GroupsOf(MakeParameters()), optim::AdamOptions(0.1));
  Step(optimizer, 0);
  const auto refused = [&](const c10::IValue& step, const auto& message) {
    ExpectRefused(optimizer, AdamStateWithStep(optimizer, step), {}, message);
  };
  refused(2.5, HasSubstr("step of parameter 1 is 2.5, not a whole number"));
  refused(at::scalar_tensor(-1, at::kFloat), HasSubstr("step of parameter 1 is -1"));
  refused(int64_t{-1}, HasSubstr("step of parameter 1 is -1"));
  refused(at::scalar_tensor(std::numeric_limits<double>::infinity(), at::kFloat), HasSubstr("is inf"));
  refused(at::scalar_tensor(std::numeric_limits<double>::quiet_NaN(), at::kFloat), HasSubstr("is nan"));
  refused(1e300, HasSubstr("is 1e+300"));
  refused(at::ones({2}), HasSubstr("step of parameter 1 is a tensor, not a tensor of one number"));
  refused("three", HasSubstr("step of parameter 1 is a str"));
  refused(c10::IValue(), "the state of parameter 1 has no step");
}

// ---- What is not the schema ----

class BadOptimizerStateTest : public testing::Test {
 protected:
  BadOptimizerStateTest() { Step(optimizer_, 0), state_ = CopyOf(StateOf(optimizer_, {"a", "b", "c"})); }

  // The state does not fit by position; the names are given in messages.
  template <typename Matcher>
  void Refuses(const Matcher& message) {
    ExpectRefused(optimizer_, state_, {"a", "b", "c"}, message);
    state_ = CopyOf(StateOf(optimizer_, {"a", "b", "c"}));
  }

  optim::Adam optimizer_{GroupsOf(MakeParameters()), optim::AdamOptions(0.1)};
  GenericDict state_{c10::AnyType::get(), c10::AnyType::get()};
};

TEST_F(BadOptimizerStateTest, OtherValuesAreRefused) {
  ExpectRefused(optimizer_, c10::IValue(3), {}, "the optimizer state is an int, not a dict");
  EXPECT_EQ(state_.erase("state"), 1u);
  Refuses("the optimizer state has no \"state\"");
  EXPECT_EQ(state_.erase("param_groups"), 1u);
  Refuses("the optimizer state has no \"param_groups\"");
  state_.insert("step", 3);
  Refuses(HasSubstr("\"step\" beside"));
  state_.insert_or_assign("param_groups", 3);
  Refuses("the optimizer state: \"param_groups\" is an int, not a list");
  state_.insert_or_assign("state", c10::List<int64_t>());
  Refuses("\"state\" of the optimizer state is a list, not a dict");
}

TEST_F(BadOptimizerStateTest, OptionsOfAnotherKindAreRefused) {
  GroupOf(state_, 1).insert_or_assign("lr", "fast");
  Refuses("group 1 of the optimizer state: \"lr\" is a str, not a number that a double holds");
  GroupOf(state_, 1).insert_or_assign("lr", int64_t{1} << 60);
  Refuses(HasSubstr("\"lr\" is an int"));
  GroupOf(state_, 0).insert_or_assign("betas", c10::List<double>({0.9}));
  Refuses(HasSubstr("\"betas\" is a list, not a pair of numbers"));
  GroupOf(state_, 0).insert_or_assign("fused", 1);
  Refuses(HasSubstr("\"fused\" is an int, not None or a bool"));
  GroupOf(state_, 0).insert_or_assign("amsgrad", c10::IValue());
  Refuses(HasSubstr("\"amsgrad\" is None, not a bool"));
  GroupOf(state_, 0).insert_or_assign("rho", 0.5);
  Refuses("group 0 of the optimizer state: unknown key \"rho\"");
}

TEST_F(BadOptimizerStateTest, ParametersThatDoNotAddUpAreRefused) {
  GroupOf(state_, 1).insert_or_assign("params", c10::List<int64_t>({0}));
  Refuses("two parameters of the optimizer state have number 0");
  GroupOf(state_, 1).insert_or_assign("param_names", c10::List<std::string>({"a"}));
  Refuses("two parameters of the optimizer state are named \"a\"");
  GroupOf(state_, 1).insert_or_assign("param_names", c10::List<std::string>({"a", "b"}));
  Refuses(HasSubstr("2 param_names for 1 params"));
  GroupOf(state_, 1).insert_or_assign("params", c10::List<std::string>({"c"}));
  Refuses(HasSubstr("\"params\" has a str"));
  state_.at("state").toGenericDict().insert(int64_t{7}, EntryOf(state_, 0));
  Refuses("the optimizer state has an entry for parameter 7, which no group has");
  state_.at("state").toGenericDict().insert("a", EntryOf(state_, 0));
  Refuses(HasSubstr("has a str for a parameter's number"));
}

TEST_F(BadOptimizerStateTest, StateThatDoesNotFitItsParameterIsRefused) {
  EntryOf(state_, 2).insert_or_assign("exp_avg", at::ones({3}));
  Refuses("exp_avg of parameter \"c\" is Float [3] in the state, and the parameter Float [4]");
  EntryOf(state_, 2).insert_or_assign("exp_avg_sq", at::ones({4}, at::kDouble));
  Refuses("exp_avg_sq of parameter \"c\" is Double [4] in the state, and the parameter Float [4]");
  EntryOf(state_, 2).insert_or_assign("exp_avg", at::ones({4}).to_sparse());
  Refuses("exp_avg of parameter \"c\" is not dense");
  EntryOf(state_, 2).insert_or_assign("exp_avg", 1.0);
  Refuses("exp_avg of parameter \"c\" is a float, not a tensor");
  EXPECT_EQ(EntryOf(state_, 2).erase("exp_avg"), 1u);
  Refuses("the state of parameter \"c\" has no exp_avg");
  EntryOf(state_, 2).insert("momentum_buffer", at::ones({4}));
  Refuses("the state of parameter \"c\" has \"momentum_buffer\", which LibTorch's Adam does not have");
  GroupOf(state_, 1).insert_or_assign("amsgrad", true);
  Refuses("the state of parameter \"c\" has no max_exp_avg_sq");
  state_.at("state").toGenericDict().insert_or_assign(int64_t{2}, 5);
  Refuses("the state of parameter \"c\" is an int, not a dict");
}

}  // namespace
}  // namespace cohort
