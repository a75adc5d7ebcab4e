#include "checkpoint/pickle_objects.h"

#include <c10/core/CPUAllocator.h>
#include <fmt/format.h>

#include "checkpoint/pickle_calls.h"

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

}  // namespace trainer::checkpoint
