#include "checkpoint/saver.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "trainer/torch.h"

namespace trainer::checkpoint {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

}  // namespace

// A copy of a tree's tensors in host memory.
class Saver::Copy {
 public:
  explicit Copy(bool pin_memory) : pin_memory_(pin_memory) {}

  // Allocates a buffer for each of `tensors` unless fitting buffers exist. `touch`: also writes to new buffers, so that the system provides
  // their pages now and not during the first copy.
  void fit(const std::vector<torch::Tensor>& tensors, bool touch) {
    if (std::ranges::equal(tensors, buffers_, have_same_format)) return;
    buffers_.clear();
    // Memory for tensors on a GPU is allocated in a few large blocks, because page-locked memory is slow to allocate, and LibTorch rounds
    // its size up to a power of two.
    constexpr size_t kBlock = size_t{64} << 20;
    size_t num_bytes = 0;  // of the buffers that still need memory
    for (const auto& tensor : tensors) num_bytes += tensor.is_cpu() ? 0 : aligned_size(tensor);
    torch::Tensor block;
    size_t used = 0;
    for (const auto& tensor : tensors) {
      const auto options = tensor.options().device(torch::kCPU);
      if (tensor.is_cpu()) {
        buffers_.push_back(torch::empty_strided(tensor.sizes(), tensor.strides(), options));
      } else {
        const size_t size = aligned_size(tensor);
        if (!block.defined() || used + size > block.nbytes()) {
          const auto block_size = static_cast<int64_t>(std::max(size, std::min(kBlock, num_bytes)));
          block = torch::empty({block_size}, torch::dtype(torch::kUInt8).pinned_memory(pin_memory_));
          used = 0;
        }
        // Each buffer has its own storage, because a file contains whole storages.
        auto* memory = block.mutable_data_ptr<uint8_t>() + used;
        buffers_.push_back(torch::from_blob(
            memory, tensor.sizes(), tensor.strides(), [block](void*) {}, options));
        used += size;
        num_bytes -= size;
      }
      auto& buffer = buffers_.back();
      if (touch && buffer.numel() > 0) std::memset(buffer.data_ptr(), 0, buffer.storage().nbytes());
    }
  }

  state::Tree take(const state::Tree& tree) {
    const auto tensors = state::tensors_of(tree);
    fit(tensors, /*touch=*/false);
    const torch::NoGradGuard no_grad;
    for (size_t i = 0; i < tensors.size(); ++i) buffers_[i].copy_(tensors[i], /*non_blocking=*/true);
    const auto on_device = std::ranges::find_if(tensors, [](const auto& tensor) { return !tensor.is_cpu(); });
    if (on_device != tensors.end()) {
      const auto device = on_device->device();
      c10::impl::VirtualGuardImpl(device.type()).getStream(device).synchronize();
    }
    return state::with_tensors(tree, buffers_);
  }

 private:
  static bool have_same_format(const torch::Tensor& tensor, const torch::Tensor& buffer) {
    return buffer.sizes() == tensor.sizes() && buffer.strides() == tensor.strides() && buffer.scalar_type() == tensor.scalar_type();
  }

  // Size in bytes of a tensor's elements and the gaps between them, rounded up so that the next tensor is aligned.
  static size_t aligned_size(const torch::Tensor& tensor) {
    constexpr size_t kAlignment = 64;
    const auto size = at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.element_size());
    return (size + kAlignment - 1) / kAlignment * kAlignment;
  }

  bool pin_memory_;
  std::vector<torch::Tensor> buffers_;
};

Saver::Saver(Store store, bool pin_memory) : store_(std::move(store)), copy_(std::make_unique<Copy>(pin_memory)) {}
Saver::~Saver() = default;

void Saver::start(std::function<void()> work) {
  work_ = std::async(std::launch::async, [work = std::move(work)] {
    // On Linux this sets the priority of this thread only. The training threads wait for the slowest one among them, so this thread must
    // not take CPU time from any of them.
    ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), 19);
    work();
  });
}

void Saver::wait() const {
  if (work_.valid()) work_.wait();
}

void Saver::reserve(const state::Tree& tree) {
  wait();
  start([this, tensors = state::tensors_of(tree)] { copy_->fit(tensors, /*touch=*/true); });
}

void Saver::save(const state::Tree& tree, int64_t step, bool is_best) {
  const auto begin = Clock::now();
  wait();
  auto copy = copy_->take(tree);
  saved_ = {.step = step, .file = store_.file_of(step), .error = {}, .removed = {}, .pause_seconds = seconds_since(begin)};
  is_unreported_ = true;
  start([this, copy = std::move(copy), is_best] { write(copy, is_best); });
}

void Saver::write(const state::Tree& copy, bool is_best) {
  const auto begin = Clock::now();
  try {
    auto written = store_.write(copy, saved_.step, is_best);
    saved_.num_bytes = written.num_bytes;
    saved_.removed = std::move(written.removed);
  } catch (const std::exception& error) {
    saved_.error = error.what();
  }
  saved_.write_seconds = seconds_since(begin);
}

std::optional<Saved> Saver::poll() {
  const bool is_busy = work_.valid() && work_.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
  return is_busy ? std::nullopt : finish();
}

std::optional<Saved> Saver::finish() {
  wait();
  if (!is_unreported_) return std::nullopt;
  is_unreported_ = false;
  return saved_;
}

}  // namespace trainer::checkpoint
