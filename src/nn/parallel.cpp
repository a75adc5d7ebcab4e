#include "nn/parallel.h"

#include <ATen/Parallel.h>

#ifndef INTRA_OP_PARALLEL
#error "at::parallel_for uses only the calling thread unless this file is compiled with -fopenmp"
#endif

namespace trainer::nn {

void parallel_for(int64_t begin, int64_t end, int64_t grain_size, c10::function_ref<void(int64_t begin, int64_t end)> act) {
  at::parallel_for(begin, end, grain_size, act);
}

}  // namespace trainer::nn
