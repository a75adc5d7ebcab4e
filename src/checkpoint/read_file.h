#pragma once
// Reading a file of tensors whose format is not known.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "state/tree.h"

namespace trainer::checkpoint {

// By its content: PyTorch's zip format or safetensors, which gives a dictionary of its tensors. Throws CheckpointError for a file that
// is missing or cannot be read, and for another format, which it names.
state::Tree read_any(const std::filesystem::path& path);
// The same of bytes; `source`: where they came from, for messages.
state::Tree read_any(std::span<const uint8_t> bytes, const std::string& source);

}  // namespace trainer::checkpoint
