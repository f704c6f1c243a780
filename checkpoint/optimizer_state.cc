// Each optimizer's options and state are described once, as fields under Python's keys in Python's order (Schema). Saving
// writes the fields. Loading reads them into fresh options and states:
//
//   1. Groups: the options are read, what LibTorch cannot do is refused, and every parameter of the optimizer finds its
//      number in the state, by name or by position.
//   2. State: every entry is read for the parameter that has its number. Tensors are copied to its device.
//   3. Only then, and without anything that can fail, options and states take their place.

#include "cohort/checkpoint/optimizer_state.h"

#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include "ATen/ops/full_like.h"
#include "ATen/ops/scalar_tensor.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "c10/core/DefaultDtype.h"
#include "c10/core/GradMode.h"
#include "cohort/checkpoint/internal/quoted.h"
#include "cohort/checkpoint/internal/value_fields.h"
#include "cohort/runtime/torch_status.h"
#include "torch/nn/module.h"
#include "torch/optim/adagrad.h"
#include "torch/optim/adam.h"
#include "torch/optim/adamw.h"
#include "torch/optim/rmsprop.h"
#include "torch/optim/sgd.h"

namespace cohort {
namespace {

using ::c10::impl::GenericDict;
using ::cohort::internal::AsDict;
using ::cohort::internal::Field;
using ::cohort::internal::NewDict;
using ::cohort::internal::Quoted;
using ::cohort::internal::TypeName;
using ::cohort::internal::ValueAt;
using ::torch::optim::Optimizer;
using ::torch::optim::OptimizerOptions;
using ::torch::optim::OptimizerParamState;

// A float32 that counts in ones stops here.
constexpr int64_t kMaxFloat32Step = int64_t{1} << 24;
constexpr int64_t kMaxFloat64Step = int64_t{1} << 53;

// ---- What each optimizer has ----

// The options that Python has and LibTorch has not, at Python's default values.
struct PythonOptions {
  bool maximize = false;
  std::optional<bool> foreach;
  bool capturable = false;
  bool differentiable = false;
  std::optional<bool> fused;
  bool decoupled_weight_decay = false;
  std::optional<double> initial_lr;
};

struct StateTensor {
  std::string_view key;
  at::Tensor* place;
  bool is_required;
};

struct StateFields {
  int64_t* step = nullptr;  // nullptr: it has none
  std::vector<StateTensor> tensors;
};

constexpr bool kSinceLater = false;  // older Pythons did not have the option

std::vector<Field> OptionFields(torch::optim::SGDOptions& o, PythonOptions& python) {
  return {{"lr", &o.lr()},
          {"momentum", &o.momentum(), kSinceLater},
          {"dampening", &o.dampening()},
          {"weight_decay", &o.weight_decay()},
          {"nesterov", &o.nesterov(), kSinceLater},
          {"maximize", &python.maximize, kSinceLater},
          {"foreach", &python.foreach, kSinceLater},
          {"differentiable", &python.differentiable, kSinceLater},
          {"fused", &python.fused, kSinceLater},
          {"initial_lr", &python.initial_lr, kSinceLater}};
}

template <typename AdamOrAdamWOptions>
std::vector<Field> AdamOptionFields(AdamOrAdamWOptions& o, PythonOptions& python) {
  return {{"lr", &o.lr()},
          {"betas", &o.betas()},
          {"eps", &o.eps()},
          {"weight_decay", &o.weight_decay()},
          {"amsgrad", &o.amsgrad(), kSinceLater},
          {"maximize", &python.maximize, kSinceLater},
          {"foreach", &python.foreach, kSinceLater},
          {"capturable", &python.capturable, kSinceLater},
          {"differentiable", &python.differentiable, kSinceLater},
          {"fused", &python.fused, kSinceLater},
          {"decoupled_weight_decay", &python.decoupled_weight_decay, kSinceLater},
          {"initial_lr", &python.initial_lr, kSinceLater}};
}

std::vector<Field> OptionFields(torch::optim::AdamOptions& o, PythonOptions& python) {
  return AdamOptionFields(o, python);
}

std::vector<Field> OptionFields(torch::optim::AdamWOptions& o, PythonOptions& python) {
  return AdamOptionFields(o, python);
}

std::vector<Field> OptionFields(torch::optim::RMSpropOptions& o, PythonOptions& python) {
  return {{"lr", &o.lr()},
          {"momentum", &o.momentum(), kSinceLater},
          {"alpha", &o.alpha()},
          {"eps", &o.eps()},
          {"centered", &o.centered(), kSinceLater},
          {"weight_decay", &o.weight_decay()},
          {"capturable", &python.capturable, kSinceLater},
          {"foreach", &python.foreach, kSinceLater},
          {"maximize", &python.maximize, kSinceLater},
          {"differentiable", &python.differentiable, kSinceLater},
          {"initial_lr", &python.initial_lr, kSinceLater}};
}

std::vector<Field> OptionFields(torch::optim::AdagradOptions& o, PythonOptions& python) {
  return {{"lr", &o.lr()},
          {"lr_decay", &o.lr_decay()},
          {"eps", &o.eps()},
          {"weight_decay", &o.weight_decay()},
          {"initial_accumulator_value", &o.initial_accumulator_value()},
          {"foreach", &python.foreach, kSinceLater},
          {"maximize", &python.maximize, kSinceLater},
          {"differentiable", &python.differentiable, kSinceLater},
          {"fused", &python.fused, kSinceLater},
          {"initial_lr", &python.initial_lr, kSinceLater}};
}

StateFields FieldsOf(torch::optim::SGDParamState& state, const torch::optim::SGDOptions&) {
  return {.tensors = {{"momentum_buffer", &state.momentum_buffer(), false}}};
}

template <typename AdamOrAdamWState>
StateFields AdamFieldsOf(AdamOrAdamWState& state, bool amsgrad) {
  return {.step = &state.step(),
          .tensors = {{"exp_avg", &state.exp_avg(), true},
                      {"exp_avg_sq", &state.exp_avg_sq(), true},
                      {"max_exp_avg_sq", &state.max_exp_avg_sq(), amsgrad}}};
}

StateFields FieldsOf(torch::optim::AdamParamState& state, const torch::optim::AdamOptions& options) {
  return AdamFieldsOf(state, options.amsgrad());
}

StateFields FieldsOf(torch::optim::AdamWParamState& state, const torch::optim::AdamWOptions& options) {
  return AdamFieldsOf(state, options.amsgrad());
}

StateFields FieldsOf(torch::optim::RMSpropParamState& state, const torch::optim::RMSpropOptions& options) {
  return {.step = &state.step(),
          .tensors = {{"square_avg", &state.square_avg(), true},
                      {"momentum_buffer", &state.momentum_buffer(), options.momentum() > 0},
                      {"grad_avg", &state.grad_avg(), options.centered()}}};
}

StateFields FieldsOf(torch::optim::AdagradParamState& state, const torch::optim::AdagradOptions&) {
  return {.step = &state.step(), .tensors = {{"sum", &state.sum(), true}}};
}

// An optimizer's type, as LibTorch's base classes hide it.
class Schema {
 public:
  explicit Schema(std::string_view name) : name_(name) {}
  virtual ~Schema() = default;

