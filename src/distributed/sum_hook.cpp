#include "distributed/sum_hook.h"

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace trainer::distributed {
namespace {

using Future = c10::intrusive_ptr<c10::ivalue::Future>;

class SumHook : public c10d::CppCommHookInterface<c10::intrusive_ptr<c10d::ProcessGroup>> {
 public:
  // `dtype`: to send in; empty: as they are.
  SumHook(c10::intrusive_ptr<c10d::ProcessGroup> group, std::optional<torch::ScalarType> dtype, std::shared_ptr<SentBuckets> sent)
      : CppCommHookInterface(std::move(group)), dtype_(dtype), sent_(std::move(sent)) {}

  Future runHook(c10d::GradBucket& bucket) override {
    const auto buffer = bucket.getBufferRef();
    const auto travelling = dtype_ ? buffer.to(*dtype_) : buffer;
    std::vector<torch::Tensor> tensors{travelling};
    const auto future = state_->allreduce(tensors)->getFuture();
    future->addCallback([sent = sent_](c10::ivalue::Future& done) {
      if (done.hasError()) sent->failed = true;
    });
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
  std::optional<torch::ScalarType> dtype_;
  std::shared_ptr<SentBuckets> sent_;
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

std::unique_ptr<c10d::CommHookInterface> make_sum_hook(const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                                                       config::GradientCompression compression, std::shared_ptr<SentBuckets> sent) {
  return std::make_unique<SumHook>(group, dtype_of(compression), std::move(sent));
}

}  // namespace trainer::distributed
