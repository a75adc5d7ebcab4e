#include "checkpoint/unpickler.h"

#include <c10/core/CPUAllocator.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <deque>
#include <optional>
#include <stdexcept>
#include <utility>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "base/text.h"
#include "checkpoint/dtypes.h"
#include "checkpoint/pickle_opcodes.h"

namespace trainer::checkpoint {
namespace {

using little_endian::load;

// States what is wrong in a pickle program, and what the user can do. unpickle() adds the position in the program.
class PickleError : public std::runtime_error {
 public:
  static constexpr const char* kSaveData =
      "save a dictionary of tensors, numbers, strings, lists and dictionaries with torch.save, such as a state_dict";

  explicit PickleError(const std::string& what, const char* fix = kSaveData) : std::runtime_error(what), fix_(fix) {}

  const char* fix() const { return fix_; }

 private:
  const char* fix_;
};

// The objects that a pickle program makes. They refer to each other by index, so an object can contain itself; all are freed together.

using ObjectId = uint32_t;

using Arguments = std::span<const ObjectId>;

class Unpickler;

struct Function {
  std::string_view module, name;
  ObjectId (*call)(Unpickler& unpickler, Arguments arguments);
};

// A function, class or constant outside a pickle program that the program may use; all others are refused.
struct Global {
  enum class Kind : uint8_t { kFunction, kStorage, kDtype };
  Kind kind;
  const Dtype* dtype = nullptr;  // of kDtype and kStorage; nullptr: a storage of bytes
  const Function* function = nullptr;
};

// The bytes [begin, begin + size) of `memory`: all of it, or a view.
struct Storage {
  torch::Storage memory;
  const Dtype* dtype;  // nullptr for untyped bytes
  uint64_t begin;
  uint64_t size;
};

struct Tuple {
  std::vector<ObjectId> elements;
};

struct List {
  std::vector<ObjectId> elements;
};

struct Dict {
  bool is_ordered;                 // a collections.OrderedDict
  std::vector<ObjectId> contents;  // key, value, key, value, ...
};

// A std::string_view points into the pickle program.
using Object = std::variant<std::monostate, bool, int64_t, double, std::string_view, Global, Storage, torch::Tensor, Tuple, List, Dict>;

// Describes an object for a message: "a list".
const char* describe(const Object& object) {
  constexpr const char* kNames[] = {"None",      "a boolean", "an integer", "a number", "a string",    "a function or type",
                                    "a storage", "a tensor",  "a tuple",    "a list",   "a dictionary"};
  return kNames[object.index()];
}

// Like push_back(), but takes the memory from `budget`.
template <typename T>
void push(std::vector<T>& vector, T value, Budget& budget) {
  if (vector.size() == vector.capacity()) {
    const size_t capacity = vector.empty() ? 4 : 2 * vector.size();
    budget.take(capacity, sizeof(T));
    vector.reserve(capacity);
  }
  vector.push_back(value);
}

class Objects {
 public:
  explicit Objects(Budget& budget) : budget_(budget) {
    add({});
    add(false);
    add(true);
    add(Tuple{});
  }

  ObjectId add(Object object) {
    budget_.take(sizeof(Object));
    objects_.push_back(std::move(object));
    return static_cast<ObjectId>(objects_.size() - 1);
  }
  Object& operator[](ObjectId id) { return objects_[id]; }
  const Object& operator[](ObjectId id) const { return objects_[id]; }

  // The constructor adds None, False, True and an empty tuple, with these indices.
  static constexpr ObjectId kNone = 0;
  static constexpr ObjectId kFalse = 1;
  static constexpr ObjectId kTrue = 2;
  static constexpr ObjectId kEmptyTuple = 3;

