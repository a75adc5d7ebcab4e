#pragma once
// Writes checkpoint files that PyTorch can load, and reads PyTorch's files. Never executes code from a file.

#include <cstdint>
#include <filesystem>

#include "trainer/error.h"
#include "trainer/state.h"

namespace trainer::checkpoint {

// Writes the tree to a file that torch.load(weights_only=True) can open; an earlier file of this name stays until the new one is on the
// disk. Tensors must be on the CPU. Equal trees give equal bytes. Returns the size in bytes. Throws Error. To be called on one rank.
uint64_t save(const std::filesystem::path& path, const state::Tree& tree);

// Reads a file in PyTorch's format (also the one before PyTorch 1.6), or a safetensors file as a dictionary of its tensors. The tensors are
// on the CPU and own their memory. Throws CheckpointError if the file is missing, damaged or of another format.
state::Tree load(const std::filesystem::path& path);

}  // namespace trainer::checkpoint
