#pragma once
// PyTorch's file format since 1.6, a zip archive: data.pkl, a pickle program that makes the tree, and one entry for each storage
// (torch/serialization.py, caffe2/serialize/inline_container.cc). Files to read are not trusted: no code in them is executed, and offsets,
// sizes and checksums are verified.

#include <cstdint>
#include <span>
#include <string>

#include "base/file.h"
#include "trainer/state.h"

namespace trainer::checkpoint {

// Tensors must be on the CPU. As in torch.save, each storage is written whole and only once; all tensors that view it must have the same
// dtype. Equal trees result in equal bytes. No tensor is copied.
void write_pytorch_file(const state::Tree& tree, Output& output);

// The tree's tensors are on the CPU, own their memory, share memory where the file's tensors do, and do not require gradients. Tuples and
// torch.Size become lists, an OrderedDict becomes a dictionary, and dtypes and devices become text ("torch.float16", "cuda"). Throws
// CheckpointError if the bytes are not such an archive or contains anything but plain data. Allocates at most
// max_allocation() (refusal.h). `source` states in messages where the bytes came from.
state::Tree read_pytorch_file(std::span<const uint8_t> bytes, const std::string& source);

}  // namespace trainer::checkpoint
