#include "cuda/nccl.h"

#include <c10/cuda/CUDAFunctions.h>

#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

namespace trainer::cuda {

c10::intrusive_ptr<c10d::Backend> make_nccl_backend(c10::intrusive_ptr<c10d::Store> store, int rank, int size, c10::Device device,
                                                    std::chrono::milliseconds timeout) {
  c10::cuda::set_device(device.index());
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = timeout;
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(std::move(store), rank, size, std::move(options));
}

}  // namespace trainer::cuda
