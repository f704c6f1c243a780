#include "cohort/checkpoint/internal/pickle_reader.h"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cohort/checkpoint/internal/state_tree.h"
#include "cohort/checkpoint/internal/test_archive.h"
#include "cohort/checkpoint/testing/python.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::internal {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::cohort::testing::RunPython;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kMemory = int64_t{48} << 20;

// Every storage is there, of the size asked for.
absl::StatusOr<StoredBytes> AnyStorage(std::string_view, int64_t num_bytes) {
  return StoredBytes{.begin = 0, .num_bytes = num_bytes};
}

absl::StatusOr<StoredState> Read(std::string_view pickle, int64_t memory = kMemory) {
  return ReadPickle(pickle, memory, AnyStorage);
}

std::string Text(std::string_view pickle) {
  const absl::StatusOr<StoredState> state = Read(pickle);
  return state.ok() ? TextOf(*state) : state.status().ToString();
}

// Python's torch, as far as pickles go: what is pickled of `STATE`, with tensors as tensor(...). Protocol 2 if not told.
constexpr char kPython[] = R"(
import collections, io, pickle, sys, types
def module(name, **members):
    m = sys.modules[name] = types.ModuleType(name)
    if "." in name: setattr(sys.modules[name.rpartition(".")[0]], name.rpartition(".")[2], m)
    for k, v in members.items():
        v.__module__, v.__qualname__, v.__name__ = name, k, k
        setattr(m, k, v)
def function(): return lambda *a: None
module("torch", FloatStorage=type("S", (), {}), ComplexFloatStorage=type("S", (), {}), Size=type("S", (tuple,), {}),
       device=type("D", (), {}), float32=function(), uint16=function(), Tensor=type("T", (), {}))
module("torch._utils", **{n: function() for n in ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3",
       "_rebuild_parameter", "_rebuild_parameter_with_state", "_rebuild_sparse_tensor", "_rebuild_qtensor")})
module("torch.storage", UntypedStorage=type("S", (), {}))
module("torch.nn")
module("torch.nn.parameter", Parameter=function())
module("numpy", dtype=type("D", (), {}))
import torch, torch._utils, torch.storage
class Call:  # pickles as what calling `function` returns
    def __init__(self, function, *arguments, **how): self.how = (function, arguments) + tuple(how.get("rest", ()))
    def __reduce_ex__(self, protocol): return self.how
class Storage:
    def __init__(self, *pid): self.pid = pid
def storage(elements=6, key="0", type=torch.FloatStorage, device="cpu"): return Storage("storage", type, key, device, elements)
def tensor(s=None, offset=0, size=(2, 3), stride=(3, 1), grad=False, hooks=collections.OrderedDict(), *metadata):
    return Call(torch._utils._rebuild_tensor_v2, s or storage(), offset, size, stride, grad, hooks, *metadata)
class Pickler(pickle.Pickler):
    def persistent_id(self, x): return x.pid if isinstance(x, Storage) else None
PROTOCOL = 2
def dump(state, protocol=None):
    out = io.BytesIO()
    Pickler(out, PROTOCOL if protocol is None else protocol).dump(state)
    return out.getvalue()
)";

// Runs `statements`, which may set PROTOCOL and end by setting STATE.
std::string Pickled(const std::string& statements) {
  const std::string output = RunPython(absl::StrCat(kPython, statements, "\nsys.stdout.write(dump(STATE).hex())\n"));
  std::string bytes;
  EXPECT_TRUE(absl::HexStringToBytes(output, &bytes)) << output;
  return bytes;
}

absl::Status ErrorOf(const std::string& statements) { return Read(Pickled(statements)).status(); }

auto Refuses(std::string_view why) { return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(why)); }

// ---- What is read ----

