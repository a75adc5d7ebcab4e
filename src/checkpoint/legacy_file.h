#pragma once
// PyTorch's file format from before version 1.6: pickle programs one after another, then the storages. Still common among published
// weights; torch.save writes it with _use_new_zipfile_serialization=False.

#include <cstdint>
#include <span>
#include <string>

#include "state/tree.h"

namespace trainer::checkpoint {

bool begins_as_legacy_file(std::span<const uint8_t> bytes);

// Reads what torch.load(weights_only=True) does (torch/serialization.py, _legacy_load), except for views of storages, which only
// PyTorch before 1.0 wrote. `source` states in messages where the bytes came from. Throws CheckpointError if the content is refused.
state::Tree read_legacy_file(std::span<const uint8_t> bytes, const std::string& source);

}  // namespace trainer::checkpoint
