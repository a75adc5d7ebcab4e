#include "distributed/data_parallel.h"

#include <fmt/format.h>
#include <torch/nn/modules/embedding.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <optional>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>

#include "base/text.h"
#include "distributed/activity.h"
#include "distributed/first_line.h"
#include "distributed/shared_memory.h"
#include "trainer/error.h"

namespace trainer::distributed {

using Future = c10::intrusive_ptr<c10::ivalue::Future>;

// The gradient buckets that one backward pass has sent.
class SentBuckets {
 public:
  void clear() {
    const std::lock_guard lock(mutex_);
    buckets_.clear();
    refused_ = false;
    wait_.reset();
  }
  void add(Future bucket) {
    const std::lock_guard lock(mutex_);
    buckets_.push_back(std::move(bucket));
  }
  // Records that a bucket could not be sent because the connection was already lost.
  void refuse() {
    const std::lock_guard lock(mutex_);
    refused_ = true;
  }
  // Call when all buckets are being sent. Until clear(), this rank then counts as waiting for the others.
  void wait(Activity* activity) {
    const std::lock_guard lock(mutex_);
    wait_.emplace(activity);
  }
  // Whether the exchange of any bucket failed.
  bool failed() const {
    const std::lock_guard lock(mutex_);
    return refused_ || std::ranges::any_of(buckets_, [](const auto& bucket) { return bucket->hasError(); });
  }

 private:
  mutable std::mutex mutex_;  // hooks run on autograd's threads
  std::vector<Future> buckets_;
  bool refused_ = false;
  std::optional<Activity::Wait> wait_;
};

namespace {

// The first bucket is small, as in PyTorch, so that sending starts early.
constexpr int64_t kFirstBucketBytes = 1024 * 1024;
// Uncompressed gradients on the CPU are summed after backward if those of all ranks together have at most this many bytes.
constexpr int64_t kSmallBytes = int64_t{4} * 1024 * 1024;
// Rank 0 collects parameters and buffers in messages, and broadcasts a message once it has this many bytes.
constexpr size_t kBroadcastBytes = size_t{250} * 1024 * 1024;

// The Reducer's constructor has 12 arguments in LibTorch 2.11. From 2.12 on it has `batched_grad_copy`: gradients are copied into a full
// bucket by one kernel, instead of by one for each parameter.
template <class Reducer = c10d::Reducer, class... Args>
std::shared_ptr<Reducer> new_reducer(bool batched_grad_copy, Args&&... args) {
  if constexpr (std::is_constructible_v<Reducer, Args..., bool>) {
    return std::make_shared<Reducer>(std::forward<Args>(args)..., batched_grad_copy);
  } else {
    return std::make_shared<Reducer>(std::forward<Args>(args)...);
  }
}

// Hooks are called in the order of the buckets, so the first bucket is the one with index 0.
void note_first(const c10d::GradBucket& bucket, const ProcessGroup& group) {
  if (bucket.getIndex() == 0 && group.activity()) group.activity()->begin_exchange();
}

// The gradients of a bucket, divided by `divisor`. The sum of complex numbers is that of their parts, which shared memory and NCCL can add.
torch::Tensor share_of(c10d::GradBucket& bucket, int divisor) {
  const auto& buffer = bucket.getBufferRef();
  if (divisor > 1) torch::Tensor(buffer).div_(divisor);
  return buffer.is_complex() ? at::view_as_real(buffer) : buffer;
}

// Sums each bucket over the ranks as soon as it is full.
class AllreduceHook : public c10d::CppCommHookInterface<std::shared_ptr<const ProcessGroup>> {
 public:
  // `dtype`: the type in which dense gradients are sent; empty if they are not converted.
  AllreduceHook(std::shared_ptr<const ProcessGroup> group, int divisor, std::optional<torch::ScalarType> dtype,
                std::shared_ptr<SentBuckets> sent)
      : CppCommHookInterface(std::move(group)), divisor_(divisor), dtype_(dtype), sent_(std::move(sent)) {}

