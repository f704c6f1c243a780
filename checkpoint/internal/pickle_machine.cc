// Why nothing can be run: a pickle names functions and asks for calls. Here a name is looked up in kFunctions, and a
// call makes a node of the kind that the table knows; there is nothing else to call. Names that are data which we do
// not hold (kRefusals) make nodes of kRefused, and so does what is called or built with them: they do no harm until
// they turn out to be a part of the state, and then the error can say where. Every other name ends the reading at once.
//
// Memory: every operation appends at most a few nodes, and items that were on the stack. What all of it takes is
// compared with the limit after every operation; the operation before that cannot have gone far beyond.

#include "cohort/checkpoint/internal/pickle_machine.h"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "cohort/checkpoint/internal/dtype.h"
#include "cohort/checkpoint/internal/quoted.h"
#include "cohort/checkpoint/internal/state_tree.h"

namespace cohort::internal {
namespace {

using Kind = PickleKind;
using Function = PickleFunction;

constexpr std::pair<std::string_view, Function> kFunctions[] = {
    {"collections.OrderedDict", Function::kOrderedDict},
    {"builtins.complex", Function::kComplex},
    {"torch.Size", Function::kSize},
    {"torch.device", Function::kDevice},
    {"torch._utils._rebuild_tensor", Function::kRebuildTensor},
    {"torch._utils._rebuild_tensor_v2", Function::kRebuildTensorV2},
    {"torch._utils._rebuild_tensor_v3", Function::kRebuildTensorV3},
    {"torch._utils._rebuild_parameter", Function::kRebuildParameter},
    {"torch._utils._rebuild_parameter_with_state", Function::kRebuildParameterWithState},
    {"torch.nn.parameter.Parameter", Function::kParameter},
    {"torch.storage.UntypedStorage", Function::kUntypedStorage},
};

// Data that is not held. The first few are made by operations of their own, too.
enum : uint32_t { kBigInt, kBytes, kByteArray, kSet, kFrozenSet };
constexpr std::pair<std::string_view, std::string_view> kRefusals[] = {
    {"", "an integer of more than 64 bits"},
    {"_codecs.encode", "of type bytes"},
    {"builtins.bytearray", "a bytearray"},
    {"builtins.set", "a set"},
    {"builtins.frozenset", "a frozenset"},
    {"builtins.bytes", "of type bytes"},
    {"builtins.range", "a range"},
    {"builtins.xrange", "a range"},
    {"builtins.slice", "a slice"},
    {"builtins.int", "Python's type int"},
    {"builtins.long", "Python's type int"},
    {"builtins.float", "Python's type float"},
    {"builtins.list", "Python's type list"},
    {"builtins.dict", "Python's type dict"},
    {"collections.Counter", "a collections.Counter"},
    {"collections.defaultdict", "a collections.defaultdict"},
    {"torch.Tensor", "a tensor with Python attributes or of a subclass; only plain tensors are held"},
    {"torch._tensor._rebuild_from_type_v2",
     "a tensor with Python attributes or of a subclass; only plain tensors are held"},
    {"torch._utils._rebuild_wrapper_subclass", "a tensor of a subclass; only plain tensors are held"},
    {"torch._utils._rebuild_sparse_tensor", "a sparse tensor; only dense tensors are held"},
    {"torch._utils._rebuild_qtensor", "a quantized tensor; only dense tensors are held"},
    {"torch._utils._rebuild_nested_tensor", "a nested tensor; only dense tensors are held"},
    {"torch._utils._rebuild_meta_tensor_no_storage", "a tensor on the device \"meta\", which has no data"},
    {"torch._utils._rebuild_device_tensor_from_numpy", "a tensor of a device that keeps no storage"},
    {"torch._utils._rebuild_device_tensor_from_cpu_tensor", "a tensor of a device that keeps no storage"},
    {"torch.serialization._get_layout", "a torch.layout"},
    {"torch.storage.TypedStorage", "a storage; only tensors are held"},
    {"torch.QInt8Storage", "a quantized tensor; only dense tensors are held"},
    {"torch.QUInt8Storage", "a quantized tensor; only dense tensors are held"},
    {"torch.QInt32Storage", "a quantized tensor; only dense tensors are held"},
    {"torch.QUInt4x2Storage", "a quantized tensor; only dense tensors are held"},
    {"torch.QUInt2x4Storage", "a quantized tensor; only dense tensors are held"},
    {"torch.per_tensor_affine", "a torch.qscheme"},
    {"torch.per_tensor_symmetric", "a torch.qscheme"},
    {"torch.per_channel_affine", "a torch.qscheme"},
    {"torch.per_channel_symmetric", "a torch.qscheme"},
    {"torch.per_channel_affine_float_qparams", "a torch.qscheme"},
    {"numpy.dtype", "a NumPy value; make it a tensor or a number of Python's"},
    {"numpy.ndarray", "a NumPy value; make it a tensor or a number of Python's"},
    {"numpy.core.multiarray.scalar", "a NumPy value; make it a tensor or a number of Python's"},
    {"numpy.core.multiarray._reconstruct", "a NumPy value; make it a tensor or a number of Python's"},
    {"numpy._core.multiarray.scalar", "a NumPy value; make it a tensor or a number of Python's"},
    {"numpy._core.multiarray._reconstruct", "a NumPy value; make it a tensor or a number of Python's"},
};

// Values that need no node of their own: they have the first ones.
enum : uint32_t { kNoneNode, kFalseNode, kTrueNode, kEmptyTupleNode, kFirstSmallInt };
constexpr uint32_t kNumSmallInts = 256;

// Of a storage or a device. A longer one, fetched from the memo again and again, would be work without end.
constexpr uint32_t kMaxNameBytes = 100;

uint64_t LittleEndian(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[i]);
  return value;
}

PickleNode Node(Kind kind, uint32_t low = 0, uint32_t high = 0) { return {.kind = kind, .low = low, .high = high}; }
PickleNode Wide(Kind kind, uint64_t bits) {
  return Node(kind, static_cast<uint32_t>(bits), static_cast<uint32_t>(bits >> 32));
}

std::optional<PickleNode> GlobalNode(std::string_view name) {
  const auto global = [](Function function, uint32_t detail = 0) {
    return Node(Kind::kGlobal, static_cast<uint32_t>(function), detail);
  };
  for (const auto& [known, function] : kFunctions) {
    if (name == known) return global(function);
  }
  for (uint32_t i = 0; i < std::size(kRefusals); ++i) {
    if (name == kRefusals[i].first) return Node(Kind::kRefused, i);
  }
  if (!absl::ConsumePrefix(&name, "torch.")) return std::nullopt;
  if (const std::optional<Dtype> dtype = DtypeOfStorage(name)) {
    return global(Function::kTypedStorage, static_cast<uint32_t>(*dtype));
  }
  if (const std::optional<Dtype> dtype = DtypeOfName(name)) {
    return global(Function::kDtype, static_cast<uint32_t>(*dtype));
  }
  return std::nullopt;
}

// The methods that begin with a capital letter and no verb are operations, named as in Python's pickle.py.
class Machine {
 public:
  Machine(std::string_view pickle, int64_t memory_limit, FindStorage find_storage)
      : pickle_(pickle), memory_limit_(memory_limit), find_storage_(find_storage) {
    graph_.pickle = pickle;
    for (const auto& node : {Node(Kind::kNone), Node(Kind::kBool, 0), Node(Kind::kBool, 1), Node(Kind::kTuple)}) {
      graph_.nodes.push_back(node);
    }
    for (uint32_t i = 0; i < kNumSmallInts; ++i) graph_.nodes.push_back(Node(Kind::kInt, i));
  }