  virtual std::vector<Field> Options(OptimizerOptions& options, PythonOptions& python) const = 0;
  virtual StateFields State(OptimizerParamState& state, const OptimizerOptions& options) const = 0;
  virtual std::unique_ptr<OptimizerOptions> NewOptions() const = 0;
  virtual std::unique_ptr<OptimizerParamState> NewState() const = 0;

  std::string_view name() const { return name_; }
  bool is_adagrad() const { return name_ == "Adagrad"; }
  PythonOptions NewPythonOptions() const { return {.decoupled_weight_decay = name_ == "AdamW"}; }

 private:
  std::string_view name_;
};

template <typename TypedOptions, typename TypedState>
class TypedSchema : public Schema {
 public:
  using Schema::Schema;

  std::vector<Field> Options(OptimizerOptions& options, PythonOptions& python) const override {
    return OptionFields(static_cast<TypedOptions&>(options), python);
  }
  StateFields State(OptimizerParamState& state, const OptimizerOptions& options) const override {
    return FieldsOf(static_cast<TypedState&>(state), static_cast<const TypedOptions&>(options));
  }
  std::unique_ptr<OptimizerOptions> NewOptions() const override { return std::make_unique<TypedOptions>(1e-3); }
  std::unique_ptr<OptimizerParamState> NewState() const override { return std::make_unique<TypedState>(); }
};

absl::StatusOr<std::unique_ptr<Schema>> SchemaOf(const Optimizer& optimizer) {
  namespace optim = torch::optim;
  if (dynamic_cast<const optim::SGD*>(&optimizer) != nullptr) {
    return std::make_unique<TypedSchema<optim::SGDOptions, optim::SGDParamState>>("SGD");
  }
  if (dynamic_cast<const optim::Adam*>(&optimizer) != nullptr) {
    return std::make_unique<TypedSchema<optim::AdamOptions, optim::AdamParamState>>("Adam");
  }
  if (dynamic_cast<const optim::AdamW*>(&optimizer) != nullptr) {
    return std::make_unique<TypedSchema<optim::AdamWOptions, optim::AdamWParamState>>("AdamW");
  }
  if (dynamic_cast<const optim::RMSprop*>(&optimizer) != nullptr) {
    return std::make_unique<TypedSchema<optim::RMSpropOptions, optim::RMSpropParamState>>("RMSprop");
  }
  if (dynamic_cast<const optim::Adagrad*>(&optimizer) != nullptr) {
    return std::make_unique<TypedSchema<optim::AdagradOptions, optim::AdagradParamState>>("Adagrad");
  }
  return absl::UnimplementedError("the optimizer is none of torch::optim's SGD, Adam, AdamW, RMSprop and Adagrad");
}

// ---- The parameters of an optimizer ----

struct Parameter {
  at::Tensor tensor;
  size_t group;
  std::string name;  // empty: none
  size_t number;     // through all groups

