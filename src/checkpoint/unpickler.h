#pragma once
// Runs a pickle program that can make only plain data: names are limited by an allow-list, as in torch/_weights_only_unpickler.py.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "checkpoint/pickle_objects.h"
#include "checkpoint/refusal.h"
#include "trainer/state.h"

namespace trainer::checkpoint {

struct Unpickled {
  state::Tree tree;
  size_t program_size;  // the program's length in bytes
};

// Runs the pickle program at the beginning of `bytes`; what follows it is not read. `source` names the program in messages. Throws
// CheckpointError if the program is refused.
Unpickled unpickle(std::span<const uint8_t> bytes, const std::string& source, StorageIds storage_ids, const StorageLoader& load_storage,
                   Budget& budget);

}  // namespace trainer::checkpoint
