#pragma once
// What the formats call a dtype.

#include <torch/types.h>

#include <string_view>

namespace trainer::checkpoint {

// nullptr: there is no such name.
struct Dtype {
  torch::ScalarType type;
  const char* name;         // torch.float32
  const char* storage;      // torch.FloatStorage; those without one are stored as bytes and name their dtype
  const char* safetensors;  // F32
};

// nullptr where files do not hold such tensors. What comes first in memory comes first in a safetensors file.
const Dtype* find_dtype(torch::ScalarType type);
const Dtype* find_dtype_by_name(std::string_view name);
const Dtype* find_dtype_by_storage(std::string_view storage);
const Dtype* find_dtype_by_safetensors(std::string_view name);

}  // namespace trainer::checkpoint
