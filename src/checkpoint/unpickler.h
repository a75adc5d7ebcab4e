#pragma once
// Runs a pickle program that can make only plain data: names are limited by an allow-list, as in torch/_weights_only_unpickler.py; and the
// objects and calls that such a program makes.

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

// The objects that a pickle program makes, and their conversion to a tree. They refer to each other by number, so an object can contain
// itself; all are freed together.

using ObjectId = uint32_t;

// A function, class or constant outside of the pickle program that it may use; all others are refused.
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
    kStorage,  // of `dtype`; nullptr: of bytes
    kDtype,
  };
  Kind kind;
  const Dtype* dtype = nullptr;
};

// The range of bytes [begin, begin + size) of `memory`: all of it, or a view.
struct Storage {
  torch::Storage memory;
  const Dtype* dtype;  // nullptr: bytes
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

// Text points into the pickle program or into the Objects' own texts.
using Object = std::variant<std::monostate, bool, int64_t, double, std::string_view, Global, Storage, torch::Tensor, Tuple, List, Dict>;

// For messages: "a list".
const char* describe(const Object& object);

// push_back whose memory is taken from `budget`.
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

  // Every Objects holds exactly one of each of these, under these numbers.
  static constexpr ObjectId kNone = 0;
  static constexpr ObjectId kFalse = 1;
  static constexpr ObjectId kTrue = 2;
  static constexpr ObjectId kEmptyTuple = 3;

 private:
  Budget& budget_;
  std::deque<Object> objects_;
  std::deque<std::string> texts_;
};

// The tree of an object. Throws PickleError for what a tree cannot represent: an object that contains
// itself, a function, two equal keys.
state::Tree to_tree(const Objects& objects, ObjectId id, Budget& budget);

// The storages that a pickle program refers to by persistent ids, as torch/serialization.py writes them.

// What a persistent id holds.
enum class StorageIds : uint8_t {
  kWhole,     // ("storage", type, key, location, number of elements)
  kWithView,  // the same, and None or (key of the view, its first element, its number of elements)
};

// Returns the memory of the storage that the pickle program refers to as `key`; the same memory for the same key. Its size in bytes,
// num_elements * element_size, fits in int64_t.
using StorageLoader = std::function<torch::Storage(std::string_view key, uint64_t num_elements, size_t element_size)>;

// Throws PickleError for an id that is not a storage's, and for a view that reaches beyond its storage.
Storage load_storage(const Objects& objects, ObjectId id, StorageIds ids, const StorageLoader& load);

// Memory whose content is not set, with its share of `budget`, including that of an entry in a map of storages.
torch::Storage allocate_storage(uint64_t size, Budget& budget);

struct Unpickled {
  state::Tree tree;
  size_t program_size;  // the program's length in bytes
};

// Runs the pickle program at the beginning of `bytes`; what follows it is not read. `source` names the program in messages. Throws
// CheckpointError if the program is refused.
Unpickled unpickle(std::span<const uint8_t> bytes, const std::string& source, StorageIds storage_ids, const StorageLoader& load_storage,
                   Budget& budget);

// The functions and classes that a pickle program may use, and what calling them does.

// States what is wrong in a pickle program, but not where: the caller that runs the program adds that.
class PickleError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A pickle program of which the end is missing.
class PickleEndError : public PickleError {
 public:
  using PickleError::PickleError;
};

// Throws PickleError for a name that is not allowed.
Global find_global(std::string_view module, std::string_view name);

// Calls `function` with `arguments`, which must be a tuple, and returns the resulting object. Throws PickleError.
ObjectId call(Objects& objects, Budget& budget, ObjectId function, ObjectId arguments);

// Accepts what torch.save sets beside an object's content, which is not needed: an OrderedDict's attributes (such as a state_dict's
// _metadata), and whether a parameter requires gradients. Throws PickleError for anything else.
void set_state(Objects& objects, Budget& budget, ObjectId object, ObjectId state);

}  // namespace trainer::checkpoint