TEST(PickleReaderTest, ReadsEveryValueOfEveryProtocol) {
  for (int protocol = 1; protocol <= 5; ++protocol) {
    EXPECT_EQ(
        Text(Pickled(absl::StrCat("PROTOCOL = ", protocol, R"(
STATE = {"none": None, "bools": [True, False], "ints": [0, 1, 255, 256, 65535, 65536, -1, 2**31, -2**31, 2**63-1, -2**63],
    "floats": [0.5, -0.0, float("inf")], "complex": 1-2j, "text": "snow\u2603", "long": "x" * 300, 7: "seven", -8: [],
    "tuples": ((), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)), "dict": {}, "ordered": collections.OrderedDict(b=1, a=2)}
)"))),
        absl::StrCat("{\"none\": None, \"bools\": [True, False], \"ints\": [0, 1, 255, 256, 65535, 65536, -1, "
                     "2147483648, -2147483648, 9223372036854775807, -9223372036854775808], \"floats\": [0.5, -0, "
                     "inf], \"complex\": (1-2j), \"text\": \"snow☃\", \"long\": \"",
                     std::string(300, 'x'),
                     "\", 7: \"seven\", -8: [], \"tuples\": ((), (1), (1, 2), (1, 2, 3), (1, 2, 3, 4)), \"dict\": "
                     "{}, \"ordered\": {\"b\": 1, \"a\": 2}}"))
        << protocol;
  }
}

TEST(PickleReaderTest, ReadsContainersThatPythonWritesInSeveralRuns) {
  std::string expected;
  for (int i = 0; i < 2500; ++i) absl::StrAppend(&expected, i == 0 ? "" : ", ", i, ": ", i);
  EXPECT_EQ(Text(Pickled("STATE = {i: i for i in range(2500)}")), absl::StrCat("{", expected, "}"));
  expected.clear();
  for (int i = 0; i < 2501; ++i) absl::StrAppend(&expected, i == 0 ? "" : ", ", i);
  EXPECT_EQ(Text(Pickled("STATE = list(range(2501))")), absl::StrCat("[", expected, "]"));
}

TEST(PickleReaderTest, ReadsFloatsBitForBit) {
  using std::string_view_literals::operator""sv;
  const absl::StatusOr<StoredState> state = Read("\x80\x02G\x7f\xf8\0\0\0\0\0\x01."sv);
  ASSERT_THAT(state, IsOk());
  EXPECT_EQ(std::bit_cast<uint64_t>(std::get<double>(state->tree.value)), 0x7ff8000000000001);
}

TEST(PickleReaderTest, ReadsTensors) {
  EXPECT_EQ(Text(Pickled(R"(
s = storage(key="17")
c = storage(2, "2", torch.ComplexFloatStorage, "cuda:3")
u = storage(8, "3", torch.storage.UntypedStorage)
STATE = {"a": tensor(s), "view": tensor(s, 1, (2,), (3,), True), "scalar": tensor(s, 5, (), ()),
    "empty": tensor(s, 7, (0, 9), (9, 1)),
    "conj": tensor(c, 0, (2,), (1,), False, {}, {"conj": True, "neg": True}), "old": Call(torch._utils._rebuild_tensor, s, 0, (6,), (1,)),
    "new": Call(torch._utils._rebuild_tensor_v3, u, 1, (3,), (1,), False, {}, torch.uint16),
    "newer": Call(torch._utils._rebuild_tensor_v3, u, 0, (2,), (1,), False, {}, torch.float32, None)}
)")),
            "{\"a\": tensor#0(float32, [2, 3], [3, 1], 0, storage 0), \"view\": tensor#1(float32, [2], [3], 1, storage "
            "0, grad), \"scalar\": tensor#2(float32, [], [], 5, storage 0), \"empty\": tensor#3(float32, [0, 9], [9, "
            "1], 0, storage 0), \"conj\": tensor#4(complex64, [2], [1], 0, storage 1, conj, neg), \"old\": "
            "tensor#5(float32, [6], [1], 0, storage 0), \"new\": tensor#6(uint16, [3], [1], 1, storage 2), \"newer\": "
            "tensor#7(float32, [2], [1], 0, storage 2)}");
}

TEST(PickleReaderTest, ReadsParametersWithoutTheirAttributes) {
  EXPECT_EQ(Text(Pickled(R"(
import torch.nn.parameter
t = tensor()
STATE = [t, Call(torch._utils._rebuild_parameter, t, True, {}), Call(torch._utils._rebuild_parameter, t, False, {}),
    Call(torch._utils._rebuild_parameter_with_state, t, True, {}, {"name": {1, 2}}), Call(torch.nn.parameter.Parameter, t, True)]
)")),
            "[tensor#0(float32, [2, 3], [3, 1], 0, storage 0), tensor#1(float32, [2, 3], [3, 1], 0, storage 0, grad), "
            "tensor#2(float32, [2, 3], [3, 1], 0, storage 0), tensor#3(float32, [2, 3], [3, 1], 0, storage 0, grad), "
            "tensor#4(float32, [2, 3], [3, 1], 0, storage 0, grad)]");
}

TEST(PickleReaderTest, KeepsOneTensorInTwoPlacesOne) {
  const absl::StatusOr<StoredState> state =
      Read(Pickled("t = tensor()\nSTATE = {'emb': t, 'out': t, 'twin': tensor()}"));
  ASSERT_THAT(state, IsOk());
  EXPECT_EQ(TextOf(*state),
            "{\"emb\": tensor#0(float32, [2, 3], [3, 1], 0, storage 0), \"out\": tensor#0(float32, [2, 3], [3, 1], 0, "
            "storage 0), \"twin\": tensor#1(float32, [2, 3], [3, 1], 0, storage 0)}");
  EXPECT_EQ(state->storages.size(), 1u);
}

TEST(PickleReaderTest, HasTheTablesInTheOrderOfTheTree) {
  // The first storage and tensor of the pickle are in an attribute, which is dropped.
  const absl::StatusOr<StoredState> state = Read(Pickled(R"(
STATE = Call(collections.OrderedDict, rest=({"hidden": tensor(storage(6, "9"))}, None,
             iter([("b", tensor(storage(6, "5"))), ("a", tensor(storage(6, "3")))])))
)"));
  ASSERT_THAT(state, IsOk());
  EXPECT_EQ(state->tensors.size(), 2u);
  EXPECT_EQ(state->storages.size(), 2u);
  EXPECT_THAT(TextOf(*state), HasSubstr("\"b\": tensor#0"));
}

TEST(PickleReaderTest, DropsTheAttributesOfAStateDict) {
  EXPECT_EQ(Text(Pickled(R"(
STATE = collections.OrderedDict(w=1)
STATE._metadata = collections.OrderedDict({"": {"version": 1, "odd": {1, 2}}})
)")),
            "{\"w\": 1}");
}

TEST(PickleReaderTest, ReadsSizesAndDevices) {
  EXPECT_EQ(
      Text(Pickled("STATE = [Call(torch.Size, (2, 3)), Call(torch.device, 'cpu'), Call(torch.device, 'cuda', 1)]")),
      "[(2, 3), \"cpu\", \"cuda:1\"]");
}

TEST(PickleReaderTest, RepeatsSharedValues) {
  EXPECT_EQ(Text(Pickled("x = [1]\nSTATE = [x, x, {'k': x}]")), "[[1], [1], {\"k\": [1]}]");
}

TEST(PickleReaderTest, ReadsContainersAsDeepAsTheyMayBe) {
  EXPECT_THAT(Read(Pickled("STATE = 1\nfor _ in range(100): STATE = [STATE]")), IsOk());
  EXPECT_THAT(ErrorOf("STATE = 1\nfor _ in range(101): STATE = [STATE]"), Refuses("deeper than 100"));
  EXPECT_THAT(ErrorOf("x = 1\nfor _ in range(60): x = [x]\ny = x\nfor _ in range(60): y = (y,)\nSTATE = [x, y]"),
              Refuses("deeper than 100"));
  // Far deeper than a stack of calls could be.
  EXPECT_THAT(Read(absl::StrCat("\x80\x02", std::string(300000, ']'), std::string(299999, 'a'), ".")),
              Refuses("deeper than 100"));
}

TEST(PickleReaderTest, IsLinearInTheNumberOfTensors) {
  const std::string pickle = Pickled("STATE = {f'layer.{i}.weight': tensor(storage(6, str(i))) for i in range(5000)}");
  const absl::StatusOr<StoredState> state = Read(pickle);
  ASSERT_THAT(state, IsOk());
  EXPECT_EQ(state->tensors.size(), 5000u);
  // What it takes beside the pickle, measured by how little is allowed.
  EXPECT_THAT(Read(pickle, 400 * 5000), IsOk());
}

// ---- What is refused, saying where it stands ----

TEST(PickleReaderTest, NamesWhatAStateDoesNotHoldAndWhereItStands) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"2**63", "an integer of more than 64 bits"},
      {"-2**63-1", "an integer of more than 64 bits"},
      {"2**5000", "an integer of more than 64 bits"},
      {"b'bytes'", "of type bytes"},
      {"b''", "bytes"},
      {"bytearray(b'x')", "a bytearray"},
      {"{1, 2}", "a set"},
      {"frozenset([1])", "a frozenset"},
      {"collections.Counter('aa')", "a collections.Counter"},
      {"collections.defaultdict(list, a=1)", "a collections.defaultdict"},
      {"range(3)", "a range"},
      {"slice(1)", "a slice"},
      {"torch.float32", "a torch.dtype"},
      {"torch.FloatStorage", "a function or class"},
      {"torch._utils._rebuild_tensor_v2", "a function or class"},
      {"storage()", "a storage; only tensors are held"},
      {"Call(torch._utils._rebuild_sparse_tensor, 1, (tensor(), tensor(), (2, 2), True))",
       "a sparse tensor; only dense"},
      {"Call(torch._utils._rebuild_qtensor, storage(), 0, (2,), (1,))", "a quantized tensor; only dense"},
      {"Call(torch.Tensor)", "a tensor with Python attributes or of a subclass"},
      {"Call(numpy.dtype, 'f8', rest=((1, 2),))", "a NumPy value"},
      {"'\\ud800'", "a string that is not UTF-8"},
      {"{1.5: 2}", "a dict with a key that is a float"},
      {"{(1, 2): 2}", "a dict with a key that is a tuple"},
      {"{True: 2}", "a dict with a key that is a bool"},
      {"{None: 2}", "a dict with a key that is None"},
      {"{b'k': 2}", "a dict with a key that is of type bytes"},
  };
  std::string script = "import numpy, torch.nn.parameter\n";
  for (const auto& [value, what] : cases) {
    for (int protocol : {1, 2, 4, 5}) {
      absl::StrAppend(&script, "print(dump({'optimizer': {'param_groups': [{'lr': 1}, {7: ", value, "}]}}, ", protocol,
                      ").hex())\n");
    }
  }
  const std::vector<std::string> pickles = absl::StrSplit(RunPython(absl::StrCat(kPython, script)), '\n');
  ASSERT_EQ(pickles.size(), 4 * cases.size() + 1);
  for (size_t i = 0; i < 4 * cases.size(); ++i) {
    std::string pickle;
    ASSERT_TRUE(absl::HexStringToBytes(pickles[i], &pickle));
    EXPECT_THAT(Read(pickle), StatusIs(absl::StatusCode::kInvalidArgument,
                                       AllOf(HasSubstr("value \"optimizer.param_groups[1][7]\" is "),
                                             HasSubstr(cases[i / 4].second))))
        << cases[i / 4].first;
  }
}

TEST(PickleReaderTest, NamesAFunctionThatIsNotDataAndRunsNothing) {
  EXPECT_THAT(Read("cos\nsystem\n(S'touch /tmp/x'\ntR."), Refuses("it holds \"os.system\", which is not data"));
  for (int protocol : {1, 2, 4}) {
    EXPECT_THAT(ErrorOf(absl::StrCat("import os\nPROTOCOL = ", protocol, "\nSTATE = [Call(os.system, 'true')]")),
                AllOf(Refuses("which is not data"), Refuses(".system\""), Refuses("state_dict()")));
  }
  EXPECT_THAT(ErrorOf("class Net: pass\nSTATE = Net()"), Refuses("__main__.Net"));
  for (std::string_view global :
       {"builtins\neval", "__builtin__\neval", "builtins\ngetattr", "torch\nload", "torch.storage\n_load_from_bytes",
        "torch._utils\n_import_dotted_name", "collections\nOrderedDict.__init__", "torch.serialization\nload", "\n",
        "runpy\n_run_code", "torch.\nfloat32"}) {
    EXPECT_THAT(Read(absl::StrCat("\x80\x02", "c", global, "\n.")), Refuses("which is not data")) << global;
  }
}

TEST(PickleReaderTest, RefusesKeysThatStandTwice) {
  using std::string_view_literals::operator""sv;
  EXPECT_THAT(Read("\x80\x02}(X\x01\0\0\0aNX\x01\0\0\0aNu."sv), Refuses("has two items with the key \"a\""));
  EXPECT_THAT(Read("\x80\x02}(K\x05NK\x05Nu."), Refuses("has two items with the key 5"));
  EXPECT_THAT(Read(Pickled("STATE = {2**63 - 1: 1, '': 2, 0: 3}")).status(), IsOk());
}

TEST(PickleReaderTest, RefusesCycles) {
  EXPECT_THAT(ErrorOf("STATE = []\nSTATE.append(STATE)"), Refuses("holds itself"));
  EXPECT_THAT(ErrorOf("STATE = {'a': []}\nSTATE['a'].append(STATE)"), Refuses("value \"a[0]\" holds itself"));
  // A tuple that holds itself takes an operation (POP) that nothing else needs.
  EXPECT_THAT(ErrorOf("x = []\nSTATE = (x,)\nx.append(STATE)"), Refuses("operation"));
}

TEST(PickleReaderTest, RefusesTensorsThatAreNotWhatTheySay) {
  const std::string big = absl::StrCat(std::numeric_limits<int64_t>::max());
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"tensor(offset=1)", "reaches to element 7 of a storage of 6"},
      {"tensor(size=(2, 4))", "reaches to element 7 of a storage of 6"},
      {"tensor(stride=(4, 1))", "reaches to element 7"},
      {"tensor(offset=-1)", "nothing negative"},
      {"tensor(size=(-2, 3))", "nothing negative"},
      {"tensor(stride=(-3, 1))", "nothing negative"},
      {"tensor(size=(2,))", "as many strides"},
      {"tensor(size=(1,) * 65, stride=(1,) * 65)", "at most 64 sizes"},
      {"tensor(size=(2.0, 3))", "nothing negative"},
      {"tensor(size=(True, 3))", "nothing negative"},
      {"tensor(size=(2**62, 2**62), stride=(0, 0))", "64 bits"},
      {"tensor(size=(2**62, 2**62, 0), stride=(0, 0, 0))", "64 bits"},
      {"tensor(size=(2**62,), stride=(0,))", "64 bits"},
      {absl::StrCat("tensor(size=(", big, ",), stride=(", big, ",))"), "64 bits"},
      {absl::StrCat("tensor(offset=", big, ")"), "64 bits"},
      {"tensor(size=[2, 3])", "made of other things"},
      {"tensor(grad=1)", "made of other things"},
      {"tensor(s=5)", "made of other things"},
      {"tensor(storage(), 0, (2,), (1,), False, None)", "made of other things"},
      {"tensor(storage(), 0, (2,), (1,), False, {}, {}, 1)", "made of other things"},
      {"tensor(storage(), 0, (2,), (1,), False, {}, {'conj': True})", "real numbers that is marked as conjugated"},
      {"tensor(storage(), 0, (2,), (1,), False, {}, {'sparse': True})", "metadata other than"},
      {"tensor(storage(), 0, (2,), (1,), False, {}, {'neg': 1})", "metadata other than"},
      {"tensor(storage(type=torch.storage.UntypedStorage))", "without a dtype"},
      {"Call(torch._utils._rebuild_tensor_v3, storage(), 0, (2,), (1,), False, {}, torch.uint16)", "in a storage of"},
      {"Call(torch._utils._rebuild_tensor_v3, storage(), 0, (2,), (1,), False, {}, 5)", "made of other things"},
      {"Call(torch._utils._rebuild_parameter, 5, True, {})", "made of other things"},
      {"Call(torch._utils._rebuild_parameter, Call(torch._utils._rebuild_parameter, tensor(), True, {}), True, {})",
       "made of other things"},
      {"Call(torch._utils._rebuild_tensor_v2)", "made of other things"},
  };
  std::string script;
  for (const auto& [value, what] : cases) absl::StrAppend(&script, "print(dump({'w': ", value, "}).hex())\n");
  const std::vector<std::string> pickles = absl::StrSplit(RunPython(absl::StrCat(kPython, script)), '\n');
  ASSERT_EQ(pickles.size(), cases.size() + 1);
  for (size_t i = 0; i < cases.size(); ++i) {
    std::string pickle;
    ASSERT_TRUE(absl::HexStringToBytes(pickles[i], &pickle));
    EXPECT_THAT(Read(pickle), AllOf(Refuses("value \"w\" is a tensor"), Refuses(cases[i].second))) << cases[i].first;
  }
}

