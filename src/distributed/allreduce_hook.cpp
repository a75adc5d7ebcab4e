#include "distributed/allreduce_hook.h"

#include <algorithm>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace trainer::distributed {
namespace {

using Future = c10::intrusive_ptr<c10::ivalue::Future>;

// Hooks are called in the order of the buckets, so the first bucket is the one with index 0.
void note_first(const c10d::GradBucket& bucket, const ProcessGroup& group) {
  if (bucket.getIndex() == 0 && group.activity()) group.activity()->begin_exchange();
}

class AllreduceHook : public c10d::CppCommHookInterface<std::shared_ptr<const ProcessGroup>> {
 public:
  // `dtype`: the type to send in; empty: unchanged.
  AllreduceHook(std::shared_ptr<const ProcessGroup> group, std::optional<torch::ScalarType> dtype, std::shared_ptr<SentBuckets> sent)
      : CppCommHookInterface(std::move(group)), dtype_(dtype), sent_(std::move(sent)) {}

  Future runHook(c10d::GradBucket& bucket) override {
    note_first(bucket, *state_);
    const auto buffer = bucket.getBufferRef();
    const auto travelling = dtype_ ? buffer.to(*dtype_) : buffer;
    std::vector<torch::Tensor> tensors{travelling};
    const auto future = send(tensors);
    sent_->add(future);
    if (bucket.isLast()) sent_->wait(state_->activity().get());
    if (!dtype_) return future;
    return future->then(
        [buffer, travelling](c10::ivalue::Future& done) {
          if (done.hasError()) std::rethrow_exception(done.exception_ptr());
          torch::Tensor(buffer).copy_(travelling);
          return c10::IValue(buffer);
        },
        c10::TensorType::get());
  }

 private:
  // allreduce throws immediately if the connection is known to be lost; if it is lost later, the future fails.
  Future send(std::vector<torch::Tensor>& tensors) {
    try {
      return state_->c10d_group()->allreduce(tensors)->getFuture();
    } catch (...) {
      sent_->refuse();
      throw;
    }
  }

  std::optional<torch::ScalarType> dtype_;
  std::shared_ptr<SentBuckets> sent_;
};

class SmallAllreduceHook : public c10d::CppCommHookInterface<std::shared_ptr<const ProcessGroup>> {
 public:
  using CppCommHookInterface::CppCommHookInterface;

  Future runHook(c10d::GradBucket& bucket) override {
    note_first(bucket, *state_);
    // A failed pass may have left buckets.
    if (bucket.getIndex() == 0) waiting_.clear();
    waiting_.push_back({bucket.getBuffer(), c10::make_intrusive<c10::ivalue::Future>(c10::TensorType::get())});
    auto future = waiting_.back().summed;
    if (!bucket.isLast()) return future;
    std::vector<torch::Tensor> buffers;
    for (const auto& [buffer, summed] : waiting_) buffers.push_back(buffer);
    state_->sum_in_rank_order(buffers);
    for (const auto& [buffer, summed] : waiting_) summed->markCompleted(buffer);
    return future;
  }

 private:
  struct Bucket {
    torch::Tensor buffer;
    Future summed;
  };
  std::vector<Bucket> waiting_;
};

std::optional<torch::ScalarType> dtype_of(config::GradientCompression compression) {
  switch (compression) {
    case config::GradientCompression::kNone:
      return std::nullopt;
    case config::GradientCompression::kFloat16:
      return torch::kFloat16;
    case config::GradientCompression::kBfloat16:
      return torch::kBFloat16;
  }
  return std::nullopt;
}

}  // namespace

void SentBuckets::clear() {
  const std::lock_guard lock(mutex_);
  buckets_.clear();
  refused_ = false;
  wait_.reset();
}

void SentBuckets::add(c10::intrusive_ptr<c10::ivalue::Future> bucket) {
  const std::lock_guard lock(mutex_);
  buckets_.push_back(std::move(bucket));
}

void SentBuckets::refuse() {
  const std::lock_guard lock(mutex_);
  refused_ = true;
}

void SentBuckets::wait(Activity* activity) {
  const std::lock_guard lock(mutex_);
  wait_.emplace(activity);
}

bool SentBuckets::failed() const {
  const std::lock_guard lock(mutex_);
  return refused_ || std::ranges::any_of(buckets_, [](const auto& bucket) { return bucket->hasError(); });
}

std::unique_ptr<c10d::CommHookInterface> make_allreduce_hook(std::shared_ptr<const ProcessGroup> group,
                                                             config::GradientCompression compression, std::shared_ptr<SentBuckets> sent) {
  return std::make_unique<AllreduceHook>(std::move(group), dtype_of(compression), std::move(sent));
}

std::unique_ptr<c10d::CommHookInterface> make_small_allreduce_hook(std::shared_ptr<const ProcessGroup> group) {
  return std::make_unique<SmallAllreduceHook>(std::move(group));
}

}  // namespace trainer::distributed