  absl::StatusOr<PickleGraph> Run() {
    if (pickle_.size() > std::numeric_limits<uint32_t>::max()) {
      return absl::InvalidArgumentError(
          absl::StrCat("pickle: it is ", pickle_.size(), " bytes long; at most 4294967295 are allowed"));
    }
    for (bool is_done = false; !is_done;) {
      operation_at_ = at_;
      std::string_view code;
      ABSL_RETURN_IF_ERROR(Take(1, code));
      if (code[0] == '.') {
        ABSL_RETURN_IF_ERROR(Stop());
        is_done = true;
      } else {
        ABSL_RETURN_IF_ERROR(Do(static_cast<uint8_t>(code[0])));
      }
      if (MemoryTaken() > memory_limit_) {
        return Malformed(absl::StrCat("its values take more memory than the ", memory_limit_, " bytes allowed"));
      }
    }
    return std::move(graph_);
  }

 private:
  absl::Status Malformed(std::string_view why) const {
    return absl::InvalidArgumentError(absl::StrCat("pickle: at byte ", operation_at_, ": ", why));
  }

  int64_t MemoryTaken() const {
    return static_cast<int64_t>(graph_.nodes.size() * sizeof(PickleNode) + graph_.items.size() * sizeof(uint32_t) +
                                graph_.runs.size() * sizeof(PickleRun) +
                                graph_.storages.size() * (sizeof(PickleStorage) + 64) +  // with storage_of_key_
                                memo_.size() * sizeof(uint32_t) + sparse_memo_.size() * 32 +
                                // A vector that grows is there twice.
                                stack_.capacity() * 6 + marks_.capacity() * 12);
  }

