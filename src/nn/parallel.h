#pragma once

#include <c10/util/FunctionRef.h>

#include <cstdint>

namespace trainer::nn {

// at::parallel_for, which uses only the calling thread where it is compiled without -fopenmp: that flag excludes the precompiled header.
void parallel_for(int64_t begin, int64_t end, int64_t grain_size, c10::function_ref<void(int64_t begin, int64_t end)> act);

}  // namespace trainer::nn
