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
// pickle programs, then the content of each storage. Such files are read but not written. The checks are those of the zip format
// (pytorch_file.h), but the legacy format has no checksums, so a changed number is not detected.

// The first pickle program: MAGIC_NUMBER in torch/serialization.py.
inline constexpr std::string_view kLegacyMagic = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";

// `bytes` begin with kLegacyMagic. `source` states in messages where they came from. The tree is like that of read_pytorch_file(). Throws
// CheckpointError if the file is damaged or contains anything but plain data. Allocates at most max_allocation() (refusal.h).
state::Tree read_legacy_file(std::span<const uint8_t> bytes, const std::string& source);

}  // namespace trainer::checkpoint
