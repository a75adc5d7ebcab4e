#pragma once
// The sources of a rank's batches: its own loader or, with dataset.distribution, the loader of the first rank of its group. That rank, the
// reader, reads and prepares the samples of the whole group.

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "data/data_loader.h"
#include "distributed/activity.h"
#include "trainer/distributed.h"
#include "trainer/options.h"

namespace trainer::engine {

// A rank's part of an epoch: its samples in order, and the sizes of the batches that they are divided into.
struct RankShard {
  data::SampleList samples;
  std::vector<int64_t> batch_sizes;
};
// Returns the shard of a world rank; the result is the same on every rank that calls it.
using ShardFor = std::function<RankShard(int rank)>;

// start_epoch() and next() are collective over the ranks that share a reader.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  // Drops the batches of an earlier epoch that were not taken.
  virtual void start_epoch(int64_t epoch, const ShardFor& shard_for) = 0;
  // This rank's next batch, valid until the next call of next() or start_epoch(); nullptr after its last one. See data::DataLoader::next()
  // for its copy event. Throws DataError on the rank that cannot prepare a sample, and PeerError on the others.
  virtual const data::Batch* next() = 0;
  // The number of samples in a full batch of this rank.
  virtual int64_t batch_size() const = 0;
  // The counts of this rank's loader, if it has one. `waited` is the time that next() has spent waiting for batches or preparing them.
  virtual data::LoaderCounts counts() const = 0;
};

class LocalBatches final : public BatchSource {
 public:
  // `loader` provides the batches of world rank `rank`.
  LocalBatches(std::unique_ptr<data::DataLoader> loader, int rank) : loader_(std::move(loader)), rank_(rank) {}

  void start_epoch(int64_t epoch, const ShardFor& shard_for) override {
    auto shard = shard_for(rank_);
    loader_->start_epoch(epoch, std::move(shard.samples), shard.batch_sizes);
  }
  const data::Batch* next() override { return loader_->next(); }
  int64_t batch_size() const override { return loader_->batch_size(); }
  data::LoaderCounts counts() const override { return loader_->counts(); }

 private:
  const std::unique_ptr<data::DataLoader> loader_;
  int rank_;
};

// While a rank uses a batch, the next one is sent to it. All buffers are allocated in the constructor.
class SharedBatches final : public BatchSource {
 public:
  // `group`: two or more ranks. `format`: the tensors of a full batch of one rank, with or without memory. `options`: of these batches
  // (only make_copy_event and pin_memory matter). `loader`: on the reader, makes batches of the same format without copy events;
  // null on the other ranks.
  SharedBatches(std::shared_ptr<distributed::ProcessGroup> group, Distribution distribution, const data::BatchTensors& format,
                const data::LoaderOptions& options, std::unique_ptr<data::DataLoader> loader);

  // Only the reader calls `shard_for`, for each rank of the group.
  void start_epoch(int64_t epoch, const ShardFor& shard_for) override;
  const data::Batch* next() override;
  int64_t batch_size() const override { return batch_size_; }
  data::LoaderCounts counts() const override;

 private:
  enum class Content : int64_t { kBatch, kNothing, kFailure };
  struct Header {
    Content content = Content::kNothing;
    int64_t size = 0;     // samples of the batch
    int64_t is_last = 0;  // whether no message of the epoch follows
  };
  // The data for one rank in one round: a header, and space for a full batch.
  struct Message {
    void* header = nullptr;
    void* positions = nullptr;  // int64 [batch size], as in data::Batch
    data::BatchTensors tensors;
  };
  struct Buffer {
    torch::Tensor bytes;                 // [messages, bytes of a message]
    std::vector<Message> messages = {};  // views of `bytes`
    std::unique_ptr<data::CopyEvent> copied = nullptr;
  };

  static Buffer make_buffer(int num_messages, const data::BatchTensors& format, bool pin_memory);
  bool scatters() const { return distribution_ == Distribution::kScatter; }
  Buffer& buffer_of(int64_t round) { return buffers_[static_cast<size_t>(round) % buffers_.size()]; }
  // Starts to send the messages of the next round; on the reader, waits until its loader has prepared them.
  void begin_round();
  void write_messages(std::vector<Message>& messages);
  // Waits for the messages of the round that has begun, and returns this rank's.
  Message& finish_round();
  const data::Batch* open(const Message& message, const Header& header, data::CopyEvent* copied);

  const std::shared_ptr<distributed::ProcessGroup> group_;
  const Distribution distribution_;
  const std::unique_ptr<data::DataLoader> loader_;
  const int64_t batch_size_;
  std::vector<Buffer> buffers_;
  Buffer outgoing_;  // on a reader that scatters
  data::Batch batch_;
  std::chrono::duration<double> waited_{0};
  int64_t num_rounds_begun_ = 0;            // since construction
  c10::intrusive_ptr<c10d::Work> pending_;  // of the round that has begun
  bool is_over_ = true;                     // whether no round of the epoch is left

  // Used only on the reader.
  std::vector<int64_t> batches_left_;  // of each rank of the group, in the epoch
  std::exception_ptr failure_;         // of the round that has begun
};

}  // namespace trainer::engine