 private:
  Budget& budget_;
  std::deque<Object> objects_;
};

[[noreturn]] void refuse_id() { throw PickleError("refers to an external object that is not a storage"); }

template <typename T>
const T& get(const Objects& objects, ObjectId id) {
  const auto* value = std::get_if<T>(&objects[id]);
  if (value == nullptr) refuse_id();
  return *value;
}

// The elements of a tuple, which must have `count` of them.
const std::vector<ObjectId>& parts(const Objects& objects, ObjectId id, size_t count) {
  const auto& elements = get<Tuple>(objects, id).elements;
  if (elements.size() != count) refuse_id();
  return elements;
}

// The storage with this persistent id.
Storage storage_of(const Objects& objects, ObjectId id, StorageIds ids, const StorageLoader& load) {
  const auto& elements = parts(objects, id, ids == StorageIds::kWithView ? 6 : 5);
  const auto type = get<Global>(objects, elements[1]);
  if (get<std::string_view>(objects, elements[0]) != "storage" || type.kind != Global::Kind::kStorage) refuse_id();
  const auto key = get<std::string_view>(objects, elements[2]);
  const auto num_elements = get<int64_t>(objects, elements[4]);
  const size_t element_size = type.dtype != nullptr ? c10::elementSize(type.dtype->type) : 1;
  int64_t size = 0;
  if (num_elements < 0 || __builtin_mul_overflow(num_elements, element_size, &size)) {
    throw PickleError(fmt::format("refers to a storage of {} elements, which is not possible", num_elements));
  }
  int64_t first = 0;
  int64_t count = num_elements;
  if (ids == StorageIds::kWithView && elements[5] != Objects::kNone) {
    const auto& view = parts(objects, elements[5], 3);
    first = get<int64_t>(objects, view[1]);
    count = get<int64_t>(objects, view[2]);
    if (first < 0 || count < 0 || first > num_elements || count > num_elements - first) {
      throw PickleError(fmt::format("refers to a view that reaches beyond its storage (first element {}, {} elements of {})", first, count,
                                    num_elements));
    }
  }
  return {load(key, static_cast<uint64_t>(num_elements), element_size), type.dtype, static_cast<uint64_t>(first) * element_size,
          static_cast<uint64_t>(count) * element_size};
}

// More levels than any checkpoint has, but few enough for the call stack.
constexpr int kMaxDepth = 100;

// Converts objects to a tree. Refuses what a tree cannot represent: a function, an object that contains itself, two equal keys.
class TreeMaker {
 public:
  TreeMaker(const Objects& objects, Budget& budget) : objects_(objects), budget_(budget) {}

  state::Tree make(ObjectId id, int depth) {
    if (depth > kMaxDepth) throw PickleError(fmt::format("nests objects more than {} levels deep, or inside themselves", kMaxDepth));
    return std::visit([&](const auto& content) { return make(content, depth); }, objects_[id]);
  }

 private:
  state::Tree make(std::monostate, int) { return {}; }
  // A boolean, a number or a tensor.
  template <typename T>
  state::Tree make(const T& content, int) {
    return content;
  }
  state::Tree make(std::string_view content, int) { return copy(content); }
  state::Tree make(const Tuple& content, int depth) { return list(content.elements, depth); }
  state::Tree make(const List& content, int depth) { return list(content.elements, depth); }

  state::Tree make(Global content, int) {
    if (content.kind != Global::Kind::kDtype) throw PickleError("contains a function or type, which is not data");
    return copy(fmt::format("torch.{}", content.dtype->name));
  }

  state::Tree make(const Storage&, int) { throw PickleError("contains a storage that is not part of a tensor"); }

  state::Tree make(const Dict& content, int depth) {
    const auto& contents = content.contents;
    // The vector of items grows by doubling; while it grows, the old and the new memory exist at the same time.
    budget_.take(contents.size() / 2, 3 * sizeof(state::Item) + sizeof(const state::Key*));
    state::Dict dict;
    for (size_t i = 0; i < contents.size(); i += 2) dict.add(key(contents[i]), make(contents[i + 1], depth + 1));
    check_keys(dict);
    return dict;
  }

  state::Tree list(const std::vector<ObjectId>& elements, int depth) {
    budget_.take(elements.size(), sizeof(state::Tree));
    state::List list;
    list.reserve(elements.size());
    for (const auto element : elements) list.push_back(make(element, depth + 1));
    return list;
  }