TEST(PickleReaderTest, RefusesStoragesThatAreNotWhatTheySay) {
  for (const auto& [value, what] : std::vector<std::pair<std::string, std::string>>{
           {"storage(-1)", "is said to have -1 elements"},
           {"storage(2**62)", "is said to have 4611686018427387904 elements"},
           {"storage(2**64)", "no storage's"},
           {"storage(2.0)", "no storage's"},
           {"storage(type=5)", "no storage's"},
           {"storage(type=torch.float32)", "no storage's"},
           {"storage(key=5)", "no storage's"},
           {"storage(key='k' * 101)", "no storage's"},
           {"storage(device=None)", "no storage's"},
           {"Storage('storage', torch.FloatStorage, '0', 'cpu')", "no storage's"},
           {"Storage('module', torch.FloatStorage, '0', 'cpu', 6)", "no storage's"},
           {"[storage(6), storage(7)]", "of two types or sizes"},
           {"[storage(2), storage(2, type=torch.ComplexFloatStorage)]", "of two types or sizes"},
       }) {
    EXPECT_THAT(ErrorOf(absl::StrCat("STATE = ", value)), Refuses(what)) << value;
  }
  const absl::StatusOr<StoredState> state = ReadPickle(
      Pickled("STATE = tensor()"), kMemory, [](std::string_view key, int64_t num_bytes) -> absl::StatusOr<StoredBytes> {
        return absl::NotFoundError(absl::StrCat("no ", key, " of ", num_bytes));
      });
  EXPECT_THAT(state, StatusIs(absl::StatusCode::kNotFound, "no 0 of 24"));
}