  const void* key() const { return tensor.unsafeGetTensorImpl(); }
  std::string label() const { return absl::StrCat("parameter ", name.empty() ? absl::StrCat(number) : Quoted(name)); }
};

absl::StatusOr<std::vector<Parameter>> ParametersOf(const Optimizer& optimizer, absl::Span<const std::string> names) {
  std::vector<Parameter> parameters;
  absl::flat_hash_set<const void*> tensors;
  absl::flat_hash_set<std::string_view> seen;
  for (size_t group = 0; group < optimizer.param_groups().size(); ++group) {
    for (const at::Tensor& tensor : optimizer.param_groups()[group].params()) {
      const size_t number = parameters.size();
      parameters.push_back({.tensor = tensor, .group = group, .number = number});
      if (number < names.size()) {
        parameters.back().name = names[number];
        if (names[number].empty() || !seen.insert(names[number]).second) {
          return absl::InvalidArgumentError(
              absl::StrCat("parameter ", number, " is named ", Quoted(names[number]), ": empty, or not the first"));
        }
      }
      if (!tensors.insert(parameters.back().key()).second) {
        return absl::InvalidArgumentError(absl::StrCat(parameters.back().label(), " is in the optimizer twice"));
      }
    }
  }
  if (!names.empty() && names.size() != parameters.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(names.size(), " names for the optimizer's ", parameters.size(), " parameters"));
  }
  return parameters;
}

// ---- Saving ----

// The options of a group. Where `loaded` has the same value, as Python wrote it.
absl::StatusOr<GenericDict> WriteOptions(const Schema& schema, const OptimizerOptions& options,
                                         const c10::IValue* loaded) {
  const std::unique_ptr<OptimizerOptions> current = options.clone();
  PythonOptions python = schema.NewPythonOptions();
  GenericDict dict = NewDict();
  if (loaded == nullptr) {
    PutFields(schema.Options(*current, python), dict);
  } else {
    ABSL_ASSIGN_OR_RETURN(const GenericDict original, AsDict(*loaded, "a group of the extras"));
    const std::unique_ptr<OptimizerOptions> then = schema.NewOptions();
    const std::vector<Field> fields = schema.Options(*then, python);
    ABSL_RETURN_IF_ERROR(ReadFields(original, fields, "a group of the extras"));
    GenericDict before = NewDict();
    PutFields(fields, before);
    PutFields(schema.Options(*current, python), dict);
    for (const auto& entry : original) {
      if (dict.at(entry.key()) == before.at(entry.key())) dict.insert_or_assign(entry.key(), entry.value());
    }
  }
  if (!python.initial_lr.has_value()) std::ignore = dict.erase("initial_lr");
  return dict;
}

absl::StatusOr<c10::IValue> WriteStep(int64_t step, const GenericDict& options, bool as_float64,
                                      const Parameter& parameter) {
  const auto is_set = [&](const char* key) {
    const auto found = options.find(key);
    return found != options.end() && found->value().isBool() && found->value().toBool();
  };
  if (step > kMaxFloat64Step || (step > kMaxFloat32Step && (is_set("fused") || is_set("capturable")))) {
    return absl::OutOfRangeError(absl::StrCat("step ", step, " of ", parameter.label(),
                                              " is more than the tensor that Python counts in can hold"));
  }
  as_float64 |= step >= kMaxFloat32Step || c10::get_default_dtype_as_scalartype() == c10::kDouble;
  return c10::IValue(at::scalar_tensor(static_cast<double>(step), as_float64 ? c10::kDouble : c10::kFloat));
}

// The entry of a parameter that has one.
absl::StatusOr<GenericDict> WriteState(const Schema& schema, const OptimizerParamState& param_state,
                                       const OptimizerOptions& options, const GenericDict& written_options,
                                       bool as_float64, const Parameter& parameter) {
  const std::unique_ptr<OptimizerParamState> current = param_state.clone();
  const StateFields fields = schema.State(*current, options);
  GenericDict dict = NewDict();
  if (fields.step != nullptr) {
    ABSL_ASSIGN_OR_RETURN(c10::IValue step, WriteStep(*fields.step, written_options, as_float64, parameter));
    dict.insert("step", std::move(step));
  }
  for (const auto& [key, tensor, is_required] : fields.tensors) {
    if (tensor->defined()) dict.insert(std::string(key), tensor->detach());
  }
  return dict;
}

template <typename Values>
c10::IValue ListOf(const Values& values) {
  c10::impl::GenericList list(c10::AnyType::get());
  for (const auto& value : values) list.push_back(c10::IValue(value));
  return list;
}

absl::StatusOr<c10::IValue> Write(const Optimizer& optimizer, absl::Span<const std::string> names,
                                  const OptimizerExtras& extras) {
  ABSL_ASSIGN_OR_RETURN(const std::unique_ptr<Schema> schema, SchemaOf(optimizer));
  if (names.empty()) names = extras.names;
  ABSL_ASSIGN_OR_RETURN(const std::vector<Parameter> parameters, ParametersOf(optimizer, names));
  const auto& groups = optimizer.param_groups();
  if (extras.groups.size() > groups.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("extras of ", extras.groups.size(), " groups for an optimizer of ", groups.size()));
  }

