#include "train/engine/shared_batches.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "trainer/error.h"

namespace trainer::engine {
namespace {

using Clock = std::chrono::steady_clock;

// The alignment of all parts of a message: that of LibTorch's own allocations, which kernels may rely on.
constexpr int64_t kAlignment = 64;

int64_t aligned(int64_t num_bytes) { return (num_bytes + kAlignment - 1) / kAlignment * kAlignment; }

int64_t aligned_size(const torch::Tensor& tensor) { return aligned(static_cast<int64_t>(tensor.nbytes())); }

// A tensor like `format` in the memory of `bytes` from `offset` on.
torch::Tensor view_of(const torch::Tensor& bytes, int64_t offset, const torch::Tensor& format) {
  return bytes.narrow(0, offset, static_cast<int64_t>(format.nbytes()))
      .view(format.scalar_type())
      .as_strided(format.sizes(), format.strides());
}

}  // namespace

SharedBatches::SharedBatches(std::shared_ptr<distributed::ProcessGroup> group, Distribution distribution, const data::BatchTensors& format,
                             const data::LoaderOptions& options, std::unique_ptr<data::DataLoader> loader)
    : group_(std::move(group)), distribution_(distribution), loader_(std::move(loader)), batch_size_(format.images.size(0)) {
  // One buffer is in use and one is being received; the device may still copy from a third one.
  const int num_buffers = options.make_copy_event ? 3 : 2;
  for (int i = 0; i < num_buffers; ++i) {
    buffers_.push_back(make_buffer(scatters() ? 1 : group_->size(), format, options.pin_memory));
    if (options.make_copy_event) buffers_.back().copied = options.make_copy_event();
  }
  if (loader_ != nullptr && scatters()) outgoing_ = make_buffer(group_->size(), format, /*pin_memory=*/false);
}

SharedBatches::Buffer SharedBatches::make_buffer(int num_messages, const data::BatchTensors& format, bool pin_memory) {
  const int64_t positions_at = aligned(sizeof(Header));
  const int64_t targets_at = positions_at + aligned(format.images.size(0) * static_cast<int64_t>(sizeof(int64_t)));
  const int64_t images_at = targets_at + aligned_size(format.targets);
  const int64_t num_bytes = images_at + aligned_size(format.images);
  // Initialised, because whole messages are sent even if a batch does not fill them.
  Buffer buffer{.bytes = torch::zeros({num_messages, num_bytes}, torch::TensorOptions(torch::kUInt8).pinned_memory(pin_memory))};
  for (const auto& bytes : buffer.bytes.unbind(0)) {
    buffer.messages.push_back({bytes.data_ptr(),
                               bytes[positions_at].data_ptr(),
                               {view_of(bytes, images_at, format.images), view_of(bytes, targets_at, format.targets)}});
  }
  return buffer;
}

void SharedBatches::start_epoch(int64_t epoch, const ShardFor& shard_for) {
  if (pending_) finish_round();
  for (const auto& buffer : buffers_) {
    if (buffer.copied) buffer.copied->wait();
  }
  is_over_ = false;
  failure_ = nullptr;
  if (loader_ == nullptr) return;
  std::vector<RankShard> shards;
  for (const int rank : group_->ranks()) shards.push_back(shard_for(rank));
  batches_left_.clear();
  for (const auto& shard : shards) batches_left_.push_back(static_cast<int64_t>(shard.batch_sizes.size()));
  // The loader's order: round by round, and within a round rank by rank, without the ranks that have no batch left.
  RankShard all;
  std::vector<int64_t> positions(shards.size(), 0);
  for (int64_t round = 0; round < std::ranges::max(batches_left_); ++round) {
    for (size_t i = 0; i < shards.size(); ++i) {
      if (round >= batches_left_[i]) continue;
      const int64_t size = shards[i].batch_sizes[static_cast<size_t>(round)];
      all.samples.append(shards[i].samples.slice(positions[i], positions[i] + size));
      all.batch_sizes.push_back(size);
      positions[i] += size;
    }
  }
  loader_->start_epoch(epoch, std::move(all.samples), all.batch_sizes);
}

const data::Batch* SharedBatches::next() {
  if (is_over_) return nullptr;
  // This waits for a copy to the device and is not counted as waiting for data.
  if (const auto& copied = buffer_of(num_rounds_begun_).copied) copied->wait();
  const auto begin = Clock::now();
  if (!pending_) begin_round();
  auto* const copied = buffer_of(num_rounds_begun_ - 1).copied.get();
  const auto& message = finish_round();
  Header header;
  std::memcpy(&header, message.header, sizeof header);
  is_over_ = header.is_last != 0;
  if (!is_over_) begin_round();
  waited_ += Clock::now() - begin;
  return open(message, header, copied);
}

data::LoaderCounts SharedBatches::counts() const {
  auto counts = loader_ == nullptr ? data::LoaderCounts() : loader_->counts();
  counts.waited = waited_;
  return counts;
}

const data::Batch* SharedBatches::open(const Message& message, const Header& header, data::CopyEvent* copied) {
  switch (header.content) {
    case Content::kFailure:
      if (failure_) std::rethrow_exception(failure_);
      throw PeerError(
          fmt::format("rank {0}: rank {1}, which reads the samples of this rank, cannot prepare a batch; see the message of rank {1}",
                      group_->ranks()[static_cast<size_t>(group_->rank())], group_->ranks().front()));
    case Content::kNothing:
      return nullptr;
    case Content::kBatch:
      break;
  }
  const auto& [images, targets] = message.tensors;
  const auto* positions = static_cast<const int64_t*>(message.positions);
  batch_ = {images.narrow(0, 0, header.size), targets.narrow(0, 0, header.size), header.size, copied, {positions, positions + header.size}};
  return &batch_;
}

void SharedBatches::begin_round() {
  auto& buffer = buffer_of(num_rounds_begun_);
  if (loader_ != nullptr) write_messages(scatters() ? outgoing_.messages : buffer.messages);
  pending_ = scatters() ? group_->begin_scatter(outgoing_.bytes, buffer.bytes[0]) : group_->begin_broadcast(buffer.bytes);
  ++num_rounds_begun_;
}

// A failure is sent to all ranks and thrown when its round is received.
void SharedBatches::write_messages(std::vector<Message>& messages) {
  std::vector<Header> headers(messages.size());
  try {
    for (size_t i = 0; i < messages.size(); ++i) {
      if (batches_left_[i] == 0) continue;
      const auto* batch = loader_->next();
      --batches_left_[i];
      const auto& [images, targets] = messages[i].tensors;
      images.narrow(0, 0, batch->size).copy_(batch->images);
      targets.narrow(0, 0, batch->size).copy_(batch->targets);
      std::ranges::copy(batch->positions, static_cast<int64_t*>(messages[i].positions));
      headers[i] = {.content = Content::kBatch, .size = batch->size};
    }
  } catch (...) {
    failure_ = std::current_exception();
  }
  const bool is_last = failure_ || std::ranges::all_of(batches_left_, [](int64_t left) { return left == 0; });
  for (size_t i = 0; i < messages.size(); ++i) {
    auto& header = headers[i];
    if (failure_) header = {.content = Content::kFailure};
    header.is_last = is_last ? 1 : 0;
    std::memcpy(messages[i].header, &header, sizeof header);
  }
}

SharedBatches::Message& SharedBatches::finish_round() {
  group_->wait_for(*std::exchange(pending_, nullptr));
  auto& messages = buffer_of(num_rounds_begun_ - 1).messages;
  return scatters() ? messages.front() : messages[static_cast<size_t>(group_->rank())];
}

}  // namespace trainer::engine
