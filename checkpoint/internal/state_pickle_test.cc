#include "cohort/checkpoint/internal/state_pickle.h"

#include <complex>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "cohort/checkpoint/internal/dtype.h"
#include "cohort/checkpoint/internal/state_tree.h"
#include "cohort/checkpoint/testing/files.h"
#include "cohort/checkpoint/testing/python.h"
#include "gtest/gtest.h"

namespace cohort::internal {
namespace {

using ::cohort::testing::FreshDirectory;
using ::cohort::testing::RunPython;
using ::cohort::testing::WriteFile;

// What Python makes of the pickle, as its ascii(), functions of torch's being shown as calls. Admits only the
// operations and names that torch.load(weights_only=True) admits.
std::string Loaded(const StoredState& state) {
  const std::string path = FreshDirectory() + "/pickle";
  WriteFile(path, PickleState(state));
  return RunPython(R"(
import collections, pickle, pickletools, sys
ADMITTED = set("PROTO GLOBAL NEWOBJ REDUCE BUILD APPEND APPENDS SETITEM SETITEMS MARK TUPLE TUPLE1 TUPLE2 TUPLE3 NONE "
               "NEWFALSE NEWTRUE EMPTY_TUPLE EMPTY_LIST EMPTY_DICT EMPTY_SET BININT BININT1 BININT2 BINFLOAT BINUNICODE "
               "SHORT_BINSTRING BINPERSID BINGET LONG_BINGET BINPUT LONG_BINPUT LONG1 STOP".split())
class Named:
    def __init__(self, name): self.name = name
    def __repr__(self): return self.name
    def __call__(self, *arguments): return Named(f"{self.name}{arguments}")
class Unpickler(pickle.Unpickler):
    def find_class(self, module, name):
        if module in ("builtins", "collections"):
            return {"complex": complex, "OrderedDict": collections.OrderedDict}[name]
        assert module in ("torch", "torch._utils", "torch.storage"), module
        return Named(name)
    def persistent_load(self, pid):
        assert pid[0] == "storage" and pid[3] == "cpu"
        return Named(f"{pid[1]}#{pid[2]}*{pid[4]}")
program = open(sys.argv[1], "rb").read()
used = {op.name for op, _, _ in pickletools.genops(program)}
assert used <= ADMITTED, used - ADMITTED
state = Unpickler(open(sys.argv[1], "rb")).load()
if isinstance(state, dict) and "tied" in state:
    assert state["tied"] is state["tied again"] is not state["twin"]
sys.stdout.write(ascii(state))
)",
                   {path});
}

StoredState Of(StateTree tree) {
  StoredState state;
  state.tree = std::move(tree);
  return state;
}

TEST(StatePickleTest, WritesEveryKindOfValue) {
  StateDict dict;
  dict.items = {
      {"none", {}},
      {"bool", {true}},
      {"int", {std::numeric_limits<int64_t>::min()}},
      {"double", {0.1}},
      {"minus zero", {-0.0}},
      {"infinity", {std::numeric_limits<double>::infinity()}},
      {"complex", {std::complex<double>(1, -2.5)}},
      {"text", {std::string("snow☃")}},
      {"list", {StateList{{{int64_t{1}}, {StateList{}}}}}},
      {"tuple", {StateTuple{{{int64_t{1}}}}}},
      {"empty", {StateTuple{}}},
      {int64_t{-7}, {StateDict{}}},
  };
  EXPECT_EQ(Loaded(Of({dict})),
            "{'none': None, 'bool': True, 'int': -9223372036854775808, 'double': 0.1, 'minus zero': -0.0, 'infinity': "
            "inf, 'complex': (1-2.5j), 'text': 'snow\\u2603', 'list': [1, []], 'tuple': (1,), 'empty': (), -7: {}}");
}

TEST(StatePickleTest, WritesValuesThatAreNoDict) {
  EXPECT_EQ(Loaded(Of({})), "None");
  EXPECT_EQ(Loaded(Of({StateList{{{0.5}}}})), "[0.5]");
}

TEST(StatePickleTest, WritesTensors) {
  StoredState state;
  state.tensors = {
      {.dtype = Dtype::kFloat32, .sizes = {2, 3}, .strides = {1, 2}, .offset = 5, .requires_grad = true},
      {.dtype = Dtype::kUInt16, .sizes = {}, .strides = {}, .storage = 1},
      {.dtype = Dtype::kComplex64, .sizes = {0}, .strides = {1}, .storage = 2, .conjugated = true, .negated = true},
  };
  state.storages = {{.num_bytes = 48}, {.num_bytes = 4}, {.num_bytes = 8}};
  state.tree = {StateList{{{TensorIndex{0}}, {TensorIndex{1}}, {TensorIndex{2}}}}};
  EXPECT_EQ(Loaded(state),
            "[_rebuild_tensor_v2(FloatStorage#0*12, 5, (2, 3), (1, 2), True, OrderedDict()), "
            "_rebuild_tensor_v3(UntypedStorage#1*4, 0, (), (), False, OrderedDict(), uint16), "
            "_rebuild_tensor_v2(ComplexFloatStorage#2*1, 0, (0,), (1,), False, OrderedDict(), {'conj': True, 'neg': "
            "True})]");
}

TEST(StatePickleTest, WritesOneTensorInTwoPlacesOnce) {
  StoredState state;
  state.tensors = {{.sizes = {1}, .strides = {1}}, {.sizes = {1}, .strides = {1}}};
  state.storages = {{.num_bytes = 4}};
  StateDict dict;
  dict.items = {{"tied", {TensorIndex{0}}}, {"twin", {TensorIndex{1}}}, {"tied again", {TensorIndex{0}}}};
  // So many that their places in the memo take four bytes.
  for (int i = 0; i < 300; ++i) {
    state.tensors.push_back({.sizes = {i}, .strides = {0}});
    dict.items.emplace_back(int64_t{i}, StateTree{TensorIndex{state.tensors.size() - 1}});
    dict.items.emplace_back(int64_t{i} + 1000, StateTree{TensorIndex{state.tensors.size() - 1}});
  }
  state.tree = {dict};
  const std::string loaded = Loaded(state);
  EXPECT_NE(loaded.find("1299: _rebuild_tensor_v2(FloatStorage#0*1, 0, (299,), (0,)"), loaded.npos);
}

}  // namespace
}  // namespace cohort::internal
