#pragma once
// Runs a pickle program that can make only plain data: the names that it may use are limited by an allow-list, as in
// torch/_weights_only_unpickler.py.

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "checkpoint/refusal.h"
#include "trainer/state.h"

namespace trainer::checkpoint {

// What a pickle program has as the persistent id of a storage (torch/serialization.py).
enum class StorageIds : uint8_t {
  kWhole,     // ("storage", type, key, location, number of elements)
  kWithView,  // the same, followed by None or (key of the view, its first element, its number of elements)
};

// Returns the memory of the storage that the pickle program refers to as `key`, always the same memory for the same key. Its size in bytes,
// num_elements * element_size, fits in int64_t.
using StorageLoader = std::function<torch::Storage(std::string_view key, uint64_t num_elements, size_t element_size)>;

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

}  // namespace trainer::checkpoint
