#pragma once

// Before a function: compile it also for processors with AVX2, which choose at run time. Without fused multiply-add, so that the results
// are the same.
#ifdef __x86_64__
#define TRAINER_FOR_AVX2_TOO [[gnu::target_clones("default", "avx2")]]
#else
#define TRAINER_FOR_AVX2_TOO
#endif
