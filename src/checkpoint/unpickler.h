#pragma once
// Runs a pickle program that can make only plain data: names are limited by an allow-list, as in torch/_weights_only_unpickler.py.

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "checkpoint/budget.h"
#include "state/tree.h"

namespace trainer::checkpoint {

// What a pickle program knows of a storage.
struct StorageReference {
  std::string_view key;
  uint64_t num_bytes;
  size_t element_size;  // in bytes, of the type under which the program refers to it
};

// Returns the memory of a storage; the same memory for the same key.
using StorageLoader = std::function<torch::Storage(const StorageReference&)>;

struct Unpickled {
  state::Tree tree;
  size_t program_size;  // in bytes
};

// Runs the pickle program at the beginning of `bytes`. `source` names it in messages. Throws CheckpointError if the program is refused.
Unpickled unpickle(std::span<const uint8_t> bytes, const std::string& source, const StorageLoader& load_storage, Budget& budget);

}  // namespace trainer::checkpoint
