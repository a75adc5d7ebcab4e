#pragma once
// Reads checkpoints from memory, and files in PyTorch's format from before 1.6.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "trainer/state.h"

namespace trainer::checkpoint {

// Reads from memory what load() reads from a file (trainer/checkpoint.h); `source` states in messages where the bytes came from.
state::Tree load(std::span<const uint8_t> bytes, const std::string& source);

// PyTorch's legacy file format, which torch.save wrote from 0.1.10 until 1.5 (_legacy_load in torch/serialization.py): five consecutive
// pickle programs, then the content of each storage, without checksums. Such files are read but not written.

// The first pickle program: MAGIC_NUMBER in torch/serialization.py.
inline constexpr std::string_view kLegacyMagic = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";

// `bytes` begin with kLegacyMagic. Like read_pytorch_file().
state::Tree read_legacy_file(std::span<const uint8_t> bytes, const std::string& source);

}  // namespace trainer::checkpoint
