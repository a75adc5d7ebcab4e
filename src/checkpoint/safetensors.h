#pragma once
// The safetensors format: the header's length in 8 bytes, a header in JSON, then the tensors' values, row by row, without gaps
// (safetensors/src/tensor.rs).

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "checkpoint/dtypes.h"
#include "checkpoint/refusal.h"
#include "trainer/state.h"

namespace trainer::checkpoint {

struct Safetensors {
  state::Dict tensors;  // names and tensors only
  std::map<std::string, std::string> metadata;
};

// Tensors must be on the CPU; tensors that are not contiguous are copied, one at a time. Values are written in the order of Python's
// safetensors package: widest dtype first, then by name. Throws CheckpointError if tensors share memory (which that package refuses too),
// and for a dtype that the format does not support.
void write_safetensors(const Safetensors& content, Output& output);

// Tensors are in the order of the header and own their memory. Throws CheckpointError, which names the file, if the file is not a complete
// safetensors file. Allocates at most max_allocation() (refusal.h).
Safetensors read_safetensors(const std::filesystem::path& path);
// Reads the same from memory; `source` states in messages where the bytes came from.
Safetensors read_safetensors(std::span<const uint8_t> bytes, const std::string& source);

// The header of a safetensors file.

// The format's limit for the header's length in bytes, which limits the time for parsing it.
inline constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;

struct SafetensorsHeader {
  struct Tensor {
    std::string name;
    const Dtype* dtype = nullptr;
    std::vector<int64_t> shape;
    // Byte offsets from the end of the header.
    uint64_t begin = 0;
    uint64_t end = 0;
  };

  std::vector<Tensor> tensors;
  std::map<std::string, std::string> metadata;
};

// `json` is the header, `num_bytes` the number of bytes after it. Throws CheckpointError unless the tensors have unique names, fill these
// bytes without gaps or overlaps, and each has the length that follows from its shape and dtype.
SafetensorsHeader parse_safetensors_header(std::string_view json, uint64_t num_bytes, const std::string& source, Budget& budget);

}  // namespace trainer::checkpoint
