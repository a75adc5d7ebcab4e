#pragma once
// The names of the dtypes in the file formats.

#include <torch/types.h>

#include <string_view>

namespace trainer::checkpoint {

// A name is nullptr if the format has none for the dtype.
struct Dtype {
  torch::ScalarType type;
  const char* name;         // torch.float32
  const char* storage;      // torch.FloatStorage; without one, tensors view a storage of bytes and name their dtype
  const char* safetensors;  // F32
};

// Return nullptr if files cannot hold such tensors. Results point into one array, in the order of tensors in a safetensors file.
const Dtype* find_dtype(torch::ScalarType type);
const Dtype* find_dtype_by_name(std::string_view name);
const Dtype* find_dtype_by_storage(std::string_view storage);
const Dtype* find_dtype_by_safetensors(std::string_view name);

}  // namespace trainer::checkpoint
