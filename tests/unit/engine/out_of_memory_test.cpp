#include <gtest/gtest.h>

#include "train/engine/failure_message.h"

namespace trainer::engine {
namespace {

TEST(OutOfMemory, IsRecognisedFromEachLibrary) {
  const auto general = [](const char* message) { return is_out_of_memory(c10::Error({}, message)); };
  // Messages of LibTorch 2.11, and of the headers of CUDA's libraries.
  for (const char* message :
       {"[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes.",
        "CUDA error: out of memory", "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "NCCL error in: ncclUnhandledCudaError: Last error: Cuda failure 2 'out of memory'"}) {
    EXPECT_TRUE(general(message)) << message;
  }
  EXPECT_TRUE(is_out_of_memory(std::bad_alloc()));
  EXPECT_FALSE(general("CUDA error: an illegal memory access was encountered"));
  EXPECT_FALSE(is_out_of_memory(std::runtime_error("out of memory, says a library that means something else")));
}

}  // namespace
}  // namespace trainer::engine
