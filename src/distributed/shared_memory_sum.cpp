#include "distributed/shared_memory_sum.h"

#include <algorithm>

#include "distributed/shared_memory_group.h"

namespace trainer::distributed {
namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

std::unique_ptr<SharedMemorySum> SharedMemorySum::make(const ProcessGroup& group, int64_t num_bytes, std::chrono::milliseconds timeout) {
  auto memory = SharedMemory::make(group, num_bytes, timeout);
  return memory ? std::unique_ptr<SharedMemorySum>(new SharedMemorySum(std::move(memory))) : nullptr;
}

void SharedMemorySum::begin(const torch::Tensor& tensor) {
  if (memory_->size() == 1) return;
  if (pending_.empty()) memory_->wait_for_all(SharedMemory::kRead, before_);
  const Pending pending{tensor.view(-1), end_};
  end_ += SharedMemory::align(static_cast<int64_t>(tensor.nbytes()));
  TORCH_CHECK(end_ <= memory_->num_bytes(), "no room to sum ", tensor.nbytes(), " bytes");
  for (int rank = 0; rank < memory_->size(); ++rank) {
    if (rank != memory_->rank()) shared(memory_->rank(), rank, pending).copy_(share_of(rank, pending.tensor));
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
  const auto share = share_of(own, pending.tensor);
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
    if (rank != memory_->rank()) share_of(rank, pending.tensor).copy_(shared(rank, rank, pending));
  }
}

torch::Tensor SharedMemorySum::share_of(int rank, const torch::Tensor& tensor) const {
  // As in gloo, which sends segments of at most this size, at least two for each rank.
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
  return share_of(rank, torch::from_blob(memory_->part_of(writer) + pending.offset, tensor.sizes(), tensor.options()));
}

}  // namespace trainer::distributed
