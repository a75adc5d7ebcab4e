#pragma once
// Runs a pickle program that makes plain data and nothing else: an allow-list of names, as torch/_weights_only_unpickler.py has one.

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "checkpoint/budget.h"
#include "state/tree.h"

namespace trainer::checkpoint {

// The memory that a program calls `key`, `size` bytes; the same for the same key.
using StorageLoader = std::function<torch::Storage(std::string_view key, uint64_t size)>;

// `source` names the program, for messages. Throws CheckpointError for what is refused.
state::Tree unpickle(std::span<const uint8_t> program, const std::string& source, const StorageLoader& load_storage, Budget& budget);

}  // namespace trainer::checkpoint