  // ---- Reading the program ----

  absl::Status Take(uint64_t num_bytes, std::string_view& bytes) {
    if (num_bytes > pickle_.size() - at_) return Malformed("it ends in the middle of an operation");
    bytes = pickle_.substr(at_, num_bytes);
    at_ += num_bytes;
    return absl::OkStatus();
  }
  absl::Status TakeNumber(int num_bytes, uint64_t& number) {
    std::string_view bytes;
    ABSL_RETURN_IF_ERROR(Take(num_bytes, bytes));
    number = LittleEndian(bytes);
    return absl::OkStatus();
  }
  // Bytes whose number comes before them.
  absl::Status TakeCounted(int num_bytes_of_number, std::string_view& bytes) {
    uint64_t number = 0;
    ABSL_RETURN_IF_ERROR(TakeNumber(num_bytes_of_number, number));
    return Take(number, bytes);
  }
  absl::Status TakeLine(std::string_view& line) {
    const size_t end = pickle_.find('\n', at_);
    if (end == pickle_.npos) return Malformed("it ends in the middle of an operation");
    line = pickle_.substr(at_, end - at_);
    at_ = end + 1;
    return absl::OkStatus();
  }

  // ---- The stack ----

  absl::Status Push(uint32_t node) {
    stack_.push_back(node);
    return absl::OkStatus();
  }
  absl::Status PushNew(PickleNode node) {
    if (graph_.nodes.size() >= kNoRun) return Malformed("it has more than 4294967294 values");
    graph_.nodes.push_back(node);
    return Push(static_cast<uint32_t>(graph_.nodes.size() - 1));
  }
  absl::Status PushRefused(uint32_t refusal) { return PushNew(Node(Kind::kRefused, refusal)); }

  // How many values are on the stack above the last mark.
  size_t NumAboveMark() const { return stack_.size() - (marks_.empty() ? 0 : marks_.back()); }
  absl::Status Need(size_t num_values) const {
    if (NumAboveMark() >= num_values) return absl::OkStatus();
    return Malformed("it takes a value from the stack where there is none");
  }
  absl::Status Pop(uint32_t& node) {
    ABSL_RETURN_IF_ERROR(Need(1));
    node = stack_.back();
    stack_.pop_back();
    return absl::OkStatus();
  }
  PickleNode& Top() { return graph_.nodes[stack_.back()]; }