  std::string copy(std::string_view text) {
    budget_.take(text.size() + 1);
    return std::string(text);
  }

  state::Key key(ObjectId id) {
    const auto& object = objects_[id];
    if (const auto* integer = std::get_if<int64_t>(&object)) return *integer;
    if (const auto* text = std::get_if<std::string_view>(&object)) return copy(*text);
    throw PickleError(fmt::format("makes a dictionary with {} as a key", describe(object)));
  }

  static void check_keys(const state::Dict& dict) {
    std::vector<const state::Key*> keys;
    keys.reserve(dict.items().size());
    for (const auto& item : dict.items()) keys.push_back(&item.key);
    const auto value_of = [](const state::Key* key) -> const state::Key& { return *key; };
    std::ranges::sort(keys, {}, value_of);
    const auto equal = std::ranges::adjacent_find(keys, {}, value_of);
    if (equal == keys.end()) return;
    const auto* text = std::get_if<std::string>(*equal);
    throw PickleError(
        fmt::format("makes a dictionary with the key {} twice", text != nullptr ? in_quotes(*text) : state::to_string(**equal)));
  }

  const Objects& objects_;
  Budget& budget_;
};

class Unpickler {
 public:
  Unpickler(std::span<const uint8_t> bytes, StorageIds storage_ids, const StorageLoader& load_storage, Budget& budget)
      : program_(bytes), storage_ids_(storage_ids), load_storage_(load_storage), budget_(budget), objects_(budget) {}

  state::Tree run() {
    for (auto opcode = next_opcode(); opcode != Opcode::kStop; opcode = next_opcode()) {
      if (const auto object = run(opcode)) push(stack_, *object, budget_);
    }
    const auto result = pop();
    if (!stack_.empty() || !marks_.empty()) throw PickleError("ends with unused objects or marks on its stack");
    return TreeMaker(objects_, budget_).make(result, 0);
  }

  // Byte offset of the current instruction.
  size_t position() const { return position_; }
  // After run(): the program's length in bytes.
  size_t program_size() const { return next_; }

 private:
  const uint8_t* take(size_t size) {
    if (size > program_.size() - next_) throw PickleError("ends in the middle of an instruction", kDamagedFix);
    const auto* bytes = program_.data() + next_;
    next_ += size;
    return bytes;
  }

  template <typename T>
  T number() {
    return load<T>(take(sizeof(T)));
  }

  Opcode next_opcode() {
    position_ = next_;
    return static_cast<Opcode>(number<uint8_t>());
  }

  std::string_view text(size_t size) { return {reinterpret_cast<const char*>(take(size)), size}; }

  std::string_view line() {
    const auto rest = program_.subspan(next_);
    const auto content = text(static_cast<size_t>(std::ranges::find(rest, '\n') - rest.begin()));
    take(1);
    return content;
  }

  // Throws PickleError if there is no object above the last mark.
  ObjectId top() const {
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) throw PickleError("pops an object from an empty stack");
    return stack_.back();
  }

  ObjectId pop() {
    const auto id = top();
    stack_.pop_back();
    return id;
  }

  // Pops the objects that were pushed since the last mark.
  std::vector<ObjectId> pop_to_mark() {
    if (marks_.empty()) throw PickleError("pops objects up to a mark, but there is no mark");
    const auto first = stack_.begin() + marks_.back();
    budget_.take(static_cast<size_t>(stack_.end() - first), sizeof(ObjectId));
    std::vector<ObjectId> ids(first, stack_.end());
    stack_.erase(first, stack_.end());
    marks_.pop_back();
    return ids;
  }

