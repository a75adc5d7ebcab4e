#pragma once
// The safetensors format: the header's length in 8 bytes, a header in JSON, then the tensors' values, row by row, without gaps
// (safetensors/src/tensor.rs).

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "base/file.h"
#include "trainer/state.h"

namespace trainer::checkpoint {

struct Safetensors {
  state::Dict tensors;  // names and tensors only
  std::map<std::string, std::string> metadata;
};

// Tensors must be on the CPU. Values are in the order of Python's safetensors package: widest dtype first, then by name. Throws
// CheckpointError if tensors share memory (which that package refuses too), and for a dtype that the format does not support.
void write_safetensors(const Safetensors& content, Output& output);

// Tensors are in the order of their values and own their memory. `source` states in messages where the bytes came from. Throws
// CheckpointError if they are not a complete safetensors file. Allocates at most max_allocation() (refusal.h).
Safetensors read_safetensors(std::span<const uint8_t> bytes, const std::string& source);

// The format's limit for the header's length in bytes.
inline constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;

}  // namespace trainer::checkpoint
