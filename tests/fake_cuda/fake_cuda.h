#pragma once
// An imitation of CUDA without a GPU, for tests. libfake_cuda.so is preloaded, so that all host code of the real libtorch_cuda.so runs:
// - Device memory is host memory that cannot be accessed at its device address.
// - Streams are queues of copies, waits and collectives, which run as late as possible: when the host waits for them or asks whether they
//   are done.
// - Kernels are counted, but compute nothing. If only kernels can have written the source of a copy to the host, the copy gives -1 (8
//   bytes), 1 (1 byte) or twos (other sizes up to 64 bytes; doubles if the size is a multiple of 8, otherwise floats). A larger copy gives
//   the content of the memory.
// - NCCL (nccl.cpp) connects processes, and a collective ends once all ranks have called it.
//
// Environment:
//   FAKE_CUDA_GPUS=N               GPUs of the machine; 1 by default
//   FAKE_CUDA_MAJOR=N              their compute capability is N.0; 9.0 by default
//   FAKE_CUDA_MEMORY=BYTES         memory of each GPU; 80 GiB by default
//   FAKE_CUDA_FOLDER=FOLDER        for the files by which the ranks of a communicator meet; /tmp by default
//   FAKE_CUDA_STATS=FOLDER         each process writes its calls there at its end, as rank_R.json
//   FAKE_CUDA_FAIL=NAME:N:CODE     the N-th call (from 1) of function NAME returns the error CODE; NAME "kernel": the N-th kernel launch
//   FAKE_CUDA_FAIL=NAME:0:CODE     the calls of function NAME while a graph is recorded return the error
//   FAKE_CUDA_FAIL=NAME:N:CODE:sticky  all later calls return the error too, as after the loss of a GPU
//   FAKE_CUDA_FAIL_RANK=R          FAKE_CUDA_FAIL applies only to this rank
//   FAKE_CUDA_SKIP_WAITS=1         the host does not wait for events, and the device is slower, so that tests can check that races are
//   found
//   FAKE_CUDA_EARLY=1              streams other than the default one do their work as early as possible instead
// Problems are written to standard error, in lines that begin with "FAKE CUDA:".

#include <functional>
#include <string>

#define FAKE_CUDA_API extern "C" __attribute__((visibility("default")))

namespace fake_cuda {

// Counts a call. Returns the error that the call has to return, or 0.
int begin_call(const char* function);
void count(const std::string& what);
void report(const std::string& fault);
// Adds work to a stream (cudaStream_t). `run` returns false as long as the work has to wait for another process.
void enqueue(void* stream, std::function<bool()> run);
// Counts the launch of a kernel. Returns an error as begin_call() does.
int launch(const std::string& kernel);
// Makes the host wait for the work of all streams.
void complete_device();
// Copies between device addresses, for functions that are called in a stream.
void copy_on_device(void* to, const void* from, size_t size);
// Returns the call stack for messages: libraries and offsets in them, for addr2line.
std::string callers();
// The rank of this process, or "0" without ranks.
std::string rank();

}  // namespace fake_cuda

// Returns from the function with the requested error, if there is one.
#define FAKE_CUDA_CALL(type) \
  if (const int error = fake_cuda::begin_call(__func__); error != 0) return static_cast<type>(error)
