// NCCL between processes of one machine. A communicator is a file in which each rank writes its calls.

#include <fcntl.h>
#include <fmt/format.h>
#include <nccl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "fake_cuda.h"

namespace {

constexpr int kMaxRanks = 8;
constexpr uint64_t kWindow = 1024;  // number of calls that the file holds

struct Call {
  char what[96];
  char callers[160];
};

struct Shared {
  std::atomic<int> num_joined;
  std::atomic<bool> is_broken;                   // set by calls that do not match
  std::atomic<uint64_t> num_written[kMaxRanks];  // calls whose record is complete, so that the other ranks can compare it with theirs
  std::atomic<uint64_t> num_calls[kMaxRanks];    // calls that have been compared
  Call calls[kWindow][kMaxRanks];
  std::atomic<uint64_t> num_sent[kMaxRanks][kMaxRanks];  // number of messages from the first rank to the second

  bool all_have_called(uint64_t number, int size) const {
    for (int rank = 0; rank < size; ++rank) {
      if (num_calls[rank] < number) return false;
    }
    return true;
  }
};

template <typename Condition>
void wait_until(const Condition& condition) {
  while (!condition()) std::this_thread::sleep_for(std::chrono::microseconds(100));
}

size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
    case ncclFloat8e4m3:
    case ncclFloat8e5m2:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    default:
      return 8;
  }
}

void set_text(char* text, size_t size, const std::string& value) { snprintf(text, size, "%s", value.c_str()); }

}  // namespace

struct ncclComm {
  Shared* shared;
  int size;
  int rank;
  std::atomic<bool> is_aborted = false;
  uint64_t num_received[kMaxRanks] = {};  // from each rank
};

namespace {

// Adds to the stream a collective that ends once all ranks have called it, and then does `finish`.
ncclResult_t call(ncclComm* comm, cudaStream_t stream, const char* name, const std::string& arguments, std::function<void()> finish) {
  if (const int error = fake_cuda::begin_call(name)) return static_cast<ncclResult_t>(error);
  auto& shared = *comm->shared;
  const uint64_t number = shared.num_calls[comm->rank];
  wait_until([&] { return number < kWindow || shared.all_have_called(number - kWindow + 1, comm->size) || comm->is_aborted; });
  auto& mine = shared.calls[number % kWindow][comm->rank];
  set_text(mine.what, sizeof mine.what, std::string(name) + " " + arguments);
  set_text(mine.callers, sizeof mine.callers, fake_cuda::callers());
  shared.num_written[comm->rank] = number + 1;
  for (int rank = 0; rank < comm->size; ++rank) {
    const auto& other = shared.calls[number % kWindow][rank];
    if (shared.num_written[rank] <= number || std::strcmp(other.what, mine.what) == 0) continue;
    shared.is_broken = true;
    fake_cuda::report(fmt::format("collective {} of a communicator: rank {} calls {} (from {}), rank {} calls {} (from {})", number + 1,
                                  comm->rank, mine.what, mine.callers, rank, other.what, other.callers));
  }
  shared.num_calls[comm->rank] = number + 1;
  fake_cuda::enqueue(stream, [comm, number, finish = std::move(finish)] {
    if (comm->is_aborted) return true;
    if (comm->shared->is_broken || !comm->shared->all_have_called(number + 1, comm->size)) return false;
    finish();
    return true;
  });
  return ncclSuccess;
}

thread_local int group_depth = 0;
thread_local std::vector<ncclComm*> aborted_in_group;

// Like NCCL's, waits for all work of the device, which includes the collectives of communicators that are not aborted.
void abort(const std::vector<ncclComm*>& comms) {
  for (auto* comm : comms) comm->is_aborted = true;
  if (!comms.empty()) fake_cuda::complete_device();
}

std::string describe(size_t count, ncclDataType_t type) { return fmt::format("of {} elements of type {}", count, static_cast<int>(type)); }

}  // namespace

FAKE_CUDA_API ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

FAKE_CUDA_API ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  FAKE_CUDA_CALL(ncclResult_t);
  static std::atomic<int> number = 0;
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  set_text(id->internal, sizeof id->internal, fmt::format("/fake_nccl_{}_{}_{}", getpid(), now, ++number));
  return ncclSuccess;
}