  GenericDict state = NewDict();
  c10::impl::GenericList param_groups(c10::AnyType::get());
  size_t next = 0;
  for (size_t i = 0; i < groups.size(); ++i) {
    ABSL_ASSIGN_OR_RETURN(
        const GenericDict options,
        WriteOptions(*schema, groups[i].options(), i < extras.groups.size() ? &extras.groups[i] : nullptr));
    std::vector<int64_t> numbers;
    std::vector<std::string> group_names;
    for (; next < parameters.size() && parameters[next].group == i; ++next) {
      const Parameter& parameter = parameters[next];
      numbers.push_back(static_cast<int64_t>(next));
      group_names.push_back(parameter.name);
      const auto found = optimizer.state().find(parameter.tensor.unsafeGetTensorImpl());
      if (found == optimizer.state().end()) continue;
      ABSL_ASSIGN_OR_RETURN(GenericDict entry, WriteState(*schema, *found->second, groups[i].options(), options,
                                                          extras.float64_steps, parameter));
      if (!entry.empty()) state.insert(static_cast<int64_t>(next), std::move(entry));
    }
    GenericDict group = NewDict();
    if (!names.empty()) group.insert("param_names", ListOf(group_names));
    for (const auto& entry : options) group.insert(entry.key(), entry.value());
    group.insert("params", ListOf(numbers));
    param_groups.push_back(std::move(group));
  }
  GenericDict result = NewDict();
  result.insert("state", std::move(state));
  result.insert("param_groups", std::move(param_groups));
  return c10::IValue(std::move(result));
}

// ---- Loading: groups ----

// A group of the state.
struct LoadedGroup {
  GenericDict dict = NewDict();  // the options as they stand there
  std::unique_ptr<OptimizerOptions> options;
  PythonOptions python;
  std::vector<int64_t> ids;        // of its parameters
  std::vector<std::string> names;  // likewise; empty if it has none
};

absl::StatusOr<at::ArrayRef<c10::IValue>> ListAt(const GenericDict& dict, const char* key, std::string_view what) {
  ABSL_ASSIGN_OR_RETURN(const c10::IValue value, ValueAt(dict, key, what));
  // The reference stays good: `dict` holds the list.
  if (value.isList()) return value.toListRef();
  return absl::InvalidArgumentError(absl::StrCat(what, ": ", Quoted(key), " is ", TypeName(value), ", not a list"));
}

