#pragma once
// Runs a pickle program that can make only plain data: the names that it may use are limited by an allow-list, as in
// torch/_weights_only_unpickler.py.

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "checkpoint/dtypes.h"
#include "checkpoint/refusal.h"
#include "trainer/state.h"

namespace trainer::checkpoint {

// The objects that a pickle program makes, and their conversion to a tree. They refer to each other by index, so an object can contain
// itself; all are freed together.

using ObjectId = uint32_t;

// A function, class or constant outside a pickle program that the program may use; all others are refused.
struct Global {
  enum class Kind : uint8_t {
    kOrderedDict,
    kCounter,
    kSize,
    kDevice,
    kRebuildTensor,
    kRebuildTensorV2,
    kRebuildTensorV3,
    kRebuildParameter,
    kParameter,
    kStorage,  // of `dtype`, or of bytes if that is nullptr
    kDtype,
  };
  Kind kind;
  const Dtype* dtype = nullptr;
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

// A std::string_view points into the pickle program or into the texts of Objects.
using Object = std::variant<std::monostate, bool, int64_t, double, std::string_view, Global, Storage, torch::Tensor, Tuple, List, Dict>;

// Describes an object for a message: "a list".
const char* describe(const Object& object);

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
  explicit Objects(Budget& budget);

  ObjectId add(Object object);
  // Keeps a copy of `text`.
  ObjectId add_text(const std::string& text);
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
  std::deque<std::string> texts_;
};

// Converts an object to a tree. Throws PickleError for anything that a tree cannot represent, such as an object that contains itself, a
// function, or two equal keys.
state::Tree to_tree(const Objects& objects, ObjectId id, Budget& budget);

// The storages that a pickle program refers to by persistent ids, as torch/serialization.py writes them.

// The content of a persistent id.
enum class StorageIds : uint8_t {
  kWhole,     // ("storage", type, key, location, number of elements)
  kWithView,  // the same, followed by None or (key of the view, its first element, its number of elements)
};

// Returns the memory of the storage that the pickle program refers to as `key`, always the same memory for the same key. Its size in bytes,
// num_elements * element_size, fits in int64_t.
using StorageLoader = std::function<torch::Storage(std::string_view key, uint64_t num_elements, size_t element_size)>;

// Throws PickleError if the id is not that of a storage, or if a view reaches beyond its storage.
Storage load_storage(const Objects& objects, ObjectId id, StorageIds ids, const StorageLoader& load);

// Allocates uninitialized memory. Takes this memory, and that of an entry in the caller's map of storages, from `budget`.
torch::Storage allocate_storage(uint64_t size, Budget& budget);

struct Unpickled {
  state::Tree tree;
  size_t program_size;  // the program's length in bytes
};

// Runs the pickle program at the beginning of `bytes`; bytes after it are not read. `source` names the program in messages. Throws
// CheckpointError if the program is refused.
Unpickled unpickle(std::span<const uint8_t> bytes, const std::string& source, StorageIds storage_ids, const StorageLoader& load_storage,
                   Budget& budget);

// The functions and classes that a pickle program may use, and their effects.

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

// The end of a pickle program is missing.
class PickleEndError : public PickleError {
 public:
  using PickleError::PickleError;
};

// Throws PickleError for a name that is not allowed.
Global find_global(std::string_view module, std::string_view name);

// Calls `function` with `arguments`, which must be a tuple, and returns the resulting object. Throws PickleError.
ObjectId call(Objects& objects, Budget& budget, ObjectId function, ObjectId arguments);

// Accepts and ignores the state that torch.save stores besides an object's content: an OrderedDict's attributes (such as a state_dict's
// _metadata), and whether a parameter requires gradients. Throws PickleError for anything else.
void set_state(Objects& objects, Budget& budget, ObjectId object, ObjectId state);

}  // namespace trainer::checkpoint