  Future runHook(c10d::GradBucket& bucket) override {
    note_first(bucket, *state_);
    const auto share = share_of(bucket, divisor_);
    const auto sent = dtype_ && !share.is_sparse() ? share.to(*dtype_) : share;
    std::vector<torch::Tensor> tensors{sent};
    const auto future = send(tensors);
    sent_->add(future);
    if (bucket.isLast()) sent_->wait(state_->activity().get());
    const auto& buffer = bucket.getBufferRef();
    if (sent.is_same(buffer)) return future;
    return future->then(
        [buffer, share, sent](c10::ivalue::Future& done) {
          if (done.hasError()) std::rethrow_exception(done.exception_ptr());
          if (!sent.is_same(share)) torch::Tensor(share).copy_(sent);
          return c10::IValue(buffer);
        },
        c10::TensorType::get());
  }

 private:
  // allreduce() throws immediately if the connection is already lost; if it is lost later, the future fails.
  Future send(std::vector<torch::Tensor>& tensors) {
    try {
      return state_->c10d_group()->allreduce(tensors)->getFuture();
    } catch (...) {
      sent_->refuse();
      throw;
    }
  }

  int divisor_;
  std::optional<torch::ScalarType> dtype_;
  std::shared_ptr<SentBuckets> sent_;
};

// Sums gradient buckets on the CPU: with `during_backward`, each one in shared memory while backward runs; otherwise all of them when the
// last one is full, because overlapping the sums with backward saves no time for small buckets.
class HostSumHook : public c10d::CppCommHookInterface<std::shared_ptr<const ProcessGroup>> {
 public:
  HostSumHook(std::shared_ptr<const ProcessGroup> group, int divisor, bool during_backward)
      : CppCommHookInterface(std::move(group)), divisor_(divisor), during_backward_(during_backward) {}

  Future runHook(c10d::GradBucket& bucket) override {
    note_first(bucket, *state_);
    // A failed backward pass may have left buckets behind.
    if (bucket.getIndex() == 0) waiting_.clear();
    waiting_.push_back({bucket.getBuffer(), share_of(bucket, divisor_), c10::make_intrusive<c10::ivalue::Future>(c10::TensorType::get())});
    auto future = waiting_.back().summed;
    if (during_backward_) state_->begin_sum(waiting_.back().share);
    if (!bucket.isLast()) return future;
    if (during_backward_) {
      state_->finish_sums();
    } else {
      std::vector<torch::Tensor> shares;
      for (const auto& bucket_of_step : waiting_) shares.push_back(bucket_of_step.share);
      state_->sum_in_rank_order(shares);
    }
    for (const auto& bucket_of_step : waiting_) bucket_of_step.summed->markCompleted(bucket_of_step.buffer);
    return future;
  }

