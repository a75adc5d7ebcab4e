#pragma once
// A CUDA without a GPU, for tests. libfake_cuda.so is preloaded in front of the real libtorch_cuda.so, whose whole host code then runs:
// - Device memory is real memory that the host cannot touch at its device address.
// - Streams are queues of copies, waits and collectives, which run as late as the host allows: when it waits for them.
// - Kernels are counted, and compute nothing. A read of at most 64 bytes that only kernels can have written gives -1 (8 bytes), 1 (1 byte)
// or
//   else twos, as doubles if the size is a multiple of 8, otherwise as floats. A longer read gives what the memory holds.
// - NCCL (nccl.cpp) connects processes, and a collective ends once all ranks have called it.
//
// Environment:
//   FAKE_CUDA_GPUS=N               GPUs of the machine; 1 by default
//   FAKE_CUDA_MEMORY=BYTES         of each GPU; 80 GiB by default
//   FAKE_CUDA_FOLDER=FOLDER        for the files by which the ranks of a communicator meet; /tmp by default
//   FAKE_CUDA_STATS=FOLDER         where each process writes what it has called, as rank_R.json, at its end
//   FAKE_CUDA_FAIL=NAME:N:CODE     the N-th call (from 1) of function NAME returns the error CODE; NAME "kernel": of the launches
//   FAKE_CUDA_FAIL=NAME:N:CODE:sticky  and so do all calls after it, as those of a lost GPU do
//   FAKE_CUDA_FAIL_RANK=R          only in this rank
//   FAKE_CUDA_SKIP_WAITS=1         the host does not wait for events, and the device is later, so that tests see that races are found
// Problems are written to standard error, in lines that begin with "FAKE CUDA:".

#include <functional>
#include <string>

#define FAKE_CUDA_API extern "C" __attribute__((visibility("default")))

namespace fake_cuda {

// Counts a call; returns the error that it has to return, or 0.
int begin_call(const char* function);
void count(const std::string& what);
void report(const std::string& fault);
// Adds work to a stream (cudaStream_t). `run` returns false as long as it has to wait for another process.
void enqueue(void* stream, std::function<bool()> run);
// Counts the launch of a kernel. Returns the error as begin_call().
int launch(const std::string& kernel);
// A copy between device addresses, when it is called in a stream.
void copy_on_device(void* to, const void* from, size_t size);
// The call stack for messages: libraries and offsets in them, for addr2line.
std::string callers();
// The rank of this process, or "0" without ranks.
std::string rank();

}  // namespace fake_cuda

// Ends the function with the requested error.
#define FAKE_CUDA_CALL(type) \
  if (const int error = fake_cuda::begin_call(__func__); error != 0) return static_cast<type>(error)
