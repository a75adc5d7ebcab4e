#pragma once
// The header of a safetensors file.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/budget.h"
#include "checkpoint/dtypes.h"

namespace trainer::checkpoint {

// The format's limit for the header's length in bytes, which keeps readers from parsing for minutes.
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
// bytes without gap or overlap, and each has the length that follows from its shape and dtype.
SafetensorsHeader parse_safetensors_header(std::string_view json, uint64_t num_bytes, const std::string& source, Budget& budget);

}  // namespace trainer::checkpoint
