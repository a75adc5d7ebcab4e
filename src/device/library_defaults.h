#pragma once

namespace trainer::device {

// Sets the environment variables that configure LibTorch, its profiler, cuBLAS and NCCL for this program; those that the user has set keep
// their values. To be called before the first thread starts, because no thread may read the environment while it changes.
void set_library_defaults();

}  // namespace trainer::device
