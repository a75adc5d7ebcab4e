#include "checkpoint/unpickler.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <iterator>

#include "base/little_endian.h"
#include "checkpoint/pickle_calls.h"
#include "checkpoint/pickle_objects.h"
#include "checkpoint/pickle_opcodes.h"
#include "checkpoint/pickle_tree.h"
#include "checkpoint/refusal.h"

namespace trainer::checkpoint {
namespace {

using little_endian::load;

class Unpickler {
 public:
  Unpickler(std::span<const uint8_t> program, const StorageLoader& load_storage, Budget& budget)
      : program_(program), load_storage_(load_storage), budget_(budget), objects_(budget) {}

  state::Tree run() {
    for (auto opcode = next_opcode(); opcode != Opcode::kStop; opcode = next_opcode()) {
      if (!constant(opcode) && !container(opcode)) other(opcode);
    }
    const auto result = pop();
    if (!stack_.empty() || !marks_.empty()) throw PickleError("ends with something left over");
    return to_tree(objects_, result, budget_);
  }

  // The byte offset of the current instruction.
  size_t position() const { return position_; }

 private:
  const uint8_t* take(size_t size) {
    if (size > program_.size() - next_) throw PickleError("ends in the middle of an instruction");
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

  void push_object(ObjectId id) { push(stack_, id, budget_); }

  // Does not reach below the last mark.
  ObjectId top() const {
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) throw PickleError("takes an object where there is none");
    return stack_.back();
  }

  ObjectId pop() {
    const auto id = top();
    stack_.pop_back();
    return id;
  }

  // Pops the objects that were pushed since the last mark.
  std::vector<ObjectId> pop_to_mark() {
    if (marks_.empty()) throw PickleError("takes objects up to a mark where there is none");
    const auto first = stack_.begin() + marks_.back();
    budget_.take(static_cast<size_t>(stack_.end() - first), sizeof(ObjectId));
    std::vector<ObjectId> ids(first, stack_.end());
    stack_.erase(first, stack_.end());
    marks_.pop_back();
    return ids;
  }

  bool constant(Opcode opcode) {
    switch (opcode) {
      case Opcode::kNone:
        push_object(Objects::kNone);
        return true;
      case Opcode::kNewTrue:
        push_object(Objects::kTrue);
        return true;
      case Opcode::kNewFalse:
        push_object(Objects::kFalse);
        return true;
      case Opcode::kBinInt:
        push_object(objects_.add(int64_t{static_cast<int32_t>(number<uint32_t>())}));
        return true;
      case Opcode::kBinInt1:
        push_object(objects_.add(int64_t{number<uint8_t>()}));
        return true;
      case Opcode::kBinInt2:
        push_object(objects_.add(int64_t{number<uint16_t>()}));
        return true;
      case Opcode::kLong1:
        push_object(objects_.add(long_integer()));
        return true;
      case Opcode::kBinFloat:
        push_object(objects_.add(std::bit_cast<double>(__builtin_bswap64(number<uint64_t>()))));
        return true;
      case Opcode::kBinUnicode:
        push_object(objects_.add(text(number<uint32_t>())));
        return true;
      default:
        return false;
    }
  }

  // A two's complement integer with a length in bytes.
  int64_t long_integer() {
    const size_t size = number<uint8_t>();
    const auto* bytes = take(size);
    if (size > sizeof(int64_t)) throw PickleError("holds an integer of more than 64 bits");
    uint64_t value = size > 0 && (bytes[size - 1] & 0x80) != 0 ? ~uint64_t{0} : 0;
    for (size_t i = size; i > 0; --i) value = value << 8 | bytes[i - 1];
    return static_cast<int64_t>(value);
  }

  bool container(Opcode opcode) {
    switch (opcode) {
      case Opcode::kEmptyList:
        push_object(objects_.add(List{}));
        return true;
      case Opcode::kEmptyDict:
        push_object(objects_.add(Dict{false, {}}));
        return true;
      case Opcode::kEmptyTuple:
        push_object(Objects::kEmptyTuple);
        return true;
      case Opcode::kTuple:
        push_object(objects_.add(Tuple{pop_to_mark()}));
        return true;
      case Opcode::kTuple1:
        tuple(1);
        return true;
      case Opcode::kTuple2:
        tuple(2);
        return true;
      case Opcode::kTuple3:
        tuple(3);
        return true;
      case Opcode::kAppend:
        extend({pop()});
        return true;
      case Opcode::kAppends:
        extend(pop_to_mark());
        return true;
      case Opcode::kSetItem: {
        const auto value = pop();
        set_items({pop(), value});
        return true;
      }
      case Opcode::kSetItems:
        set_items(pop_to_mark());
        return true;
      default:
        return false;
    }
  }

