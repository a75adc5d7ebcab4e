#pragma once

#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace trainer::cuda {

// See device/cuda_module.h.
c10::intrusive_ptr<c10d::Backend> make_nccl_backend(c10::intrusive_ptr<c10d::Store> store, int rank, int size, c10::Device device,
                                                    std::chrono::milliseconds timeout);

}  // namespace trainer::cuda
