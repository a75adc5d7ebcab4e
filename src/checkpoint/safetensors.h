#pragma once
// The safetensors format: the header's length in 8 bytes, a header in JSON, then the tensors' values, row by row, without gaps
// (safetensors/src/tensor.rs).

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>

#include "checkpoint/output.h"
#include "state/tree.h"

namespace trainer::checkpoint {

struct Safetensors {
  state::Dict tensors;  // names and tensors only
  std::map<std::string, std::string> metadata;
};

// Tensors are on the CPU, with any strides; those that are not contiguous are copied, one at a time. The order of the values is that of
// the Python package: widest dtype first, then by name. Throws CheckpointError for tensors that share memory, as that package does, and
// for a dtype that the format does not know.
void write_safetensors(const Safetensors& content, Output& output);
// The same into a file, which is complete or absent (AtomicFile).
void save_safetensors(const std::filesystem::path& path, const Safetensors& content);

// Tensors own their memory, in the order of the header. Throws CheckpointError, which names the file, for all that is no whole
// safetensors file. Allocates at most what budget.h says.
Safetensors read_safetensors(const std::filesystem::path& path);
// The same of bytes; `source`: where they came from, for messages.
Safetensors read_safetensors(std::span<const uint8_t> bytes, const std::string& source);

}  // namespace trainer::checkpoint