absl::Status ReadParams(const GenericDict& dict, std::string_view what, LoadedGroup& group) {
  ABSL_ASSIGN_OR_RETURN(const at::ArrayRef<c10::IValue> ids, ListAt(dict, "params", what));
  for (const c10::IValue& id : ids) {
    if (!id.isInt()) {
      return absl::InvalidArgumentError(absl::StrCat(what, ": \"params\" has ", TypeName(id), ", not only ints"));
    }
    group.ids.push_back(id.toInt());
  }
  if (!dict.contains("param_names")) return absl::OkStatus();
  ABSL_ASSIGN_OR_RETURN(const at::ArrayRef<c10::IValue> names, ListAt(dict, "param_names", what));
  for (const c10::IValue& name : names) {
    if (!name.isString()) {
      return absl::InvalidArgumentError(
          absl::StrCat(what, ": \"param_names\" has ", TypeName(name), ", not only strs"));
    }
    group.names.push_back(name.toStringRef());
  }
  if (group.names.size() == group.ids.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, " has ", group.names.size(), " param_names for ", group.ids.size(), " params"));
}

absl::Status RefuseWhatLibTorchLacks(const Schema& schema, const PythonOptions& python, std::string_view what) {
  const auto refuse = [&](std::string_view option, bool value) {
    return absl::UnimplementedError(absl::StrCat(what, ": ", option, "=", value ? "True" : "False",
                                                 " changes the update, and LibTorch's ", schema.name(),
                                                 " does not have it"));
  };
  if (python.maximize) return refuse("maximize", true);
  if (python.decoupled_weight_decay != schema.NewPythonOptions().decoupled_weight_decay) {
    return refuse("decoupled_weight_decay", python.decoupled_weight_decay);
  }
  return absl::OkStatus();
}

absl::StatusOr<LoadedGroup> ReadGroup(const Schema& schema, const c10::IValue& value, std::string_view what) {
  LoadedGroup group;
  ABSL_ASSIGN_OR_RETURN(const GenericDict dict, AsDict(value, what));
  ABSL_RETURN_IF_ERROR(ReadParams(dict, what, group));
  for (const auto& entry : dict) {
    if (entry.key().isString()) {
      const std::string& key = entry.key().toStringRef();
      if (key == "params" || key == "param_names") continue;
      if (entry.value().isTensor()) {
        return absl::UnimplementedError(absl::StrCat(what, ": ", Quoted(key),
                                                     " is a tensor, and LibTorch has a number there; in Python, set "
                                                     "group[",
                                                     Quoted(key), "] = group[", Quoted(key), "].item()"));
      }
    }
    group.dict.insert(entry.key(), entry.value());
  }
  group.options = schema.NewOptions();
  group.python = schema.NewPythonOptions();
  ABSL_RETURN_IF_ERROR(ReadFields(group.dict, schema.Options(*group.options, group.python), what));
  ABSL_RETURN_IF_ERROR(RefuseWhatLibTorchLacks(schema, group.python, what));
  return group;
}

std::string GroupName(size_t i) { return absl::StrCat("group ", i, " of the optimizer state"); }

absl::StatusOr<std::vector<LoadedGroup>> ReadGroups(const Schema& schema, const Optimizer& optimizer,
                                                    const GenericDict& state) {
  ABSL_ASSIGN_OR_RETURN(const at::ArrayRef<c10::IValue> values, ListAt(state, "param_groups", "the optimizer state"));
  const size_t wanted = optimizer.param_groups().size();
  std::vector<LoadedGroup> groups;
  for (size_t i = 0; i < values.size(); ++i) {
    ABSL_ASSIGN_OR_RETURN(LoadedGroup group, ReadGroup(schema, values[i], GroupName(i)));
    groups.push_back(std::move(group));
  }
  if (groups.size() == wanted) return groups;
  const size_t odd = std::min(groups.size(), wanted);  // the first that has no counterpart
  return absl::InvalidArgumentError(absl::StrCat("the optimizer has ", wanted, " groups and the state ", groups.size(),
                                                 ": group ", odd, " is only in the ",
                                                 groups.size() > wanted ? "state" : "optimizer"));
}

// Matches the parameters of group `i` by name. `group_of` tells the group of each name in the state.
absl::Status MatchByName(absl::Span<const Parameter> parameters, const LoadedGroup& group, size_t i,
                         const absl::flat_hash_map<std::string_view, size_t>& group_of,
                         absl::flat_hash_map<int64_t, size_t>& parameter_of) {
  absl::flat_hash_map<std::string_view, int64_t> ids;
  for (size_t j = 0; j < group.ids.size(); ++j) ids.emplace(group.names[j], group.ids[j]);
  for (const Parameter& parameter : parameters) {
    const auto found = ids.find(parameter.name);
    if (found == ids.end()) {
      const auto elsewhere = group_of.find(parameter.name);
      return absl::InvalidArgumentError(absl::StrCat(
          parameter.label(), " is in group ", i, " of the optimizer and in ",
          elsewhere == group_of.end() ? "no group" : absl::StrCat("group ", elsewhere->second), " of the state"));
    }
    parameter_of.emplace(found->second, parameter.number);
    ids.erase(found);
  }
  if (ids.empty()) return absl::OkStatus();
  for (const std::string& name : group.names) {
    if (!ids.contains(name)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("parameter ", Quoted(name), " is in group ", i, " of the state and not in that of the optimizer"));
  }
  return absl::OkStatus();
}