  void tuple(size_t size) {
    budget_.take(size, sizeof(ObjectId));
    std::vector<ObjectId> elements(size);
    for (size_t i = size; i > 0; --i) elements[i - 1] = pop();
    push_object(objects_.add(Tuple{std::move(elements)}));
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
    if (contents.size() % 2 != 0) throw PickleError("sets an item of a dictionary that has no value");
    for (const auto id : contents) push(dict.contents, id, budget_);
  }

  void other(Opcode opcode) {
    switch (opcode) {
      case Opcode::kProto:
        if (const unsigned protocol = number<uint8_t>(); protocol != kProtocol) {
          throw PickleError(fmt::format("is of pickle protocol {}, not of {}, torch.save's own", protocol, kProtocol));
        }
        break;
      case Opcode::kMark:
        push(marks_, static_cast<uint32_t>(stack_.size()), budget_);
        break;
      case Opcode::kBinPut:
        put(number<uint8_t>());
        break;
      case Opcode::kLongBinPut:
        put(number<uint32_t>());
        break;
      case Opcode::kBinGet:
        push_object(get(number<uint8_t>()));
        break;
      case Opcode::kLongBinGet:
        push_object(get(number<uint32_t>()));
        break;
      case Opcode::kGlobal: {
        const auto module = line();
        push_object(objects_.add(find_global(module, line())));
        break;
      }
      case Opcode::kReduce: {
        const auto arguments = pop();
        push_object(call(objects_, budget_, pop(), arguments));
        break;
      }
      case Opcode::kBuild:
        build();
        break;
      case Opcode::kBinPersId:
        push_object(objects_.add(storage(pop())));
        break;
      default:
        throw PickleError(fmt::format("holds the instruction 0x{:02x}, which torch.save does not write", static_cast<unsigned>(opcode)));
    }
  }

  // Pickle programs number memo entries from 0 and need at least two bytes for each, which limits the index.
  void put(size_t index) {
    if (index >= program_.size() / 2) throw PickleError(fmt::format("keeps an object under the number {}, which is too large", index));
    while (memo_.size() <= index) push(memo_, kNothing, budget_);
    memo_[index] = top();
  }

  ObjectId get(size_t index) const {
    if (index >= memo_.size() || memo_[index] == kNothing) throw PickleError(fmt::format("wants object {}, which it has not kept", index));
    return memo_[index];
  }

  // Ignores the attributes of an OrderedDict (such as a state_dict's _metadata): they are not needed.
  void build() {
    const auto attributes = pop();
    if (!top_as<Dict>("sets attributes of").is_ordered || !std::holds_alternative<Dict>(objects_[attributes])) {
      throw PickleError("sets attributes of a plain dictionary");
    }
  }

  // `id`: a tuple ("storage", type, key, location, number of elements)
  Storage storage(ObjectId id) {
    const auto* tuple = std::get_if<Tuple>(&objects_[id]);
    if (tuple == nullptr || tuple->elements.size() != 5) throw PickleError("wants something outside of it that is not a storage");
    const auto& elements = tuple->elements;
    const auto* word = std::get_if<std::string_view>(&objects_[elements[0]]);
    const auto* type = std::get_if<Global>(&objects_[elements[1]]);
    const auto* key = std::get_if<std::string_view>(&objects_[elements[2]]);
    const auto* num_elements = std::get_if<int64_t>(&objects_[elements[4]]);
    if (word == nullptr || *word != "storage" || type == nullptr || type->kind != Global::Kind::kStorage || key == nullptr ||
        num_elements == nullptr) {
      throw PickleError("wants something outside of it that is not a storage");
    }
    const uint64_t element_size = type->dtype != nullptr ? c10::elementSize(type->dtype->type) : 1;
    uint64_t size = 0;
    if (*num_elements < 0 || __builtin_mul_overflow(static_cast<uint64_t>(*num_elements), element_size, &size)) {
      throw PickleError(fmt::format("wants a storage of {} elements", *num_elements));
    }
    return {load_storage_(*key, size), type->dtype};
  }

  static constexpr ObjectId kNothing = ~ObjectId{0};

  std::span<const uint8_t> program_;
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

state::Tree unpickle(std::span<const uint8_t> program, const std::string& source, const StorageLoader& load_storage, Budget& budget) {
  Unpickler unpickler(program, load_storage, budget);
  try {
    return unpickler.run();
  } catch (const PickleError& error) {
    refuse(fmt::format("{}, byte {}", source, unpickler.position()), error.what(),
           "save a dictionary of tensors, numbers, text, lists and dictionaries with torch.save, such as a state_dict");
  }
}

}  // namespace trainer::checkpoint