  // Runs an instruction and returns the object that it pushes, if any.
  std::optional<ObjectId> run(Opcode opcode) {
    switch (opcode) {
      case Opcode::kNone:
        return Objects::kNone;
      case Opcode::kNewTrue:
        return Objects::kTrue;
      case Opcode::kNewFalse:
        return Objects::kFalse;
      case Opcode::kEmptyTuple:
        return Objects::kEmptyTuple;
      case Opcode::kEmptyList:
        return objects_.add(List{});
      case Opcode::kEmptyDict:
        return objects_.add(Dict{false, {}});
      case Opcode::kBinInt:
        return objects_.add(int64_t{static_cast<int32_t>(number<uint32_t>())});
      case Opcode::kBinInt1:
        return objects_.add(int64_t{number<uint8_t>()});
      case Opcode::kBinInt2:
        return objects_.add(int64_t{number<uint16_t>()});
      case Opcode::kLong1:
        return objects_.add(long_integer());
      case Opcode::kBinFloat:
        return objects_.add(std::bit_cast<double>(__builtin_bswap64(number<uint64_t>())));
      case Opcode::kBinUnicode:
      case Opcode::kBinString:
        return objects_.add(text(number<uint32_t>()));
      case Opcode::kShortBinString:
        return objects_.add(text(number<uint8_t>()));
      case Opcode::kGlobal: {
        const auto module = line();
        return objects_.add(find_global(module, line()));
      }
      case Opcode::kTuple:
        return objects_.add(Tuple{pop_to_mark()});
      case Opcode::kTuple1:
      case Opcode::kTuple2:
      case Opcode::kTuple3:
        return tuple(static_cast<size_t>(opcode) - static_cast<size_t>(Opcode::kTuple1) + 1);
      case Opcode::kBinGet:
        return stored(number<uint8_t>());
      case Opcode::kLongBinGet:
        return stored(number<uint32_t>());
      case Opcode::kReduce: {
        const auto arguments = pop();
        return call(pop(), arguments);
      }
      case Opcode::kBinPersId:
        return objects_.add(storage_of(objects_, pop(), storage_ids_, load_storage_));
      case Opcode::kProto:
        check_protocol(number<uint8_t>());
        break;
      case Opcode::kMark:
        push(marks_, static_cast<uint32_t>(stack_.size()), budget_);
        break;
      case Opcode::kBinPut:
        store(number<uint8_t>());
        break;
      case Opcode::kLongBinPut:
        store(number<uint32_t>());
        break;
      case Opcode::kAppend:
        extend({pop()});
        break;
      case Opcode::kAppends:
        extend(pop_to_mark());
        break;
      case Opcode::kSetItem: {
        const auto value = pop();
        set_items({pop(), value});
        break;
      }
      case Opcode::kSetItems:
        set_items(pop_to_mark());
        break;
      case Opcode::kBuild: {
        const auto state = pop();
        set_state(objects_[top()], objects_[state]);
        break;
      }
      default:
        throw PickleError(fmt::format("contains the instruction 0x{:02x}, which torch.save does not write", static_cast<unsigned>(opcode)));
    }
    return std::nullopt;
  }

  static void check_protocol(unsigned protocol) {
    if (protocol == kProtocol) return;
    throw PickleError(fmt::format("has pickle protocol {}, which only Python can read", protocol),
                      "save it again with torch.save without the argument pickle_protocol");
  }

  // A two's complement integer, preceded by its length in bytes.
  int64_t long_integer() {
    const size_t size = number<uint8_t>();
    const auto* bytes = take(size);
    if (size > sizeof(int64_t)) throw PickleError("contains an integer of more than 64 bits");
    uint64_t value = size > 0 && (bytes[size - 1] & 0x80) != 0 ? ~uint64_t{0} : 0;
    for (size_t i = size; i > 0; --i) value = value << 8 | bytes[i - 1];
    return static_cast<int64_t>(value);
  }