// The number of the optimizer's parameter that each of the state's ids means.
absl::StatusOr<absl::flat_hash_map<int64_t, size_t>> MatchParameters(absl::Span<const Parameter> parameters,
                                                                     absl::Span<const LoadedGroup> groups) {
  absl::flat_hash_set<int64_t> ids;
  absl::flat_hash_map<std::string_view, size_t> group_of;
  for (size_t i = 0; i < groups.size(); ++i) {
    for (const int64_t id : groups[i].ids) {
      if (!ids.insert(id).second) {
        return absl::InvalidArgumentError(absl::StrCat("two parameters of the optimizer state have number ", id));
      }
    }
    for (const std::string& name : groups[i].names) {
      if (!group_of.emplace(name, i).second) {
        return absl::InvalidArgumentError(
            absl::StrCat("two parameters of the optimizer state are named ", Quoted(name)));
      }
    }
  }

  absl::flat_hash_map<int64_t, size_t> parameter_of;
  size_t begin = 0;
  for (size_t i = 0; i < groups.size(); ++i) {
    size_t end = begin;
    while (end < parameters.size() && parameters[end].group == i) ++end;
    const absl::Span<const Parameter> ours = parameters.subspan(begin, end - begin);
    const LoadedGroup& group = groups[i];
    if (!group.names.empty() && !ours.empty() && !ours[0].name.empty()) {
      ABSL_RETURN_IF_ERROR(MatchByName(ours, group, i, group_of, parameter_of));
    } else if (group.ids.size() != ours.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "group ", i, " has ", group.ids.size(), " parameters in the state and ", ours.size(), " in the optimizer"));
    } else {
      for (size_t j = 0; j < ours.size(); ++j) parameter_of.emplace(group.ids[j], ours[j].number);
    }
    begin = end;
  }
  return parameter_of;
}

// ---- Loading: state ----

std::string Describe(const at::Tensor& tensor) {
  return absl::StrCat(c10::toString(tensor.scalar_type()), " [", absl::StrJoin(tensor.sizes(), ", "), "]");
}

// Python counts in a float tensor; older ones in an int.
absl::StatusOr<int64_t> ReadStep(const c10::IValue& value, std::string_view what, bool& is_float64) {
  double step = -1;
  if (value.isInt()) return value.toInt();
  if (value.isDouble()) step = value.toDouble();
  if (value.isTensor() && value.toTensor().defined() && value.toTensor().numel() == 1 &&
      value.toTensor().layout() == at::kStrided && !value.toTensor().is_meta()) {
    const at::Tensor tensor = value.toTensor();
    if (c10::isIntegralType(tensor.scalar_type(), /*includeBool=*/false)) return tensor.item<int64_t>();
    if (c10::isFloatingType(tensor.scalar_type())) step = tensor.item<double>();
    is_float64 |= tensor.scalar_type() == c10::kDouble;
  } else if (!value.isDouble()) {
    return absl::InvalidArgumentError(absl::StrCat(what, " is ", TypeName(value), ", not a tensor of one number"));
  }
  if (step >= 0 && step <= static_cast<double>(kMaxFloat64Step) && step == std::floor(step)) {
    return static_cast<int64_t>(step);
  }
  return absl::InvalidArgumentError(absl::StrCat(what, " is ", step, ", not a whole number from 0 to 2^53"));
}

// A copy of `value` for `parameter`.
absl::StatusOr<at::Tensor> ReadTensor(const c10::IValue& value, const Parameter& parameter, std::string_view what) {
  if (!value.isTensor() || !value.toTensor().defined()) {
    return absl::InvalidArgumentError(absl::StrCat(what, " is ", TypeName(value), ", not a tensor"));
  }
  const at::Tensor& tensor = value.toTensor();
  if (tensor.is_nested() || tensor.layout() != at::kStrided || tensor.is_meta()) {
    return absl::InvalidArgumentError(absl::StrCat(what, " is not dense"));
  }
  if (tensor.scalar_type() != parameter.tensor.scalar_type() || tensor.sizes() != parameter.tensor.sizes()) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " is ", Describe(tensor), " in the state, and the parameter ", Describe(parameter.tensor)));
  }
  return tensor.detach().to(parameter.tensor.device(), tensor.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
}