FAKE_CUDA_API ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank, ncclConfig_t* /*config*/) {
  FAKE_CUDA_CALL(ncclResult_t);
  const char* folder = getenv("FAKE_CUDA_FOLDER");
  const auto path = std::string(folder != nullptr ? folder : "/tmp") + id.internal;
  const int file = open(path.c_str(), O_RDWR | O_CREAT, 0600);
  if (file < 0 || size > kMaxRanks || ftruncate(file, sizeof(Shared)) != 0) {
    fake_cuda::report(fmt::format("no memory for a communicator of {} ranks: {}", size, strerror(errno)));
    return ncclSystemError;
  }
  auto* shared = static_cast<Shared*>(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
  close(file);
  *comm = new ncclComm{.shared = shared, .size = size, .rank = rank};
  if (++shared->num_joined == size) unlink(path.c_str());
  wait_until([&] { return shared->num_joined == size; });
  return ncclSuccess;
}

FAKE_CUDA_API ncclResult_t ncclCommInitRank(ncclComm_t* comm, int size, ncclUniqueId id, int rank) {
  return ncclCommInitRankConfig(comm, size, id, rank, nullptr);
}

FAKE_CUDA_API ncclResult_t ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}

FAKE_CUDA_API ncclResult_t ncclGroupEnd() {
  if (--group_depth == 0) abort(std::exchange(aborted_in_group, {}));
  return ncclSuccess;
}

FAKE_CUDA_API ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  group_depth == 0 ? abort({comm}) : aborted_in_group.push_back(comm);
  return ncclSuccess;
}

FAKE_CUDA_API ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  *count = comm->size;
  return ncclSuccess;
}

FAKE_CUDA_API ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  *rank = comm->rank;
  return ncclSuccess;
}

FAKE_CUDA_API ncclResult_t ncclCommGetAsyncError(ncclComm_t /*comm*/, ncclResult_t* error) {
  *error = ncclSuccess;
  return ncclSuccess;
}

FAKE_CUDA_API const char* ncclGetErrorString(ncclResult_t error) {
  return error == ncclSuccess ? "no error" : "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
}

FAKE_CUDA_API const char* ncclGetLastError(ncclComm_t /*comm*/) { return "Cuda failure 2 'out of memory'"; }

FAKE_CUDA_API ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t /*op*/,
                                         ncclComm_t comm, cudaStream_t stream) {
  return call(comm, stream, "ncclAllReduce", describe(count, type), [=] {
    if (send != receive) fake_cuda::copy_on_device(receive, send, count * size_of(type));
  });
}

FAKE_CUDA_API ncclResult_t ncclAllGather(const void* send, void* receive, size_t count, ncclDataType_t type, ncclComm_t comm,
                                         cudaStream_t stream) {
  return call(comm, stream, "ncclAllGather", describe(count, type), [=] {
    const size_t size = count * size_of(type);
    for (int rank = 0; rank < comm->size; ++rank) fake_cuda::copy_on_device(static_cast<char*>(receive) + rank * size, send, size);
  });
}

FAKE_CUDA_API ncclResult_t ncclBroadcast(const void* send, void* receive, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                                         cudaStream_t stream) {
  return call(comm, stream, "ncclBroadcast", fmt::format("{} from rank {}", describe(count, type), root), [=] {
    if (send != receive) fake_cuda::copy_on_device(receive, send, count * size_of(type));
  });
}

FAKE_CUDA_API ncclResult_t ncclBcast(void* buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream) {
  return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}

// A message is sent at once, and received in the order of sending.
FAKE_CUDA_API ncclResult_t ncclSend(const void* /*send*/, size_t /*count*/, ncclDataType_t /*type*/, int peer, ncclComm_t comm,
                                    cudaStream_t stream) {
  FAKE_CUDA_CALL(ncclResult_t);
  fake_cuda::enqueue(stream, [=] {
    ++comm->shared->num_sent[comm->rank][peer];
    return true;
  });
  return ncclSuccess;
}

FAKE_CUDA_API ncclResult_t ncclRecv(void* /*receive*/, size_t /*count*/, ncclDataType_t /*type*/, int peer, ncclComm_t comm,
                                    cudaStream_t stream) {
  FAKE_CUDA_CALL(ncclResult_t);
  const uint64_t number = ++comm->num_received[peer];
  fake_cuda::enqueue(stream, [=] { return comm->is_aborted || comm->shared->num_sent[peer][comm->rank] >= number; });
  return ncclSuccess;
}
