#include "checkpoint/dtypes.h"

#include <algorithm>
#include <array>

namespace trainer::checkpoint {
namespace {

constexpr std::array kDtypes{
    Dtype{torch::kComplexDouble, "complex128", "ComplexDoubleStorage", nullptr},
    Dtype{torch::kUInt64, "uint64", nullptr, "U64"},
    Dtype{torch::kInt64, "int64", "LongStorage", "I64"},
    Dtype{torch::kFloat64, "float64", "DoubleStorage", "F64"},
    Dtype{torch::kComplexFloat, "complex64", "ComplexFloatStorage", "C64"},
    Dtype{torch::kFloat32, "float32", "FloatStorage", "F32"},
    Dtype{torch::kUInt32, "uint32", nullptr, "U32"},
    Dtype{torch::kInt32, "int32", "IntStorage", "I32"},
    Dtype{torch::kBFloat16, "bfloat16", "BFloat16Storage", "BF16"},
    Dtype{torch::kFloat16, "float16", "HalfStorage", "F16"},
    Dtype{torch::kUInt16, "uint16", nullptr, "U16"},
    Dtype{torch::kInt16, "int16", "ShortStorage", "I16"},
    Dtype{torch::kFloat8_e4m3fn, "float8_e4m3fn", nullptr, "F8_E4M3"},
    Dtype{torch::kFloat8_e5m2, "float8_e5m2", nullptr, "F8_E5M2"},
    Dtype{torch::kInt8, "int8", "CharStorage", "I8"},
    Dtype{torch::kUInt8, "uint8", "ByteStorage", "U8"},
    Dtype{torch::kBool, "bool", "BoolStorage", "BOOL"},
};

const Dtype* find_by(const char* Dtype::*member, std::string_view name) {
  const auto* found = std::ranges::find_if(kDtypes, [&](const Dtype& dtype) { return dtype.*member != nullptr && name == dtype.*member; });
  return found == kDtypes.end() ? nullptr : found;
}

}  // namespace

const Dtype* find_dtype(torch::ScalarType type) {
  const auto* found = std::ranges::find(kDtypes, type, &Dtype::type);
  return found == kDtypes.end() ? nullptr : found;
}

const Dtype* find_dtype_by_name(std::string_view name) { return find_by(&Dtype::name, name); }
const Dtype* find_dtype_by_storage(std::string_view storage) { return find_by(&Dtype::storage, storage); }
const Dtype* find_dtype_by_safetensors(std::string_view name) { return find_by(&Dtype::safetensors, name); }

}  // namespace trainer::checkpoint