// nullptr: the entry says nothing. Older Pythons wrote such for SGD without momentum.
absl::StatusOr<std::unique_ptr<OptimizerParamState>> ReadState(const Schema& schema, const c10::IValue& value,
                                                               const OptimizerOptions& options,
                                                               const Parameter& parameter, bool& is_float64) {
  const std::string label = parameter.label();
  ABSL_ASSIGN_OR_RETURN(const GenericDict dict, AsDict(value, absl::StrCat("the state of ", label)));
  std::unique_ptr<OptimizerParamState> result = schema.NewState();
  const StateFields fields = schema.State(*result, options);
  absl::flat_hash_set<std::string_view> known;
  bool is_empty = true;
  const auto find = [&](std::string_view key) -> std::optional<c10::IValue> {
    known.insert(key);
    const auto found = dict.find(std::string(key));
    if (found == dict.end() || found->value().isNone()) return std::nullopt;
    is_empty = false;
    return found->value();
  };

  std::vector<std::string_view> missing;
  if (fields.step != nullptr) {
    const std::optional<c10::IValue> step = find("step");
    if (!step.has_value()) {
      missing.push_back("step");
    } else {
      ABSL_ASSIGN_OR_RETURN(*fields.step, ReadStep(*step, absl::StrCat("step of ", label), is_float64));
      if (*fields.step < 0) {
        return absl::InvalidArgumentError(absl::StrCat("step of ", label, " is ", *fields.step));
      }
    }
  }
  for (const auto& [key, place, is_required] : fields.tensors) {
    const std::optional<c10::IValue> tensor = find(key);
    if (tensor.has_value()) {
      ABSL_ASSIGN_OR_RETURN(*place, ReadTensor(*tensor, parameter, absl::StrCat(key, " of ", label)));
    } else if (is_required) {
      missing.push_back(key);
    }
  }
  for (const auto& entry : dict) {
    if (entry.key().isString() && known.contains(entry.key().toStringRef())) continue;
    const std::string key = entry.key().isString() ? Quoted(entry.key().toStringRef()) : TypeName(entry.key());
    return absl::InvalidArgumentError(
        absl::StrCat("the state of ", label, " has ", key, ", which LibTorch's ", schema.name(), " does not have"));
  }
  if (is_empty) return nullptr;
  if (missing.empty()) return result;
  return absl::InvalidArgumentError(absl::StrCat("the state of ", label, " has no ", absl::StrJoin(missing, ", ")));
}

// What LibTorch's Adagrad has before its first step, and cannot make in it.
std::unique_ptr<OptimizerParamState> FreshAdagradState(const OptimizerOptions& options, const at::Tensor& parameter) {
  auto state = std::make_unique<torch::optim::AdagradParamState>();
  const double value = static_cast<const torch::optim::AdagradOptions&>(options).initial_accumulator_value();
  state->sum(at::full_like(parameter.detach(), value, {}, at::MemoryFormat::Preserve));
  return state;
}

// By the number of the parameter; nullptr where there is none.
using States = std::vector<std::unique_ptr<OptimizerParamState>>;

absl::StatusOr<States> ReadStates(const Schema& schema, const GenericDict& state,
                                  absl::Span<const Parameter> parameters, absl::Span<const LoadedGroup> groups,
                                  bool& is_float64) {
  ABSL_ASSIGN_OR_RETURN(const auto parameter_of, MatchParameters(parameters, groups));
  ABSL_ASSIGN_OR_RETURN(const c10::IValue value, ValueAt(state, "state", "the optimizer state"));
  ABSL_ASSIGN_OR_RETURN(const GenericDict entries, AsDict(value, "\"state\" of the optimizer state"));
  States states(parameters.size());
  for (const auto& entry : entries) {
    if (!entry.key().isInt()) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"state\" of the optimizer state has ", TypeName(entry.key()), " for a parameter's number"));
    }
    const auto found = parameter_of.find(entry.key().toInt());
    if (found == parameter_of.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the optimizer state has an entry for parameter ", entry.key().toInt(), ", which no group has"));
    }
    const Parameter& parameter = parameters[found->second];
    ABSL_ASSIGN_OR_RETURN(states[found->second],
                          ReadState(schema, entry.value(), *groups[parameter.group].options, parameter, is_float64));
  }
  for (const Parameter& parameter : parameters) {
    if (!schema.is_adagrad() || states[parameter.number] != nullptr) continue;
    states[parameter.number] = FreshAdagradState(*groups[parameter.group].options, parameter.tensor);
  }
  return states;
}

