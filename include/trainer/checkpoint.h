#pragma once
// Checkpoint files that PyTorch reads, and those that it writes. No code in a file is executed.

#include <cstdint>
#include <filesystem>

#include "trainer/state.h"

namespace trainer::checkpoint {

// Writes the tree to a file that torch.load(weights_only=True) opens, complete or absent: an earlier file of that name stays until the new
// one is on the disk. Tensors must be on the CPU. Equal trees give equal bytes. Returns the size in bytes. Throws Error. Not collective:
// call it on one rank.
uint64_t save(const std::filesystem::path& path, const state::Tree& tree);

// Reads a file in PyTorch's format (also that before 1.6) or in safetensors', which gives a dictionary of its tensors. The tensors are on
// the CPU and own their memory. Throws CheckpointError, which names the file, if it is missing, damaged or of another format. Not
// collective.
state::Tree load(const std::filesystem::path& path);

}  // namespace trainer::checkpoint
