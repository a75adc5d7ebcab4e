#pragma once
// The storages that a pickle program refers to by persistent ids, as torch/serialization.py writes them.

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>

#include "checkpoint/budget.h"
#include "checkpoint/pickle_objects.h"

namespace trainer::checkpoint {

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

}  // namespace trainer::checkpoint
