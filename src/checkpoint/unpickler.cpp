#include "checkpoint/unpickler.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <iterator>
#include <optional>

#include "base/little_endian.h"
#include "checkpoint/pickle_calls.h"
#include "checkpoint/pickle_objects.h"
#include "checkpoint/pickle_opcodes.h"
#include "checkpoint/refusal.h"

namespace trainer::checkpoint {
namespace {

using little_endian::load;

class Unpickler {
 public:
  Unpickler(std::span<const uint8_t> bytes, StorageIds storage_ids, const StorageLoader& load_storage, Budget& budget)
      : program_(bytes), storage_ids_(storage_ids), load_storage_(load_storage), budget_(budget), objects_(budget) {}

  state::Tree run() {
    for (auto opcode = next_opcode(); opcode != Opcode::kStop; opcode = next_opcode()) {
      auto object = constant(opcode);
      if (!object) object = derived(opcode);
      if (object) {
        push_object(*object);
      } else {
        act(opcode);
      }
    }
    const auto result = pop();
    if (!stack_.empty() || !marks_.empty()) throw PickleError("ends with unused objects or marks on its stack");
    return to_tree(objects_, result, budget_);
  }

  // The byte offset of the current instruction.
  size_t position() const { return position_; }
  // After run(): the program's length in bytes.
  size_t program_size() const { return next_; }

 private:
  const uint8_t* take(size_t size) {
    if (size > program_.size() - next_) throw PickleEndError("ends in the middle of an instruction");
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
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) throw PickleError("takes an object from an empty stack");
    return stack_.back();
  }

  ObjectId pop() {
    const auto id = top();
    stack_.pop_back();
    return id;
  }

  // Pops the objects that were pushed since the last mark.
  std::vector<ObjectId> pop_to_mark() {
    if (marks_.empty()) throw PickleError("takes objects up to a mark, but there is no mark");
    const auto first = stack_.begin() + marks_.back();
    budget_.take(static_cast<size_t>(stack_.end() - first), sizeof(ObjectId));
    std::vector<ObjectId> ids(first, stack_.end());
    stack_.erase(first, stack_.end());
    marks_.pop_back();
    return ids;
  }

  // The object of an instruction that makes one from the program's bytes alone; empty for other instructions.
  std::optional<ObjectId> constant(Opcode opcode) {
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
      default:
        return std::nullopt;
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

  // The object of an instruction that makes or finds one with earlier objects; empty for other instructions.
  std::optional<ObjectId> derived(Opcode opcode) {
    switch (opcode) {
      case Opcode::kTuple:
        return objects_.add(Tuple{pop_to_mark()});
      case Opcode::kTuple1:
        return tuple(1);
      case Opcode::kTuple2:
        return tuple(2);
      case Opcode::kTuple3:
        return tuple(3);
      case Opcode::kBinGet:
        return get(number<uint8_t>());
      case Opcode::kLongBinGet:
        return get(number<uint32_t>());
      case Opcode::kReduce: {
        const auto arguments = pop();
        return call(objects_, budget_, pop(), arguments);
      }
      case Opcode::kBinPersId:
        return objects_.add(load_storage(objects_, pop(), storage_ids_, load_storage_));
      default:
        return std::nullopt;
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

  // Runs an instruction that makes no object.
  void act(Opcode opcode) {
    switch (opcode) {
      case Opcode::kProto:
        if (const unsigned protocol = number<uint8_t>(); protocol != kProtocol) {
          throw PickleError(fmt::format("is of pickle protocol {}, but torch.save writes protocol {}", protocol, kProtocol));
        }
        return;
      case Opcode::kMark:
        return push(marks_, static_cast<uint32_t>(stack_.size()), budget_);
      case Opcode::kBinPut:
        return put(number<uint8_t>());
      case Opcode::kLongBinPut:
        return put(number<uint32_t>());
      case Opcode::kAppend:
        return extend({pop()});
      case Opcode::kAppends:
        return extend(pop_to_mark());
      case Opcode::kSetItem: {
        const auto value = pop();
        return set_items({pop(), value});
      }
      case Opcode::kSetItems:
        return set_items(pop_to_mark());
      case Opcode::kBuild: {
        const auto state = pop();
        return set_state(objects_, budget_, top(), state);
      }
      default:
        throw PickleError(fmt::format("holds the instruction 0x{:02x}, which torch.save does not write", static_cast<unsigned>(opcode)));
    }
  }

  // Pickle programs number memo entries from 0 and need at least two bytes for each, which limits the index.
  void put(size_t index) {
    if (index >= program_.size() / 2) throw PickleError(fmt::format("stores an object under the number {}, which is too large", index));
    while (memo_.size() <= index) push(memo_, kNothing, budget_);
    memo_[index] = top();
  }

  ObjectId get(size_t index) const {
    if (index >= memo_.size() || memo_[index] == kNothing)
      throw PickleError(fmt::format("reads object {}, which it has not stored", index));
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

Unpickled unpickle(std::span<const uint8_t> bytes, const std::string& source, StorageIds storage_ids, const StorageLoader& load_storage,
                   Budget& budget) {
  Unpickler unpickler(bytes, storage_ids, load_storage, budget);
  const auto where = [&] { return fmt::format("{}, byte {}", source, unpickler.position()); };
  try {
    auto tree = unpickler.run();
    return {std::move(tree), unpickler.program_size()};
  } catch (const PickleEndError& error) {
    refuse_damaged(where(), error.what());
  } catch (const PickleError& error) {
    refuse(where(), error.what(),
           "save a dictionary of tensors, numbers, text, lists and dictionaries with torch.save, such as a state_dict");
  }
}

}  // namespace trainer::checkpoint
