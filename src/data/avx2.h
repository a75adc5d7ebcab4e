#pragma once

// Compiles the function that follows for processors with AVX2 too; the version is selected at run time. Fused multiply-add is not enabled,
// so that both versions have the same results. Not under the thread sanitizer, whose code in the selecting function runs before the
// program is linked.
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
#define TRAINER_FOR_AVX2_TOO [[gnu::target_clones("default", "avx2")]]
#else
#define TRAINER_FOR_AVX2_TOO
#endif
