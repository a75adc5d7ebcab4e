#include <c10/util/Exception.h>

#include <utility>

#include "data/data_loader.h"
#include "trainer/data.h"

namespace trainer::data {

struct Batches::State {
  State(std::shared_ptr<const Dataset> samples, const Pipeline& pipeline, const LoaderOptions& options)
      : dataset(std::move(samples)), loader(*dataset, pipeline, options) {}

  std::shared_ptr<const Dataset> dataset;
  DataLoader loader;
};

Batches::Batches(std::shared_ptr<const Dataset> dataset, const std::vector<ComponentConfig>& transforms, int64_t batch_size, uint64_t seed,
                 const LoadingOptions& loading) {
  TORCH_CHECK(dataset != nullptr, "Batches need a data set, but it is null");
  const Pipeline pipeline(transforms, dataset->info(), {});
  const LoaderOptions options{.batch_size = batch_size, .num_workers = loading.num_workers, .prefetch = loading.prefetch, .seed = seed};
  state_ = std::make_unique<State>(std::move(dataset), pipeline, options);
}

Batches::~Batches() = default;

void Batches::start(DistributedSampler& sampler) {
  std::vector<int64_t> indices;
  sampler.reset();
  if (const auto all = sampler.next(static_cast<size_t>(sampler.size()))) indices.assign(all->begin(), all->end());
  for (const int64_t index : indices) {
    TORCH_CHECK(index < state_->dataset->size(), "the sampler was made for more samples than the ", state_->dataset->size(),
                " of the data set");
  }
  state_->loader.start_epoch(sampler.epoch(), std::move(indices));
}

std::optional<torch::data::Example<>> Batches::next() {
  const auto* batch = state_->loader.next();
  if (batch == nullptr) return std::nullopt;
  // Copies, because the loader uses its memory again.
  return torch::data::Example<>(batch->images.clone(), batch->targets.clone());
}

}  // namespace trainer::data