 private:
  struct Bucket {
    torch::Tensor buffer;
    torch::Tensor share;
    Future summed;
  };
  int divisor_;
  bool during_backward_;
  std::vector<Bucket> waiting_;
};

// `num_bytes`: total size of the gradients of all ranks.
GradientExchange choose_exchange(bool is_dense_on_cpu, int64_t num_bytes, GradientCompression compression) {
  if (!is_dense_on_cpu || compression != GradientCompression::kNone) return GradientExchange::kAllReduce;
  return num_bytes <= kSmallBytes ? GradientExchange::kAfterBackward : GradientExchange::kSharedMemory;
}

// The weights of embeddings whose gradients are sparse.
std::unordered_set<const c10::TensorImpl*> weights_with_sparse_gradients(const torch::nn::Module& model) {
  std::unordered_set<const c10::TensorImpl*> weights;
  const auto add = [&](const torch::nn::Module& module) {
    const auto* embedding = module.as<torch::nn::Embedding>();
    const auto* bag = module.as<torch::nn::EmbeddingBag>();
    if (embedding != nullptr && embedding->options.sparse()) weights.insert(embedding->weight.unsafeGetTensorImpl());
    if (bag != nullptr && bag->options.sparse()) weights.insert(bag->weight.unsafeGetTensorImpl());
  };
  add(model);
  for (const auto& module : model.modules(/*include_self=*/false)) add(*module);
  return weights;
}

std::optional<torch::ScalarType> dtype_of(GradientCompression compression) {
  if (compression == GradientCompression::kNone) return std::nullopt;
  return compression == GradientCompression::kFloat16 ? torch::kFloat16 : torch::kBFloat16;
}

void broadcast_from_first(const ProcessGroup& group, const std::vector<torch::Tensor>& tensors) {
  if (tensors.empty()) return;
  const torch::NoGradGuard no_grad;
  group.with_peer_errors("broadcast", [&] { c10d::broadcast_coalesced(group.c10d_group(), tensors, kBroadcastBytes, 0); });
}

}  // namespace

DataParallel::DataParallel(torch::nn::Module& model, std::shared_ptr<ProcessGroup> group, const DataParallelOptions& options, bool averages,
                           std::optional<GradientExchange> exchange)
    : group_(std::move(group)), options_(options), averages_(averages), buffers_(model.buffers()) {
  if (!group_) {
    throw UsageError(
        "the process group is null, which new_group() returns on ranks that are not members; call DistributedDataParallel only on the "
        "members of its group");
  }
  if (!std::isfinite(options_.bucket_cap_mb) || options_.bucket_cap_mb <= 0)
    throw OptionError("bucket_cap_mb", fmt::format("is {}; it must be greater than 0", options_.bucket_cap_mb));
  if (group_->c10d_group()) connect(model, exchange);
}

DataParallel::~DataParallel() = default;

void DataParallel::connect(torch::nn::Module& model, std::optional<GradientExchange> exchange) {
  const auto sparse = weights_with_sparse_gradients(model);
  std::unordered_set<const c10::TensorImpl*> known;  // layers may share a parameter
  for (const auto& parameter : model.named_parameters()) {
    const auto* impl = parameter.value().unsafeGetTensorImpl();
    if (!parameter.value().requires_grad() || !known.insert(impl).second) continue;
    names_.push_back(parameter.key());
    parameters_.push_back(parameter.value());
    is_sparse_.push_back(sparse.contains(impl));
  }
  if (parameters_.empty())
    throw Error("the model has no trainable parameter, so the ranks have no gradients to exchange; unfreeze at least one parameter");
  const auto first_sparse = std::ranges::find(is_sparse_, true);
  if (first_sparse != is_sparse_.end() && !parameters_.front().is_cpu() &&
      group_->c10d_group()->getBackendType() == c10d::ProcessGroup::BackendType::NCCL) {
    throw UsageError(
        fmt::format("the gradient of {} is sparse, which NCCL cannot sum; make the embedding without sparse(true), or choose gloo",
                    names_[static_cast<size_t>(first_sparse - is_sparse_.begin())]));
  }

  c10d::verify_params_across_processes(group_->c10d_group(), parameters_, std::nullopt);
  std::vector<torch::Tensor> all = model.buffers();
  for (const auto& parameter : model.parameters()) all.push_back(parameter.detach());
  broadcast_from_first(*group_, all);
  make_reducer(exchange);
  if (!options_.find_unused_parameters) settle_buckets();
}

void DataParallel::make_reducer(std::optional<GradientExchange> exchange) {
  const auto cap = std::max<int64_t>(1, static_cast<int64_t>(options_.bucket_cap_mb * 1024 * 1024));
  const int64_t first_cap = std::min(cap, kFirstBucketBytes);
  auto buckets = std::get<0>(
      c10d::compute_bucket_assignment_by_size(parameters_, {static_cast<size_t>(first_cap), static_cast<size_t>(cap)}, is_sparse_));
  // Backward computes the gradients of the last layer first.
  std::ranges::reverse(buckets);
  std::unordered_map<size_t, std::string> names;
  for (size_t i = 0; i < names_.size(); ++i) names[i] = names_[i];
  reducer_ = new_reducer(/*batched_grad_copy=*/parameters_.front().is_cuda(), parameters_, std::move(buckets), group_->c10d_group(),
                         is_sparse_, cap, options_.find_unused_parameters, options_.gradient_as_bucket_view, std::move(names), first_cap,
                         /*skip_all_reduce_unused_params=*/false,
                         /*use_python_reducer=*/false, /*bucket_bytes_cap_list=*/std::vector<int64_t>{});
  // The Reducer calls it without a check when the set of unused parameters changes.
  logger_ = std::make_shared<c10d::Logger>(reducer_);
  reducer_->set_logger(logger_);
  sent_ = std::make_shared<SentBuckets>();
  int64_t num_bytes = 0;
  for (const auto& parameter : parameters_) num_bytes += static_cast<int64_t>(parameter.nbytes());
  const bool is_dense_on_cpu = parameters_.front().is_cpu() && std::ranges::none_of(is_sparse_, std::identity());
  exchange_ = exchange.value_or(choose_exchange(is_dense_on_cpu, num_bytes * group_->size(), options_.gradient_compression));
  // Each bucket is rounded up to kAlignment bytes, and there are at most as many buckets as parameters.
  const int64_t room = num_bytes + SharedMemory::kAlignment * static_cast<int64_t>(parameters_.size());
  if (exchange_ == GradientExchange::kSharedMemory && !group_->share_memory_for_sums(room)) exchange_ = GradientExchange::kAllReduce;
  if (exchange_ == GradientExchange::kAfterBackward) group_->share_memory(room);
  const int divisor = averages_ ? group_->size() : 1;
  if (exchange_ != GradientExchange::kAllReduce) {
    reducer_->register_comm_hook(std::make_unique<HostSumHook>(group_, divisor, exchange_ == GradientExchange::kSharedMemory));
    return;
  }
  reducer_->register_comm_hook(std::make_unique<AllreduceHook>(group_, divisor, dtype_of(options_.gradient_compression), sent_));
}

void DataParallel::settle_buckets() {
  reducer_->prepare_for_forward();
  std::vector<torch::Tensor> zeros;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const auto& parameter = parameters_[i];
    auto values = parameter;
    if (is_sparse_[i]) {
      // A sparse gradient has to be sparse here too.
      const auto first_row = torch::zeros({1}, parameter.options().dtype(torch::kInt64).requires_grad(false));
      values = torch::embedding(parameter, first_row, -1, false, /*sparse=*/true);
    }
    zeros.push_back(at::real((values * 0).sum()));
  }
  reducer_->prepare_for_backward({});
  torch::stack(zeros).sum().backward();
  sent_->clear();
  reducer_->rebuild_buckets();
  for (auto& parameter : parameters_) parameter.mutable_grad().reset();
}

