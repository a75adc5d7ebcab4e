#pragma once
// PyTorch's file format, a zip archive of stored entries: data.pkl, a pickle program that makes the tree, and one entry for each
// storage (torch/serialization.py, caffe2/serialize/inline_container.cc). What is written, torch.load(weights_only=True) opens. What is
// read may come from anywhere: nothing in it is executed, and every offset, size and checksum is looked at.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "checkpoint/output.h"
#include "state/tree.h"

namespace trainer::checkpoint {

// Tensors are on the CPU, with any strides. As torch.save does, a storage is written whole, and once for all tensors that view it; those
// are of one dtype. An equal tree gives equal bytes. `archive_name` is the folder inside the archive: by custom the file's name without
// its ending. No tensor is copied.
void write_pytorch_file(const state::Tree& tree, const std::string& archive_name, Output& output);

// The same into a file, which is complete or absent (AtomicFile); the archive is named after it. Returns its size in bytes. Throws Error.
uint64_t save(const std::filesystem::path& path, const state::Tree& tree);

// The tree's tensors are on the CPU, own their memory, share it where the file's do, and have no requires_grad. Tuples and torch.Size
// become lists, an OrderedDict a dictionary, dtypes and devices text ("torch.float16", "cuda:0"). Throws CheckpointError, which names
// the file, for all that is no such archive of plain data. Allocates at most what budget.h says.
state::Tree read_pytorch_file(const std::filesystem::path& path);
// The same of bytes; `source`: where they came from, for messages.
state::Tree read_pytorch_file(std::span<const uint8_t> bytes, const std::string& source);

}  // namespace trainer::checkpoint