  // Moves `count` values from the top of the stack to the items; `begin` is where they are then.
  absl::Status TopToItems(size_t count, uint32_t& begin) {
    if (count > kNoRun - graph_.items.size()) return Malformed("its containers hold more than 4294967295 values");
    begin = static_cast<uint32_t>(graph_.items.size());
    graph_.items.insert(graph_.items.end(), stack_.end() - static_cast<std::ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    return absl::OkStatus();
  }
  // Removes the last mark; `count` is how many values were above it.
  absl::Status PopMark(size_t& count) {
    if (marks_.empty()) return Malformed("it goes back to a mark where there is none");
    count = NumAboveMark();
    marks_.pop_back();
    return absl::OkStatus();
  }

  // ---- Operations ----

  absl::Status Do(uint8_t code) {
    switch (code) {
      case 0x80:
        return Proto();
      case 0x95:  // FRAME: the number of bytes that a reader may want to fetch at once
      {
        std::string_view bytes;
        return Take(8, bytes);
      }
      case '(':
        marks_.push_back(stack_.size());
        return absl::OkStatus();
      case 'N':
        return Push(kNoneNode);
      case 0x88:
        return Push(kTrueNode);
      case 0x89:
        return Push(kFalseNode);
      case ')':
        return Push(kEmptyTupleNode);
      case ']':
        return PushNew(Node(Kind::kList, kNoRun, kNoRun));
      case '}':
        return PushNew(Node(Kind::kDict, kNoRun, kNoRun));
      case 'I':
      case 'L':
      case 'F':
        return NumberInText(code);
      case 'J':
      case 'K':
      case 'M':
        return BinInt(code);
      case 0x8a:
        return Long(1);
      case 0x8b:
        return Long(4);
      case 'G':
        return BinFloat();
      case 0x8c:
      case 'U':  // Python 2's str
        return String(1);
      case 'X':
      case 'T':  // Python 2's str
        return String(4);
      case 0x8d:
        return String(8);
      case 'C':
        return Bytes(1, kBytes);
      case 'B':
        return Bytes(4, kBytes);
      case 0x8e:
        return Bytes(8, kBytes);
      case 0x96:
        return Bytes(8, kByteArray);
      default:
        return DoWithStack(code);
    }
  }

  absl::Status DoWithStack(uint8_t code) {
    size_t count = 0;
    switch (code) {
      case 't':
        ABSL_RETURN_IF_ERROR(PopMark(count));
        return Tuple(count);
      case 0x85:
      case 0x86:
      case 0x87:
        return Tuple(code - 0x84);
      case 'a':
        return Extend(Kind::kList, 1);
      case 'e':
        ABSL_RETURN_IF_ERROR(PopMark(count));
        return Extend(Kind::kList, count);
      case 's':
        return Extend(Kind::kDict, 2);
      case 'u':
        ABSL_RETURN_IF_ERROR(PopMark(count));
        return Extend(Kind::kDict, count);
      case 0x8f:
        return PushRefused(kSet);
      case 0x90:  // ADDITEMS to a set
        ABSL_RETURN_IF_ERROR(PopMark(count));
        return Extend(Kind::kRefused, count);
      case 0x91:
        ABSL_RETURN_IF_ERROR(PopMark(count));
        stack_.resize(stack_.size() - count);
        return PushRefused(kFrozenSet);
      case 'q':
        return Put(1);
      case 'r':
        return Put(4);
      case 0x94:
        return Memoize(memo_.size() + sparse_memo_.size());
      case 'h':
        return Get(1);
      case 'j':
        return Get(4);
      case 'c':
        return Global();
      case 0x93:
        return StackGlobal();
      case 'R':   // REDUCE
      case 0x81:  // NEWOBJ: the same for the few classes that we know
        return Call();
      case 'b':
        return Build();
      case 'Q':
        return PersistentId();
      default:
        return Malformed(absl::StrFormat("operation 0x%02x is none that torch.save writes", code));
    }
  }

  absl::Status Proto() {
    uint64_t protocol = 0;
    ABSL_RETURN_IF_ERROR(TakeNumber(1, protocol));
    if (protocol <= 5) return absl::OkStatus();
    return Malformed(absl::StrCat("it is of protocol ", protocol, "; at most 5 is known"));
  }

  absl::Status Stop() {
    if (!marks_.empty() || stack_.size() != 1) return Malformed("it ends with other than one value on the stack");
    if (at_ != pickle_.size())
      return Malformed(absl::StrCat("it ends here, and ", pickle_.size() - at_, " bytes follow"));
    graph_.root = stack_.back();
    return absl::OkStatus();
  }

  absl::Status Int(int64_t value) {
    if (value >= 0 && value < kNumSmallInts) return Push(kFirstSmallInt + static_cast<uint32_t>(value));
    return PushNew(Wide(Kind::kInt, static_cast<uint64_t>(value)));
  }

  absl::Status BinInt(uint8_t code) {
    uint64_t value = 0;
    ABSL_RETURN_IF_ERROR(TakeNumber(code == 'K' ? 1 : code == 'M' ? 2 : 4, value));
    return Int(code == 'J' ? static_cast<int32_t>(value) : static_cast<int64_t>(value));
  }

  absl::Status Long(int num_bytes_of_number) {
    std::string_view bytes;
    ABSL_RETURN_IF_ERROR(TakeCounted(num_bytes_of_number, bytes));
    if (bytes.empty()) return Int(0);
    if (bytes.size() > sizeof(int64_t)) return PushRefused(kBigInt);  // Python writes no more bytes than it must
    const int unused_bits = static_cast<int>(64 - 8 * bytes.size());
    return Int(static_cast<int64_t>(LittleEndian(bytes) << unused_bits) >> unused_bits);
  }

  // INT, LONG and FLOAT of protocol 1.
  absl::Status NumberInText(uint8_t code) {
    std::string_view text;
    ABSL_RETURN_IF_ERROR(TakeLine(text));
    if (code == 'I' && (text == "00" || text == "01")) return Push(text == "01" ? kTrueNode : kFalseNode);
    double real;
    if (code == 'F') {
      if (!absl::SimpleAtod(text, &real)) return Malformed(absl::StrCat(Quoted(text), " is no number"));
      return PushNew(Wide(Kind::kDouble, std::bit_cast<uint64_t>(real)));
    }
    if (code == 'L') absl::ConsumeSuffix(&text, "L");
    int64_t value = 0;
    if (absl::SimpleAtoi(text, &value)) return Int(value);
    const std::string_view digits = absl::StripPrefix(text, "-");
    if (digits.empty() || digits.find_first_not_of("0123456789") != digits.npos) {
      return Malformed(absl::StrCat(Quoted(text), " is no number"));
    }
    return PushRefused(kBigInt);
  }

  absl::Status BinFloat() {
    std::string_view bytes;
    ABSL_RETURN_IF_ERROR(Take(8, bytes));
    return PushNew(Wide(Kind::kDouble, LittleEndian(std::string(bytes.rbegin(), bytes.rend()))));
  }

  absl::Status String(int num_bytes_of_number) {
    std::string_view text;
    ABSL_RETURN_IF_ERROR(TakeCounted(num_bytes_of_number, text));
    return PushNew(Node(Kind::kString, static_cast<uint32_t>(at_ - text.size()), static_cast<uint32_t>(text.size())));
  }

  absl::Status Bytes(int num_bytes_of_number, uint32_t refusal) {
    std::string_view bytes;
    ABSL_RETURN_IF_ERROR(TakeCounted(num_bytes_of_number, bytes));
    return PushRefused(refusal);
  }

  absl::Status Tuple(size_t count) {
    ABSL_RETURN_IF_ERROR(Need(count));
    if (count == 0) return Push(kEmptyTupleNode);
    uint32_t begin = 0;
    ABSL_RETURN_IF_ERROR(TopToItems(count, begin));
    return PushNew(Node(Kind::kTuple, begin, static_cast<uint32_t>(count)));
  }

  // Gives the `count` values at the top of the stack to the container below them.
  absl::Status Extend(Kind kind, size_t count) {
    ABSL_RETURN_IF_ERROR(Need(count + 1));
    PickleNode& container = graph_.nodes[stack_[stack_.size() - count - 1]];
    if (container.kind == Kind::kRefused) {
      stack_.resize(stack_.size() - count);
      return absl::OkStatus();
    }
    if (container.kind != kind) return Malformed("it puts items into what does not hold such");
    if (kind == Kind::kDict && count % 2 != 0) return Malformed("it gives a dict a key without a value");
    if (count == 0) return absl::OkStatus();
    PickleRun run{.size = static_cast<uint32_t>(count), .next = kNoRun};
    ABSL_RETURN_IF_ERROR(TopToItems(count, run.begin));
    const uint32_t place = static_cast<uint32_t>(graph_.runs.size());  // there are no more than items
    graph_.runs.push_back(run);
    if (container.low == kNoRun) container.low = place;
    if (container.high != kNoRun) graph_.runs[container.high].next = place;
    container.high = place;
    return absl::OkStatus();
  }

  absl::Status Put(int num_bytes) {
    uint64_t id = 0;
    ABSL_RETURN_IF_ERROR(TakeNumber(num_bytes, id));
    return Memoize(id);
  }
  absl::Status Memoize(uint64_t id) {
    ABSL_RETURN_IF_ERROR(Need(1));
    const uint32_t node = stack_.back();
    if (id == memo_.size()) {
      memo_.push_back(node);  // as Python numbers them
    } else if (id < memo_.size()) {
      memo_[id] = node;
    } else {
      sparse_memo_[id] = node;
    }
    return absl::OkStatus();
  }
  absl::Status Get(int num_bytes) {
    uint64_t id = 0;
    ABSL_RETURN_IF_ERROR(TakeNumber(num_bytes, id));
    if (id < memo_.size()) return Push(memo_[id]);
    const auto it = sparse_memo_.find(id);
    if (it != sparse_memo_.end()) return Push(it->second);
    return Malformed(absl::StrCat("it fetches value ", id, ", which it has not stored"));
  }

  absl::Status Global() {
    std::string_view module;
    std::string_view name;
    ABSL_RETURN_IF_ERROR(TakeLine(module));
    ABSL_RETURN_IF_ERROR(TakeLine(name));
    return PushGlobal(module, name);
  }
  absl::Status StackGlobal() {
    ABSL_RETURN_IF_ERROR(Need(2));
    const PickleNode name = Top();
    stack_.pop_back();
    const PickleNode module = Top();
    stack_.pop_back();
    if (module.kind != Kind::kString || name.kind != Kind::kString)
      return Malformed("it names a function by no string");
    return PushGlobal(graph_.TextOf(module), graph_.TextOf(name));
  }
  absl::Status PushGlobal(std::string_view module, std::string_view name) {
    if (module == "__builtin__") module = "builtins";  // Python 2's name, which protocol 2 uses
    const std::string full_name = absl::StrCat(module, ".", name);
    const std::optional<PickleNode> node = GlobalNode(full_name);
    if (node.has_value()) return PushNew(*node);
    return Malformed(absl::StrCat(
        "it holds ", Quoted(full_name),
        ", which is not data; nothing of it is run. If this is a module or another object of Python's that was saved "
        "whole, save its state_dict() instead"));
  }

  // function arguments -> what it returns
  absl::Status Call() {
    ABSL_RETURN_IF_ERROR(Need(2));
    const uint32_t arguments_node = stack_.back();
    stack_.pop_back();
    const uint32_t function_node = stack_.back();
    const PickleNode arguments = graph_.nodes[arguments_node];
    const PickleNode function = graph_.nodes[function_node];
    if (function.kind == Kind::kRefused) return absl::OkStatus();
    if (function.kind != Kind::kGlobal || arguments.kind != Kind::kTuple)
      return Malformed("it calls what is no function");
    stack_.pop_back();
    switch (static_cast<Function>(function.low)) {
      case Function::kOrderedDict:
        if (arguments.high != 0) return Malformed("it calls OrderedDict with arguments");
        return PushNew(Node(Kind::kDict, kNoRun, kNoRun));
      case Function::kComplex:
        return Complex(arguments);
      case Function::kSize:
        if (arguments.high != 1 || Argument(arguments, 0).kind != Kind::kTuple) {
          return Malformed("it calls torch.Size with other than a tuple");
        }
        return Push(graph_.items[arguments.low]);
      case Function::kDevice:
        if (arguments.high < 1 || arguments.high > 2 || Argument(arguments, 0).kind != Kind::kString ||
            Argument(arguments, 0).high > kMaxNameBytes ||
            (arguments.high == 2 && Argument(arguments, 1).kind != Kind::kInt)) {
          return Malformed("it calls torch.device with other than a name and a number");
        }
        return PushNew(Node(Kind::kDevice, arguments_node));
      case Function::kRebuildTensor:
      case Function::kRebuildTensorV2:
      case Function::kRebuildTensorV3:
      case Function::kRebuildParameter:
      case Function::kRebuildParameterWithState:
      case Function::kParameter:
        return PushNew(Node(Kind::kTensor, arguments_node, function.low));
      case Function::kTypedStorage:
      case Function::kUntypedStorage:
      case Function::kDtype:
        break;
    }
    return Malformed("it calls what is no function");
  }

  const PickleNode& Argument(const PickleNode& tuple, uint32_t place) const {
    return graph_.nodes[graph_.items[tuple.low + place]];
  }

  absl::Status Complex(const PickleNode& arguments) {
    if (arguments.high != 2 || Argument(arguments, 0).kind != Kind::kDouble ||
        Argument(arguments, 1).kind != Kind::kDouble) {
      return Malformed("it calls complex with other than two floats");
    }
    return PushNew(Node(Kind::kComplex, graph_.items[arguments.low], graph_.items[arguments.low + 1]));
  }

  // object state -> object
  absl::Status Build() {
    ABSL_RETURN_IF_ERROR(Need(2));
    stack_.pop_back();
    if (Top().kind == Kind::kDict || Top().kind == Kind::kRefused) return absl::OkStatus();
    return Malformed("it sets attributes of what has none");
  }

  // ("storage", class, key, device, elements) -> storage
  absl::Status PersistentId() {
    uint32_t id = 0;
    ABSL_RETURN_IF_ERROR(Pop(id));
    const PickleNode& tuple = graph_.nodes[id];
    if (tuple.kind != Kind::kTuple || tuple.high != 5) return Malformed("its persistent id is no storage's");
    const PickleNode& type = Argument(tuple, 1);
    const PickleNode& key = Argument(tuple, 2);
    const PickleNode& elements = Argument(tuple, 4);
    if (Argument(tuple, 0).kind != Kind::kString || graph_.TextOf(Argument(tuple, 0)) != "storage" ||
        key.kind != Kind::kString || key.high > kMaxNameBytes || Argument(tuple, 3).kind != Kind::kString ||
        elements.kind != Kind::kInt) {
      return Malformed("its persistent id is no storage's");
    }
    if (type.kind == Kind::kRefused) return Push(graph_.items[tuple.low + 1]);
    PickleStorage storage{.key = graph_.TextOf(key)};
    int64_t element_bytes = 1;
    if (type.kind == Kind::kGlobal && static_cast<Function>(type.low) == Function::kTypedStorage) {
      storage.dtype = static_cast<Dtype>(type.high);
      element_bytes = InfoOf(*storage.dtype).num_bytes;
    } else if (type.kind != Kind::kGlobal || static_cast<Function>(type.low) != Function::kUntypedStorage) {
      return Malformed("its persistent id is no storage's");
    }
    if (graph_.IntOf(elements) < 0 ||
        __builtin_mul_overflow(graph_.IntOf(elements), element_bytes, &storage.num_bytes)) {
      return Malformed(
          absl::StrCat("storage ", Quoted(storage.key), " is said to have ", graph_.IntOf(elements), " elements"));
    }
    return PushStorage(storage);
  }

  absl::Status PushStorage(PickleStorage storage) {
    const auto [it, is_new] = storage_of_key_.try_emplace(storage.key, static_cast<uint32_t>(graph_.storages.size()));
    if (is_new) {
      ABSL_ASSIGN_OR_RETURN(storage.bytes, find_storage_(storage.key, storage.num_bytes));
      graph_.storages.push_back(storage);
    }
    const PickleStorage& first = graph_.storages[it->second];
    if (first.dtype != storage.dtype || first.num_bytes != storage.num_bytes) {
      return Malformed(absl::StrCat("storage ", Quoted(storage.key), " is said to be of two types or sizes"));
    }
    return PushNew(Node(Kind::kStorage, it->second));
  }

  const std::string_view pickle_;
  const int64_t memory_limit_;
  const FindStorage find_storage_;

  size_t at_ = 0;
  size_t operation_at_ = 0;
  std::vector<uint32_t> stack_;
  std::vector<size_t> marks_;  // how large the stack was
  std::deque<uint32_t> memo_;
  absl::flat_hash_map<uint64_t, uint32_t> sparse_memo_;  // what does not continue memo_
  absl::flat_hash_map<std::string_view, uint32_t> storage_of_key_;
  PickleGraph graph_;
};

}  // namespace

std::string_view RefusedKind(const PickleNode& node) { return kRefusals[node.low].second; }

absl::StatusOr<PickleGraph> RunPickle(std::string_view pickle, int64_t memory_limit, FindStorage find_storage) {
  return Machine(pickle, memory_limit, find_storage).Run();
}

}  // namespace cohort::internal
