#include "distributed/shared_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <filesystem>
#include <random>
#include <string>

#include "base/file.h"
#include "trainer/distributed.h"

namespace trainer::distributed {

void add_in_order(torch::Tensor total, int size, const std::function<torch::Tensor(int index)>& part) {
  if (size > 1) at::add_out(total, part(0), part(1));
  for (int i = 2; i < size; ++i) total.add_(part(i));
}

torch::Tensor SharedMemoryGroup::slot(int rank, int64_t offset, const torch::Tensor& like) const {
  return torch::from_blob(memory_->part_of(rank) + offset, like.sizes(), like.options());
}

bool SharedMemoryGroup::has_room_for(std::span<const torch::Tensor> tensors) const {
  int64_t num_bytes = 0;
  for (const auto& tensor : tensors) num_bytes += SharedMemory::align(static_cast<int64_t>(tensor.nbytes()));
  return num_bytes <= memory_->num_bytes();
}

void SharedMemoryGroup::sum(std::span<const torch::Tensor> tensors) {
  write(tensors);
  int64_t offset = 0;
  for (const auto& tensor : tensors) {
    add_in_order(tensor, memory_->size(), [&](int rank) { return slot(rank, offset, tensor); });
    offset += SharedMemory::align(static_cast<int64_t>(tensor.nbytes()));
  }
  end_reading();
}

void SharedMemoryGroup::all_gather(const torch::Tensor& tensor, const torch::Tensor& all) {
  write({&tensor, 1});
  for (int rank = 0; rank < memory_->size(); ++rank) all[rank].copy_(slot(rank, 0, tensor));
  end_reading();
}

void SharedMemoryGroup::write(std::span<const torch::Tensor> tensors) {
  memory_->wait_for_all(SharedMemory::kRead, round_);
  ++round_;
  int64_t offset = 0;
  for (const auto& tensor : tensors) {
    slot(memory_->rank(), offset, tensor).copy_(tensor);
    offset += SharedMemory::align(static_cast<int64_t>(tensor.nbytes()));
  }
  memory_->set(SharedMemory::kWritten, round_);
  memory_->wait_for_all(SharedMemory::kWritten, round_);
}

namespace {

// Number of spins before the first system call (on x86 tens of microseconds), in case the other rank is only slightly late.
constexpr int kSpins = 1000;
// The interval at which a waiting rank checks whether the other rank is still alive.
constexpr timespec kLivenessInterval{.tv_sec = 0, .tv_nsec = 50'000'000};

// Calls futex directly, because std::atomic's wait() works only between threads of one process.
void sleep_while_equal(const std::atomic<uint32_t>& value, uint32_t expected) {
  syscall(SYS_futex, &value, FUTEX_WAIT, expected, &kLivenessInterval, nullptr, 0);
}

void set_and_wake(std::atomic<uint32_t>& value, uint32_t now) {
  value.store(now, std::memory_order_release);
  syscall(SYS_futex, &value, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

std::string random_name() {
  std::random_device random;
  return fmt::format("trainer-{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

}  // namespace

// An anonymous file in memory: the kernel frees it when the last process that has it open ends, even after a crash. Each rank holds a
// lock on the byte whose offset is its rank, until it leaves or ends.
class SharedMemory::Mapping {
 public:
  // Creates the file; fd() is -1 on failure.
  Mapping(const std::string& name, int64_t num_bytes) : num_bytes_(static_cast<size_t>(num_bytes)) {
    file_ = Descriptor(memfd_create(name.c_str(), MFD_CLOEXEC));
    // Allocate the memory now, because a later write would cause a bus error if no memory were left.
    if (fd() >= 0 && posix_fallocate(fd(), 0, num_bytes) != 0) file_.close();
    map();
  }
  // Opens the file that another process on this host has created.
  Mapping(const std::string& path, const std::string& name, int64_t num_bytes) : num_bytes_(static_cast<size_t>(num_bytes)) {
    // On another host, the same path may lead to an unrelated file of another process.
    std::error_code error;
    if (std::filesystem::read_symlink(path, error) == fmt::format("/memfd:{} (deleted)", name))
      file_ = Descriptor(open(path.c_str(), O_RDWR | O_CLOEXEC));
    map();
  }
  ~Mapping() {
    if (data_ != nullptr) munmap(data_, num_bytes_);
  }

  int fd() const { return file_.number(); }
  char* data() const { return static_cast<char*>(data_); }

  bool lock(int rank) const {
    auto request = lock_of(rank);
    return data_ != nullptr && fcntl(fd(), F_OFD_SETLK, &request) == 0;
  }
  void unlock(int rank) const {
    auto request = lock_of(rank, F_UNLCK);
    fcntl(fd(), F_OFD_SETLK, &request);
  }
  // Whether another rank holds the lock.
  bool is_locked(int rank) const {
    auto request = lock_of(rank);
    return fcntl(fd(), F_OFD_GETLK, &request) == 0 && request.l_type != F_UNLCK;
  }

 private:
  static flock lock_of(int rank, int16_t type = F_WRLCK) {
    return {.l_type = type, .l_whence = SEEK_SET, .l_start = rank, .l_len = 1, .l_pid = 0};
  }
  void map() {
    if (fd() < 0) return;
    auto* data = mmap(nullptr, num_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd(), 0);
    if (data != MAP_FAILED) data_ = data;
  }

  size_t num_bytes_;
  Descriptor file_;
  void* data_ = nullptr;
};

// One rank's counters, at the beginning of the memory. Each is on a separate cache line.
struct SharedMemory::Counters {
  struct alignas(kAlignment) Line {
    std::atomic<uint32_t> value;
  };
  Line lines[kNumCounters];
};

std::unique_ptr<SharedMemory> SharedMemory::make(const ProcessGroup& group, int64_t num_bytes, std::chrono::milliseconds timeout) {
  num_bytes = align(num_bytes);
  const int64_t size = group.size() * (num_bytes + static_cast<int64_t>(sizeof(Counters)));
  const bool is_first = group.rank() == 0;
  std::unique_ptr<Mapping> mapping;
  std::string name, path;
  if (is_first) {
    name = random_name();
    mapping = std::make_unique<Mapping>(name, size);
    path = fmt::format("/proc/{}/fd/{}", getpid(), mapping->fd());
  }
  name = group.broadcast_bytes(name);
  path = group.broadcast_bytes(path);
  if (!is_first) mapping = std::make_unique<Mapping>(path, name, size);
  const auto all_have_it = torch::tensor({mapping->lock(group.rank()) ? 1 : 0});
  group.all_reduce(all_have_it, c10d::ReduceOp::MIN);
  if (all_have_it.item<int>() == 0) return nullptr;
  return std::unique_ptr<SharedMemory>(new SharedMemory(std::move(mapping), group.rank(), group.size(), num_bytes, timeout));
}

SharedMemory::SharedMemory(std::unique_ptr<Mapping> mapping, int rank, int size, int64_t num_bytes, std::chrono::milliseconds timeout)
    : mapping_(std::move(mapping)), rank_(rank), size_(size), num_bytes_(num_bytes), timeout_(timeout) {}

SharedMemory::~SharedMemory() = default;

char* SharedMemory::part_of(int rank) const {
  return mapping_->data() + size_ * static_cast<int64_t>(sizeof(Counters)) + rank * num_bytes_;
}

std::atomic<uint32_t>& SharedMemory::counter_of(int rank, Counter counter) const {
  return reinterpret_cast<Counters*>(mapping_->data())[rank].lines[counter].value;
}

void SharedMemory::set(Counter counter, uint32_t value) { set_and_wake(counter_of(rank_, counter), value); }

bool SharedMemory::has_reached(int rank, Counter counter, uint32_t value) const {
  return static_cast<int32_t>(counter_of(rank, counter).load(std::memory_order_acquire) - value) >= 0;
}

bool SharedMemory::have_all_reached(Counter counter, uint32_t value) const {
  for (int rank = 0; rank < size_; ++rank) {
    if (!has_reached(rank, counter, value)) return false;
  }
  return true;
}

void SharedMemory::wait_for_all(Counter counter, uint32_t value) const {
  for (int rank = 0; rank < size_; ++rank) wait_for(rank, counter, value);
}

void SharedMemory::wait_for(int rank, Counter counter, uint32_t value) const {
  for (int i = 0; i < kSpins; ++i) {
    if (has_reached(rank, counter, value)) return;
    pause();
  }
  const auto deadline = std::chrono::steady_clock::now() + timeout_;
  while (!has_reached(rank, counter, value)) {
    if (has_left_) throw std::runtime_error("the group was aborted on this rank");
    // The rank may have advanced its counter just before it left.
    if (!mapping_->is_locked(rank) && !has_reached(rank, counter, value))
      throw std::runtime_error(fmt::format("rank {} has left the group", rank));
    if (std::chrono::steady_clock::now() > deadline) {
      throw std::runtime_error(fmt::format("rank {} did not take part in the collective within {} s", rank,
                                           std::chrono::duration_cast<std::chrono::seconds>(timeout_).count()));
    }
    const auto& awaited = counter_of(rank, counter);
    const auto seen = awaited.load(std::memory_order_relaxed);
    if (static_cast<int32_t>(seen - value) < 0) sleep_while_equal(awaited, seen);
  }
}

void SharedMemory::leave() {
  has_left_ = true;
  mapping_->unlock(rank_);
}

namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

void SharedMemorySum::begin(const torch::Tensor& tensor) {
  if (memory_->size() == 1) return;
  if (pending_.empty()) memory_->wait_for_all(SharedMemory::kRead, before_);
  const Pending pending{tensor.view(-1), end_};
  end_ += SharedMemory::align(static_cast<int64_t>(tensor.nbytes()));
  TORCH_CHECK(end_ <= memory_->num_bytes(), "no room to sum ", tensor.nbytes(), " bytes");
  for (int rank = 0; rank < memory_->size(); ++rank) {
    if (rank != memory_->rank()) shared(memory_->rank(), rank, pending).copy_(shard_for(rank, pending.tensor));
  }
  pending_.push_back(pending);
  memory_->set(SharedMemory::kWritten, before_ + static_cast<uint32_t>(pending_.size()));
  advance(/*waits=*/false);
}

void SharedMemorySum::finish() {
  advance(/*waits=*/true);
  before_ += static_cast<uint32_t>(pending_.size());
  pending_.clear();
  num_summed_ = num_read_ = 0;
  end_ = 0;
}

void SharedMemorySum::advance(bool waits) {
  while (num_summed_ < pending_.size() && is_ready(SharedMemory::kWritten, num_summed_, waits)) {
    add_own_share(pending_[num_summed_++]);
    memory_->set(SharedMemory::kSummed, before_ + static_cast<uint32_t>(num_summed_));
  }
  while (num_read_ < num_summed_ && is_ready(SharedMemory::kSummed, num_read_, waits)) {
    read_other_shares(pending_[num_read_++]);
    memory_->set(SharedMemory::kRead, before_ + static_cast<uint32_t>(num_read_));
  }
}

bool SharedMemorySum::is_ready(SharedMemory::Counter counter, size_t index, bool waits) const {
  const uint32_t value = before_ + static_cast<uint32_t>(index) + 1;
  if (waits) memory_->wait_for_all(counter, value);
  return waits || memory_->have_all_reached(counter, value);
}

void SharedMemorySum::add_own_share(const Pending& pending) {
  const int own = memory_->rank();
  const int size = memory_->size();
  const auto share = shard_for(own, pending.tensor);
  const auto sum = shared(own, own, pending);
  const auto summand = [&](int i) {
    const int rank = (own - 1 - i + size) % size;
    return rank == own ? share : shared(rank, own, pending);
  };
  add_in_order(sum, size, summand);
  share.copy_(sum);
}

void SharedMemorySum::read_other_shares(const Pending& pending) {
  for (int rank = 0; rank < memory_->size(); ++rank) {
    if (rank != memory_->rank()) shard_for(rank, pending.tensor).copy_(shared(rank, rank, pending));
  }
}

torch::Tensor SharedMemorySum::shard_for(int rank, const torch::Tensor& tensor) const {
  // The tensor is divided as in gloo, which sends at least two segments per rank, each of at most this size.
  constexpr int64_t kLargestSegment = 1024 * 1024;
  const int64_t size = memory_->size();
  const auto num_bytes = static_cast<int64_t>(tensor.nbytes());
  const int64_t per_rank = ceil_div(std::max(ceil_div(num_bytes, kLargestSegment), 2 * size), size);
  const int64_t segment = ceil_div(ceil_div(num_bytes, per_rank * size), static_cast<int64_t>(tensor.element_size()));
  const auto begin_of = [&](int64_t r) { return std::min(tensor.numel(), r * per_rank * segment); };
  return tensor.slice(0, begin_of(rank), begin_of(rank + 1));
}

torch::Tensor SharedMemorySum::shared(int writer, int rank, const Pending& pending) const {
  const auto& tensor = pending.tensor;
  return shard_for(rank, torch::from_blob(memory_->part_of(writer) + pending.offset, tensor.sizes(), tensor.options()));
}

}  // namespace trainer::distributed
