#pragma once

#include <c10/util/FunctionRef.h>

#include <cstdint>

namespace trainer::nn {

// at::parallel_for. Call this function instead, because at::parallel_for uses several threads only in files that are compiled with
// -fopenmp, and these cannot use the precompiled header.
void parallel_for(int64_t begin, int64_t end, int64_t grain_size, c10::function_ref<void(int64_t begin, int64_t end)> act);

}  // namespace trainer::nn