TEST(PickleReaderTest, RefusesProgramsThatAreBroken) {
  for (const auto& [program, what] : std::vector<std::pair<std::string, std::string>>{
           {"", "ends in the middle"},
           {"\x80", "ends in the middle"},
           {"\x80\x06N.", "protocol 6"},
           {"\x80\x02N", "ends in the middle"},
           {"\x80\x02.", "other than one value"},
           {"\x80\x02NN.", "other than one value"},
           {"\x80\x02(N.", "other than one value"},
           {"\x80\x02N.N", "1 bytes follow"},
           {"\x80\x02q\x01N.", "where there is none"},
           {"\x80\x02h\x01.", "fetches value 1"},
           {"\x80\x02Nq\x01h\x02.", "fetches value 2"},
           {"\x80\x02t.", "mark where there is none"},
           {"\x80\x02N\x86.", "where there is none"},
           {"\x80\x02N(\x85.", "where there is none"},
           {"\x80\x02]N(e.", "what does not hold such"},
           {"\x80\x02NNa.", "what does not hold such"},
           {"\x80\x02}Na.", "what does not hold such"},
           {"\x80\x02]NNs.", "what does not hold such"},
           {"\x80\x02}(Nu.", "a key without a value"},
           {"\x80\x02X\xff\xff\xff\xff"
            "a.",
            "ends in the middle"},
           {"\x80\x02\x8d\xff\xff\xff\xff\xff\xff\xff\xff"
            "a.",
            "ends in the middle"},
           {"\x80\x02\x8b\xff\xff\xff\xff"
            "a.",
            "ends in the middle"},
           {"\x80\x02N)R.", "calls what is no function"},
           {"\x80\x02"
            "ccollections\nOrderedDict\nNR.",
            "calls what is no function"},
           {"\x80\x02"
            "ccollections\nOrderedDict\nN\x85R.",
            "calls OrderedDict with arguments"},
           {"\x80\x02"
            "cbuiltins\ncomplex\nNN\x86R.",
            "other than two floats"},
           {"\x80\x02"
            "ctorch\nSize\nN\x85R.",
            "torch.Size with other than"},
           {"\x80\x02"
            "ctorch\ndevice\nN\x85R.",
            "torch.device with other than"},
           {"\x80\x02"
            "ctorch\nfloat32\n)R.",
            "calls what is no function"},
           {"\x80\x02"
            "ccollections\nOrderedDict",
            "ends in the middle"},
           {"\x80\x02"
            "NN\x93.",
            "by no string"},
           {"\x80\x02NQ.", "no storage's"},
           {"\x80\x02NNb.", "what has none"},
           {"\x80\x02I1x\n.", "\"1x\" is no number"},
           {"\x80\x02"
            "Fx\n.",
            "\"x\" is no number"},
           {"\x80\x02L\n.", "\"\" is no number"},
           {"\x80\x02i", "operation 0x69"},
           {"\x80\x02"
            "0",
            "operation 0x30"},
           {"\x80\x02\x82\x01", "operation 0x82"},
           {"\x80\x02\x97", "operation 0x97"},
       }) {
    EXPECT_THAT(Read(program), Refuses(what)) << absl::CEscape(program);
  }
}

