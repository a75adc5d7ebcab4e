#pragma once
// Where the batches of a rank come from: its own loader, or the loader of another rank.

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

#include "data/data_loader.h"

namespace trainer::engine {

// What a rank takes in an epoch: its samples in order, and the sizes of the batches that they are divided into.
struct RankShare {
  data::SampleList samples;
  std::vector<int64_t> batch_sizes;
};
// The share of a world rank; the same on every rank that calls it.
using ShareOf = std::function<RankShare(int rank)>;

// start_epoch() and next() are collective over the ranks that share a reader.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  // The rest of an earlier epoch is dropped.
  virtual void start_epoch(int64_t epoch, const ShareOf& share_of) = 0;
  // This rank's next batch, valid until the next call of next() or start_epoch(); nullptr after its last one. What
  // data::DataLoader::next() tells about copy events is true of it too. Throws DataError on the rank that cannot prepare a sample, and
  // PeerError on the others.
  virtual const data::Batch* next() = 0;
  // Of a full batch of this rank.
  virtual int64_t batch_size() const = 0;
  // Of its own loader, if it has one; the time is that for which next() has waited for batches, or has prepared them.
  virtual data::LoaderCounts counts() const = 0;
};

class LocalBatches final : public BatchSource {
 public:
  // `loader`, which must outlive it, gives the batches of world rank `rank`.
  LocalBatches(data::DataLoader& loader, int rank) : loader_(loader), rank_(rank) {}

  void start_epoch(int64_t epoch, const ShareOf& share_of) override {
    auto share = share_of(rank_);
    loader_.start_epoch(epoch, std::move(share.samples), share.batch_sizes);
  }
  const data::Batch* next() override { return loader_.next(); }
  int64_t batch_size() const override { return loader_.batch_size(); }
  data::LoaderCounts counts() const override { return loader_.counts(); }

 private:
  data::DataLoader& loader_;
  int rank_;
};

}  // namespace trainer::engine
