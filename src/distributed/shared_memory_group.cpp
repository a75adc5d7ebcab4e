#include "distributed/shared_memory_group.h"

namespace trainer::distributed {

void add_in_order(torch::Tensor total, int size, const std::function<torch::Tensor(int index)>& part) {
  if (size > 1) at::add_out(total, part(0), part(1));
  for (int i = 2; i < size; ++i) total.add_(part(i));
}

std::unique_ptr<SharedMemoryGroup> SharedMemoryGroup::make(const ProcessGroup& group, int64_t num_bytes,
                                                           std::chrono::milliseconds timeout) {
  auto memory = SharedMemory::make(group, num_bytes, timeout);
  return memory ? std::unique_ptr<SharedMemoryGroup>(new SharedMemoryGroup(std::move(memory))) : nullptr;
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

}  // namespace trainer::distributed