  static Global find_global(std::string_view module, std::string_view name) {
    static constexpr Function kFunctions[] = {
        {"collections", "OrderedDict", [](Unpickler& self, Arguments arguments) { return self.ordered_dict(arguments); }},
        {"collections", "Counter", [](Unpickler& self, Arguments arguments) { return self.first<Dict>(arguments, 1, 1); }},
        {"torch", "Size", [](Unpickler& self, Arguments arguments) { return self.first<Tuple>(arguments, 1, 1); }},
        // ("cpu") or ("cuda", 0); only the type is kept.
        {"torch", "device", [](Unpickler& self, Arguments arguments) { return self.first<std::string_view>(arguments, 1, 2); }},
        {"torch._utils", "_rebuild_tensor", [](Unpickler& self, Arguments arguments) { return self.rebuild_tensor(arguments, 4); }},
        {"torch._utils", "_rebuild_tensor_v2", [](Unpickler& self, Arguments arguments) { return self.rebuild_tensor(arguments, 6); }},
        {"torch._utils", "_rebuild_tensor_v3", [](Unpickler& self, Arguments arguments) { return self.rebuild_tensor(arguments, 7); }},
        {"torch._utils", "_rebuild_parameter", [](Unpickler& self, Arguments arguments) { return self.rebuild_parameter(arguments); }},
        {"torch.nn.parameter", "Parameter",
         [](Unpickler& self, Arguments arguments) { return self.first<torch::Tensor>(arguments, 1, 2); }},
    };
    for (const auto& function : kFunctions) {
      if (function.module == module && function.name == name) return {Global::Kind::kFunction, nullptr, &function};
    }
    if (module == "torch.storage" && name == "UntypedStorage") return {Global::Kind::kStorage};
    if (module == "torch") {
      if (const auto* dtype = find_dtype_by_storage(name)) return {Global::Kind::kStorage, dtype};
      if (const auto* dtype = find_dtype_by_name(name)) return {Global::Kind::kDtype, dtype};
    }
    throw PickleError(fmt::format("uses {}, which is not plain data and is never executed", in_quotes(fmt::format("{}.{}", module, name))));
  }

  ObjectId call(ObjectId called, ObjectId given) {
    const auto* global = std::get_if<Global>(&objects_[called]);
    const auto* tuple = std::get_if<Tuple>(&objects_[given]);
    if (global == nullptr || tuple == nullptr)
      throw PickleError(fmt::format("calls {} with {}", describe(objects_[called]), describe(objects_[given])));
    if (global->function == nullptr) throw PickleError("calls a type that is not a function");
    return global->function->call(*this, tuple->elements);
  }

  // Accepts and ignores the state that torch.save stores besides an object's content: an OrderedDict's attributes (such as a state_dict's
  // _metadata), and a parameter's (requires_grad, volatile, hooks) in files of PyTorch before 0.4.
  void set_state(const Object& object, const Object& state) const {
    if (std::holds_alternative<torch::Tensor>(object)) {
      const auto* tuple = std::get_if<Tuple>(&state);
      if (tuple == nullptr || tuple->elements.size() != 3) throw PickleError("sets attributes of a tensor");
      return expect_empty(tuple->elements[2], "hooks");
    }
    const auto* dict = std::get_if<Dict>(&object);
    if (dict == nullptr) throw PickleError(fmt::format("sets attributes of {}", describe(object)));
    if (!dict->is_ordered || !std::holds_alternative<Dict>(state)) throw PickleError("sets attributes of a plain dictionary");
  }

  static void expect_count(Arguments arguments, size_t least, size_t most) {
    if (arguments.size() < least || arguments.size() > most) {
      throw PickleError(fmt::format("calls a function with {} arguments, which it does not accept", arguments.size()));
    }
  }

  template <typename T>
  const T& get(ObjectId id) const {
    const auto* value = std::get_if<T>(&objects_[id]);
    if (value == nullptr)
      throw PickleError(fmt::format("calls a function with {} where it expects {}", describe(objects_[id]), describe(T{})));
    return *value;
  }

  // The first argument, which must be a T.
  template <typename T>
  ObjectId first(Arguments arguments, size_t least, size_t most) const {
    expect_count(arguments, least, most);
    get<T>(arguments[0]);
    return arguments[0];
  }

  // Refuses a tensor with attributes that a state::Tree cannot contain. `what`: the attributes, for the message.
  void expect_empty(ObjectId id, const char* what, const char* fix = PickleError::kSaveData) const {
    const auto* dict = std::get_if<Dict>(&objects_[id]);
    if (id != Objects::kNone && (dict == nullptr || !dict->contents.empty()))
      throw PickleError(fmt::format("makes a tensor with {}", what), fix);
  }