// ---- Loading: all of it ----

// Assigns in place: the program may hold references to the options.
void AssignOptions(const Schema& schema, OptimizerOptions& from, OptimizerOptions& to) {
  PythonOptions unused;
  const std::vector<Field> sources = schema.Options(from, unused), targets = schema.Options(to, unused);
  for (size_t i = 0; i < sources.size(); ++i) {
    std::visit(
        [&](auto* source) {
          auto* target = std::get<decltype(source)>(targets[i].place);
          if (target != source) *target = *source;
        },
        sources[i].place);
  }
}

// The state's names in the optimizer's order; empty if it lacks some.
std::vector<std::string> NamesInOrder(absl::Span<const Parameter> parameters, absl::Span<const LoadedGroup> groups) {
  std::vector<std::string> names;
  for (const LoadedGroup& group : groups) names.insert(names.end(), group.names.begin(), group.names.end());
  if (names.size() != parameters.size()) return {};
  for (const Parameter& parameter : parameters) {
    if (!parameter.name.empty()) names[parameter.number] = parameter.name;
  }
  return names;
}

absl::StatusOr<OptimizerExtras> Load(Optimizer& optimizer, const c10::IValue& value,
                                     absl::Span<const std::string> names) {
  ABSL_ASSIGN_OR_RETURN(const std::unique_ptr<Schema> schema, SchemaOf(optimizer));
  ABSL_ASSIGN_OR_RETURN(const std::vector<Parameter> parameters, ParametersOf(optimizer, names));
  ABSL_ASSIGN_OR_RETURN(const GenericDict state, AsDict(value, "the optimizer state"));
  for (const auto& entry : state) {
    if (entry.key() == "state" || entry.key() == "param_groups") continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "the optimizer state has ", entry.key().isString() ? Quoted(entry.key().toStringRef()) : TypeName(entry.key()),
        " beside \"state\" and \"param_groups\""));
  }
  const c10::NoGradGuard no_grad;
  ABSL_ASSIGN_OR_RETURN(const std::vector<LoadedGroup> groups, ReadGroups(*schema, optimizer, state));
  OptimizerExtras extras;
  ABSL_ASSIGN_OR_RETURN(States states, ReadStates(*schema, state, parameters, groups, extras.float64_steps));
  for (const LoadedGroup& group : groups) extras.groups.push_back(group.dict);
  extras.names = NamesInOrder(parameters, groups);

  for (size_t i = 0; i < groups.size(); ++i) {
    AssignOptions(*schema, *groups[i].options, optimizer.param_groups()[i].options());
  }
  for (const Parameter& parameter : parameters) {
    void* key = parameter.tensor.unsafeGetTensorImpl();
    if (states[parameter.number] == nullptr) {
      optimizer.state().erase(key);
    } else {
      optimizer.state()[key] = std::move(states[parameter.number]);
    }
  }
  return extras;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ParameterNames(const Optimizer& optimizer, const torch::nn::Module& module) {
  absl::flat_hash_map<const void*, std::string> name_of;
  for (const auto& parameter : module.named_parameters()) {
    name_of.emplace(parameter.value().unsafeGetTensorImpl(), parameter.key());
  }
  std::vector<std::string> names;
  for (size_t i = 0; i < optimizer.param_groups().size(); ++i) {
    const auto& params = optimizer.param_groups()[i].params();
    for (size_t j = 0; j < params.size(); ++j) {
      const auto found = name_of.find(params[j].unsafeGetTensorImpl());
      if (found == name_of.end()) {
        return absl::InvalidArgumentError(
            absl::StrCat("parameter ", j, " of group ", i, " of the optimizer is not one of the module's"));
      }
      names.push_back(found->second);
    }
  }
  return names;
}

absl::StatusOr<c10::IValue> OptimizerState(const Optimizer& optimizer, absl::Span<const std::string> names,
                                           const OptimizerExtras& extras) {
  return InvokeTorch([&] { return Write(optimizer, names, extras); });
}

absl::StatusOr<OptimizerExtras> LoadOptimizerState(Optimizer& optimizer, const c10::IValue& state,
                                                   absl::Span<const std::string> names) {
  return InvokeTorch([&] { return Load(optimizer, state, names); });
}

}  // namespace cohort
