#pragma once

namespace trainer::device {

// Lets LibTorch allocate the memory of CPU tensors with malloc from now on, aligned to 64 bytes. LibTorch asks the C library for
// aligned memory, for which glibc 2.36 needs a larger gap than the same request has left when it was freed: the heap then grows to
// two or three times what is in use. Asks the system to use huge pages for the heap. Must be called before the first tensor is created. The
// error of a failed allocation is LibTorch's.
void allocate_tensors_by_malloc();

}  // namespace trainer::device