  ObjectId rebuild_parameter(Arguments arguments) const {
    first<torch::Tensor>(arguments, 3, 3);
    expect_empty(arguments[2], "hooks");
    return arguments[0];
  }

  // Arguments: none, or, from Python 2, one list of [key, value] pairs.
  ObjectId ordered_dict(Arguments arguments) {
    expect_count(arguments, 0, 1);
    Dict dict{true, {}};
    if (arguments.size() == 1) {
      for (const auto item : get<List>(arguments[0]).elements) {
        const auto& pair = get<List>(item).elements;
        if (pair.size() != 2)
          throw PickleError(fmt::format("makes an OrderedDict with an item of {} elements, not a key and a value", pair.size()));
        for (const auto id : pair) push(dict.contents, id, budget_);
      }
    }
    return objects_.add(std::move(dict));
  }

  // Arguments: (storage, offset, size, stride), then (requires_grad, hooks) if `count` is 6 or 7, then the dtype if it is 7, and then
  // perhaps metadata if it is 6 or 7. Without a dtype, that of the storage is used.
  ObjectId rebuild_tensor(Arguments arguments, size_t count) {
    expect_count(arguments, count, count == 4 ? 4 : count + 1);
    if (count > 4) {
      get<bool>(arguments[4]);
      expect_empty(arguments[5], "hooks");
    }
    if (arguments.size() > count) {
      expect_empty(arguments[count], "metadata, such as a conjugate or negative bit",
                   "call resolve_conj() and resolve_neg() on it before torch.save");
    }
    const auto& storage = get<Storage>(arguments[0]);
    const auto type = count == 7 ? get<Global>(arguments[6]) : Global{Global::Kind::kDtype, storage.dtype};
    if (type.kind != Global::Kind::kDtype || type.dtype == nullptr) throw PickleError("makes a tensor without a dtype");
    const auto* dtype = type.dtype;
    const auto element_size = c10::elementSize(dtype->type);
    if (storage.begin % element_size != 0) {
      throw PickleError(
          fmt::format("makes a tensor of {} that begins within an element, at byte {} of its storage", dtype->name, storage.begin));
    }
    const auto sizes = integers(arguments[2]);
    const auto strides = integers(arguments[3]);
    const auto offset = get<int64_t>(arguments[1]);
    check_bounds(storage.size / element_size, offset, sizes, strides);
    check_copy(sizes, element_size);
    budget_.take(kTensorMemory);
    auto tensor = torch::empty({0}, torch::dtype(dtype->type));
    tensor.set_(storage.memory, static_cast<int64_t>(storage.begin / element_size) + offset, sizes, strides);
    return objects_.add(std::move(tensor));
  }

  // Approximate memory of LibTorch for a tensor without its storage, including sizes and strides.
  static constexpr size_t kTensorMemory = 512;
  // The maximum that LibTorch's kernels support.
  static constexpr size_t kMaxDimensions = 64;

  std::vector<int64_t> integers(ObjectId id) {
    const auto& elements = get<Tuple>(id).elements;
    if (elements.size() > kMaxDimensions)
      throw PickleError(fmt::format("makes a tensor of {} dimensions, but at most {} are possible", elements.size(), kMaxDimensions));
    std::vector<int64_t> values;
    for (const auto element : elements) values.push_back(get<int64_t>(element));
    return values;
  }

  // Verifies that every element is inside the storage.
  static void check_bounds(size_t num_elements, int64_t offset, const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
    bool is_bad = offset < 0 || sizes.size() != strides.size();
    bool is_empty = false;
    int64_t last = offset;
    for (size_t i = 0; !is_bad && i < sizes.size(); ++i) {
      int64_t distance = 0;
      is_bad = sizes[i] < 0 || strides[i] < 0;
      is_empty = is_empty || sizes[i] == 0;
      is_bad = is_bad || (sizes[i] > 0 && __builtin_mul_overflow(sizes[i] - 1, strides[i], &distance));
      is_bad = is_bad || __builtin_add_overflow(last, distance, &last);
    }
    if (is_bad || static_cast<uint64_t>(is_empty ? offset : last) > num_elements ||
        (!is_empty && static_cast<uint64_t>(last) == num_elements)) {
      throw PickleError(fmt::format("makes a tensor that reaches beyond its storage (offset {}, sizes [{}], strides [{}], {} elements)",
                                    offset, fmt::join(sizes, ", "), fmt::join(strides, ", "), num_elements));
    }
  }

