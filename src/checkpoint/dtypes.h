#pragma once
// The names of the dtypes in the file formats.

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>

namespace trainer::checkpoint {

// A name is nullptr if the format has none for the dtype.
struct Dtype {
  torch::ScalarType type;
  const char* name;         // "float32" for torch.float32
  const char* storage;      // "FloatStorage" for torch.FloatStorage; nullptr: tensors view a storage of bytes and name their dtype
  const char* safetensors;  // "F32"
};

// Return nullptr if files cannot contain such tensors. Results point into one array, whose order is that of tensors in a safetensors file.
const Dtype* find_dtype(torch::ScalarType type);
const Dtype* find_dtype_by_name(std::string_view name);
const Dtype* find_dtype_by_storage(std::string_view storage);
const Dtype* find_dtype_by_safetensors(std::string_view name);

// The bytes of a tensor of this shape, or nullopt for a shape that LibTorch does not support: one with a negative size, or whose bytes,
// computed without the sizes that are 0, overflow int64_t.
inline std::optional<uint64_t> num_bytes_of(std::span<const int64_t> shape, size_t element_size) {
  auto bytes_if_full = static_cast<int64_t>(element_size);
  bool is_empty = false;
  for (const auto size : shape) {
    if (size < 0) return std::nullopt;
    is_empty = is_empty || size == 0;
    if (size > 0 && __builtin_mul_overflow(bytes_if_full, size, &bytes_if_full)) return std::nullopt;
  }
  return is_empty ? 0 : static_cast<uint64_t>(bytes_if_full);
}

}  // namespace trainer::checkpoint