void DataParallel::before_forward(bool is_first, bool is_last) {
  group_->check_open();
  if (!reducer_) return;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i].requires_grad()) {
      throw Error(fmt::format(
          "the parameter {} was frozen after distributed training was set up; freeze parameters while the model is built", names_[i]));
    }
  }
  if (is_first && options_.broadcast_buffers) sync_buffers();
  if (is_last) reducer_->prepare_for_forward();
}

void DataParallel::backward(const torch::Tensor& loss, bool is_last) {
  if (!reducer_ || !is_last) {
    loss.backward();
    return;
  }
  reducer_->prepare_for_backward(options_.find_unused_parameters ? std::vector<torch::Tensor>{loss} : std::vector<torch::Tensor>{});
  sent_->clear();
  try {
    loss.backward();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    if (!sent_->failed()) throw;
    rethrow_own_error(error);
    throw PeerError(fmt::format("rank {}: all_reduce of gradients failed: {}; check whether another rank exited or hangs", group_->rank(),
                                first_line(error)));
  }
  sent_->clear();
  if (!options_.find_unused_parameters) check_all_used();
}

void DataParallel::check_all_used() const {
  std::vector<std::string> unused;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i].grad().defined()) unused.push_back(names_[i]);
  }
  if (unused.empty()) return;
  throw Error(
      fmt::format("the loss does not depend on the parameters {}; set distributed.find_unused_parameters: true, or remove them "
                  "from the model",
                  join(unused, ", ")));
}

void DataParallel::sync_buffers() const {
  if (!reducer_ || buffers_.empty()) return;
  const auto bytes = buffers_.read();
  group_->broadcast(bytes, 0);
  if (group_->rank() != 0) buffers_.write(bytes);
}

std::vector<int64_t> DataParallel::bucket_sizes() const {
  std::vector<int64_t> sizes;
  if (!reducer_) return sizes;
  for (auto& bucket : reducer_->get_grad_buckets()) sizes.push_back(bucket.getBufferRef().numel());
  return sizes;
}

}  // namespace trainer::distributed
