#pragma once
// Settings of LibTorch and the libraries that it uses: environment variables, memory allocators, and cuDNN's search for algorithms.

#include <string>

namespace trainer::device {

// Sets the environment variables that configure LibTorch, its profiler, cuBLAS and NCCL for this program; variables that the user has set
// keep their values. Must be called before the first thread starts, because no thread may read the environment while it changes.
void set_library_defaults();
// Those of them that training on GPUs needs.
void set_gpu_defaults();

// Settings of the GPU's memory allocator, in the format of PYTORCH_CUDA_ALLOC_CONF: "max_split_size_mb:128,expandable_segments:True".

// Returns what is wrong with the settings, or an empty string. Does not need a GPU. Must not be called while another thread uses the
// allocator.
std::string refusal_of_allocator(const std::string& settings);

// Throws UsageError. Must be called after the CUDA module was opened and before memory is allocated on a GPU.
void apply_allocator(const std::string& settings);

// While an object with `is_small` exists, cuDNN does not search for its fastest algorithms (runtime.cudnn_benchmark). Smaller batches
// are rare, so a search for their size takes longer than it saves.
class NoSearchForSmallBatch {
 public:
  explicit NoSearchForSmallBatch(bool is_small);
  ~NoSearchForSmallBatch();
  NoSearchForSmallBatch(const NoSearchForSmallBatch&) = delete;
  NoSearchForSmallBatch& operator=(const NoSearchForSmallBatch&) = delete;

 private:
  const bool searches_otherwise_;
};

// Makes LibTorch allocate the memory of CPU tensors with malloc, aligned to 64 bytes, and requests huge pages for the heap. By default,
// LibTorch requests aligned memory; for such a request, glibc 2.36 cannot reuse a freed block of the same size, so the heap grows to two or
// three times the memory in use. Must be called before the first tensor is created. A failed allocation throws LibTorch's error.
void allocate_tensors_by_malloc();

}  // namespace trainer::device
