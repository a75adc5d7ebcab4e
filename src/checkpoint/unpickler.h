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

// Returns the memory (`size` bytes) of the storage that the pickle program refers to as `key`; the same memory for the same key.
using StorageLoader = std::function<torch::Storage(std::string_view key, uint64_t size)>;

// `source` names the pickle program in messages. Throws CheckpointError if the program is refused.
state::Tree unpickle(std::span<const uint8_t> program, const std::string& source, const StorageLoader& load_storage, Budget& budget);

}  // namespace trainer::checkpoint