  // With strides of 0, a small file can describe a huge tensor, whose first copy would fill the memory.
  void check_copy(const std::vector<int64_t>& sizes, size_t element_size) const {
    const auto num_bytes = num_bytes_of(sizes, element_size);
    if (!num_bytes || *num_bytes > budget_.limit()) {
      throw PickleError(fmt::format("makes a tensor of sizes [{}] whose elements share memory (as after expand()), and a copy of it would "
                                    "need too much memory",
                                    fmt::join(sizes, ", ")),
                        "call contiguous() on it before torch.save");
    }
  }

  ObjectId tuple(size_t size) {
    budget_.take(size, sizeof(ObjectId));
    std::vector<ObjectId> elements(size);
    for (size_t i = size; i > 0; --i) elements[i - 1] = pop();
    return objects_.add(Tuple{std::move(elements)});
  }

  template <typename T>
  T& top_as(const char* action) {
    auto* object = std::get_if<T>(&objects_[top()]);
    if (object == nullptr) throw PickleError(fmt::format("{} {}", action, describe(objects_[top()])));
    return *object;
  }

  void extend(const std::vector<ObjectId>& elements) {
    auto& list = top_as<List>("appends to");
    for (const auto element : elements) push(list.elements, element, budget_);
  }

  void set_items(const std::vector<ObjectId>& contents) {
    auto& dict = top_as<Dict>("sets items of");
    if (contents.size() % 2 != 0) throw PickleError("sets an item of a dictionary without a value");
    for (const auto id : contents) push(dict.contents, id, budget_);
  }

  // Pickle programs number memo entries from 0 and need at least two bytes for each entry, so an index of half the program's size or more
  // is not valid and would only request memory.
  void store(size_t index) {
    if (index >= program_.size() / 2) throw PickleError(fmt::format("stores an object under the index {}, which is too large", index));
    while (memo_.size() <= index) push(memo_, kNothing, budget_);
    memo_[index] = top();
  }

  ObjectId stored(size_t index) const {
    if (index >= memo_.size() || memo_[index] == kNothing)
      throw PickleError(fmt::format("reads the object with index {}, which it has not stored", index));
    return memo_[index];
  }

  static constexpr ObjectId kNothing = ~ObjectId{0};

  std::span<const uint8_t> program_;
  StorageIds storage_ids_;
  const StorageLoader& load_storage_;
  Budget& budget_;
  Objects objects_;
  size_t position_ = 0;
  size_t next_ = 0;
  std::vector<ObjectId> stack_;
  std::vector<uint32_t> marks_;  // the stack's size at each mark
  std::vector<ObjectId> memo_;
};

}  // namespace

torch::Storage allocate_storage(uint64_t size, Budget& budget) {
  constexpr size_t kStorageMemory = 512;
  budget.take(kStorageMemory);
  budget.take(size);
  return {torch::Storage::use_byte_size_t(), static_cast<int64_t>(size), c10::GetCPUAllocator(), /*resizable=*/true};
}

Unpickled unpickle(std::span<const uint8_t> bytes, const std::string& source, StorageIds storage_ids, const StorageLoader& load_storage,
                   Budget& budget) {
  Unpickler unpickler(bytes, storage_ids, load_storage, budget);
  try {
    auto tree = unpickler.run();
    return {std::move(tree), unpickler.program_size()};
  } catch (const PickleError& error) {
    refuse(fmt::format("{}, byte {}", source, unpickler.position()), error.what(), error.fix());
  }
}

}  // namespace trainer::checkpoint
