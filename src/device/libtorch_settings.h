#pragma once
// Settings of LibTorch and of the libraries below it: environment variables, and its memory allocators.

#include <string>

namespace trainer::device {

// Sets the environment variables that configure LibTorch, its profiler, cuBLAS and NCCL for this program; those that the user has set keep
// their values. To be called before the first thread starts, because no thread may read the environment while it changes.
void set_library_defaults();

// Settings of the GPU's memory allocator, in the format of PYTORCH_CUDA_ALLOC_CONF: "max_split_size_mb:128,expandable_segments:True".

// What is wrong with the settings; empty: nothing. Needs no GPU. Not while another thread uses the allocator.
std::string refusal_of_allocator(const std::string& settings);

// Throws UsageError. Once the CUDA module is open, before memory is allocated on a GPU.
void apply_allocator(const std::string& settings);

// While it exists and the batch is smaller than the others, cuDNN does not search for its fastest algorithms (runtime.cudnn_benchmark):
// that takes longer than a batch of a size that comes once.
class NoSearchForSmallBatch {
 public:
  explicit NoSearchForSmallBatch(bool is_small);
  ~NoSearchForSmallBatch();
  NoSearchForSmallBatch(const NoSearchForSmallBatch&) = delete;
  NoSearchForSmallBatch& operator=(const NoSearchForSmallBatch&) = delete;

 private:
  const bool searches_otherwise_;
};

// Lets LibTorch allocate the memory of CPU tensors with malloc from now on, aligned to 64 bytes. LibTorch asks the C library for
// aligned memory, for which glibc 2.36 needs a larger gap than the same request has left when it was freed: the heap then grows to
// two or three times what is in use. Asks the system to use huge pages for the heap. Must be called before the first tensor is created. The
// error of a failed allocation is LibTorch's.
void allocate_tensors_by_malloc();

}  // namespace trainer::device
