#include "checkpoint/pickle_objects.h"

#include <c10/core/CPUAllocator.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "checkpoint/pickle_calls.h"
#include "checkpoint/refusal.h"

namespace trainer::checkpoint {

const char* describe(const Object& object) {
  constexpr const char* kNames[] = {"None",      "a boolean", "an integer", "a number", "a string",    "a function or type",
                                    "a storage", "a tensor",  "a tuple",    "a list",   "a dictionary"};
  return kNames[object.index()];
}

Objects::Objects(Budget& budget) : budget_(budget) {
  add({});
  add(false);
  add(true);
  add(Tuple{});
}

ObjectId Objects::add(Object object) {
  budget_.take(sizeof(Object));
  objects_.push_back(std::move(object));
  return static_cast<ObjectId>(objects_.size() - 1);
}

ObjectId Objects::add_text(const std::string& text) {
  budget_.take(sizeof(std::string) + text.size());
  return add(std::string_view(texts_.emplace_back(text)));
}

namespace {

[[noreturn]] void refuse_id() { throw PickleError("refers to an external object that is not a storage"); }

template <typename T>
const T& get(const Objects& objects, ObjectId id) {
  const auto* value = std::get_if<T>(&objects[id]);
  if (value == nullptr) refuse_id();
  return *value;
}

// The parts of a tuple.
const std::vector<ObjectId>& parts(const Objects& objects, ObjectId id, size_t count) {
  const auto& elements = get<Tuple>(objects, id).elements;
  if (elements.size() != count) refuse_id();
  return elements;
}

}  // namespace

Storage load_storage(const Objects& objects, ObjectId id, StorageIds ids, const StorageLoader& load) {
  const auto& elements = parts(objects, id, ids == StorageIds::kWithView ? 6 : 5);
  const auto type = get<Global>(objects, elements[1]);
  if (get<std::string_view>(objects, elements[0]) != "storage" || type.kind != Global::Kind::kStorage) refuse_id();
  const auto key = get<std::string_view>(objects, elements[2]);
  const auto num_elements = get<int64_t>(objects, elements[4]);
  const size_t element_size = type.dtype != nullptr ? c10::elementSize(type.dtype->type) : 1;
  int64_t size = 0;
  if (num_elements < 0 || __builtin_mul_overflow(num_elements, element_size, &size)) {
    throw PickleError(fmt::format("refers to a storage of {} elements", num_elements));
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

torch::Storage allocate_storage(uint64_t size, Budget& budget) {
  constexpr size_t kStorageMemory = 512;
  budget.take(kStorageMemory);
  budget.take(size);
  return {torch::Storage::use_byte_size_t(), static_cast<int64_t>(size), c10::GetCPUAllocator(), /*resizable=*/true};
}

namespace {

// More than any checkpoint needs, and safe for the call stack.
constexpr int kMaxDepth = 100;

class TreeMaker {
 public:
  TreeMaker(const Objects& objects, Budget& budget) : objects_(objects), budget_(budget) {}

  state::Tree make(ObjectId id, int depth) {
    if (depth > kMaxDepth) throw PickleError(fmt::format("nests objects more than {} deep, or in themselves", kMaxDepth));
    return std::visit([&](const auto& content) { return make(content, depth); }, objects_[id]);
  }

 private:
  state::Tree make(std::monostate, int) { return {}; }
  state::Tree make(bool content, int) { return content; }
  state::Tree make(int64_t content, int) { return content; }
  state::Tree make(double content, int) { return content; }
  state::Tree make(std::string_view content, int) { return copy(content); }
  state::Tree make(const torch::Tensor& content, int) { return content; }
  state::Tree make(const Tuple& content, int depth) { return list(content.elements, depth); }
  state::Tree make(const List& content, int depth) { return list(content.elements, depth); }

  state::Tree make(Global content, int) {
    if (content.kind != Global::Kind::kDtype) throw PickleError("makes a function or type, which is not data");
    return copy(fmt::format("torch.{}", content.dtype->name));
  }

  state::Tree make(const Storage&, int) { throw PickleError("makes a storage without a tensor"); }

  state::Tree make(const Dict& content, int depth) {
    const auto& contents = content.contents;
    check_keys(contents);
    // The items' vector grows by doubling; while it does, the old and the new memory exist together.
    budget_.take(contents.size() / 2, 3 * sizeof(state::Item));
    state::Dict dict;
    for (size_t i = 0; i < contents.size(); i += 2) dict.add(key(contents[i]), make(contents[i + 1], depth + 1));
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
    if (const auto* integer = std::get_if<int64_t>(&objects_[id])) return *integer;
    return copy(std::get<std::string_view>(objects_[id]));
  }

  void check_keys(const std::vector<ObjectId>& contents) {
    budget_.take(contents.size() / 2, sizeof(ObjectId));
    std::vector<ObjectId> keys;
    keys.reserve(contents.size() / 2);
    for (size_t i = 0; i < contents.size(); i += 2) {
      const auto& object = objects_[contents[i]];
      if (!std::holds_alternative<std::string_view>(object) && !std::holds_alternative<int64_t>(object)) {
        throw PickleError(fmt::format("makes a dictionary with {} as a key", describe(object)));
      }
      keys.push_back(contents[i]);
    }
    const auto value_of = [this](ObjectId id) -> std::variant<int64_t, std::string_view> {
      if (const auto* text = std::get_if<std::string_view>(&objects_[id])) return *text;
      return std::get<int64_t>(objects_[id]);
    };
    std::ranges::sort(keys, {}, value_of);
    const auto equal = std::ranges::adjacent_find(keys, {}, value_of);
    if (equal == keys.end()) return;
    const auto* text = std::get_if<std::string_view>(&objects_[*equal]);
    throw PickleError(fmt::format("makes a dictionary with two items {}",
                                  text != nullptr ? in_quotes(*text) : std::to_string(std::get<int64_t>(objects_[*equal]))));
  }

  const Objects& objects_;
  Budget& budget_;
};

}  // namespace

state::Tree to_tree(const Objects& objects, ObjectId id, Budget& budget) { return TreeMaker(objects, budget).make(id, 0); }

}  // namespace trainer::checkpoint