// ---- Hostile sizes ----

TEST(PickleReaderTest, RefusesValuesThatShareThemselvesIntoTheBillions) {
  EXPECT_THAT(ErrorOf("STATE = [1]\nfor _ in range(99): STATE = [STATE, STATE]"), Refuses("stand in so many places"));
  EXPECT_THAT(ErrorOf("STATE = {'k': 1}\nfor _ in range(30): STATE = {'a': STATE, 'b': (STATE, STATE)}"),
              Refuses("stand in so many places"));
  EXPECT_THAT(ErrorOf("x = 'x' * 1000000\nSTATE = [x] * 1000"), Refuses("stand in so many places"));
  EXPECT_THAT(ErrorOf("x = 'x' * 1000000\nSTATE = [{x: 1} for _ in range(1000)]"), Refuses("stand in so many places"));
  const std::string tensors =
      Pickled("d = (1,) * 64\ns = storage(1)\nSTATE = [tensor(s, 0, d, d) for _ in range(3000)]");
  EXPECT_THAT(Read(tensors, 2'000'000), Refuses("stand in so many places"));
  EXPECT_THAT(Read(tensors, 3'000'000), IsOk());
  EXPECT_THAT(Read(Pickled("x = 'x' * 1000000\nSTATE = [x] * 10")), IsOk());
}

TEST(PickleReaderTest, RefusesMoreValuesThanTheMemoryAllowed) {
  for (const std::string_view operation :
       {"]", "}", "(", "N", "Nq\x01", "]a", "X\x01\x01\x01\x01", "M\xff\xff", "G12345678"}) {
    std::string program = "\x80\x02]";
    while (program.size() < 2'000'000) program += operation;
    EXPECT_THAT(Read(program + ".", 1'000'000), StatusIs(absl::StatusCode::kInvalidArgument)) << operation;
  }
  std::string program = "\x80\x02";
  for (int i = 0; i < 100'000; ++i) absl::StrAppend(&program, "N(");
  EXPECT_THAT(Read(program + ".", 1'000'000), Refuses("more memory than the 1000000 bytes allowed"));
  // Places in the memo far apart.
  program = "\x80\x02N";
  for (uint32_t i = 1; i < 100'000; ++i) {
    program += 'r';
    for (int shift : {0, 8, 16, 24}) program += static_cast<char>((i * 40'000) >> shift);
  }
  EXPECT_THAT(Read(program + ".", 1'000'000), Refuses("more memory than"));
}

}  // namespace
}  // namespace cohort::internal
