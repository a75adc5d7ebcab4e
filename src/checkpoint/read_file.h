#pragma once
// Reads a file of tensors whose format is not known.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "state/tree.h"

namespace trainer::checkpoint {

// Detects the format from the content: PyTorch's zip format, its legacy format, or safetensors, which gives a dictionary of its
// tensors. Throws CheckpointError for a file that is missing or cannot be read, and for any other format, which it names if it knows it.
state::Tree read_any(const std::filesystem::path& path);
// Reads the same from memory; `source` states in messages where the bytes came from.
state::Tree read_any(std::span<const uint8_t> bytes, const std::string& source);

}  // namespace trainer::checkpoint
