#include "data/data_loader.h"

#include <ATen/Dispatch.h>
#include <fmt/format.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_set>
#include <utility>

#include "trainer/error.h"

namespace trainer::data {
namespace {

using Clock = std::chrono::steady_clock;

// If none of the samples of a batch of at least this size can be read, the cause is probably the disk or the path rather than damaged
// samples.
constexpr int64_t kLargerBatch = 8;

// The buffers of one batch. A worker owns them while it prepares the batch; then the thread that calls next() owns them until the batch is
// released.
struct Slot : BatchTensors {
  explicit Slot(BatchTensors memory) : BatchTensors(std::move(memory)) {}

  Batch batch;                                           // its positions are set when it is prepared, the rest when it is returned
  int64_t number = -1;                                   // the number of the batch that is ready; -1 if none is
  std::vector<std::pair<int64_t, std::string>> skipped;  // indices of skipped samples, and the reasons
  std::optional<std::string> error;
  std::unique_ptr<CopyEvent> copied;
};

// `out`: the sample's entry in batch.targets. If targets are masks, the pipeline has already written the mask there, and only its labels
// are checked.
void write_target(const Target& target, const DatasetInfo& info, const BatchTensors& batch, void* out) {
  if (info.has_masks) {
    check_mask_labels({static_cast<const uint8_t*>(out), static_cast<size_t>(batch.targets.stride(0))}, info.num_classes);
  } else if (info.has_labels()) {
    const auto refusal = refusal_of_label(target, info);
    if (!refusal.empty()) throw DataError(refusal);
    *static_cast<int64_t*>(out) = target.label;
  } else {
    const auto& values = target.values;
    TORCH_CHECK(static_cast<int64_t>(values.size()) == info.num_outputs(), "the sample has ", values.size(), " targets, not ",
                info.num_outputs());
    AT_DISPATCH_FLOATING_TYPES_AND(torch::kBFloat16, batch.targets.scalar_type(), "write_target", [&] {
      std::transform(values.begin(), values.end(), static_cast<scalar_t*>(out), [](double value) { return c10::convert<scalar_t>(value); });
    });
  }
}

torch::Tensor make_targets(const DatasetInfo& info, const std::vector<int64_t>& image_sizes, const torch::TensorOptions& in_memory,
                           torch::ScalarType dtype) {
  const auto size = image_sizes.front();
  if (info.has_labels()) return at::empty({size}, in_memory.dtype(torch::kInt64));
  // Numbers may differ only in digits that float32 lacks, such as times in seconds since 1970.
  if (info.has_values()) return at::empty({size, info.num_outputs()}, in_memory.dtype(info.is_multi_label ? dtype : torch::kFloat64));
  TORCH_CHECK(info.is_image && info.num_classes > 0 && info.num_classes <= kNoClass, "masks need images and 1 to ", int{kNoClass},
              " classes");
  return at::empty({size, image_sizes[2], image_sizes[3]}, in_memory.dtype(torch::kUInt8));
}

// The address of one entry of a batch's tensor.
void* entry(const torch::Tensor& tensor, int64_t index) {
  const auto entry_bytes = static_cast<int64_t>(tensor.element_size()) * tensor.stride(0);
  return static_cast<char*>(tensor.data_ptr()) + index * entry_bytes;
}

}  // namespace

BatchTensors make_batch_tensors(const DatasetInfo& info, const Pipeline& pipeline, const LoaderOptions& options, torch::Device device) {
  const auto& shape = pipeline.output_shape();
  std::vector<int64_t> sizes{options.batch_size};
  sizes.insert(sizes.end(), shape.begin(), shape.end());
  const bool channels_last = pipeline.layout().channels_last && shape.size() == 3;
  const auto in_memory = torch::TensorOptions(device).pinned_memory(options.pin_memory && device.is_cpu());
  return {at::empty(sizes, in_memory.dtype(pipeline.layout().dtype),
                    channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous),
          make_targets(info, sizes, in_memory, options.target_dtype)};
}

// Batches are numbered from 0 in each epoch; batch n uses slot n modulo the number of slots. Workers take the numbers in order while
// slots are free, and do not call torch operators.
class DataLoader::State {
 public:
  State(const Dataset& dataset, Pipeline pipeline, const LoaderOptions& options)
      : dataset_(dataset), pipeline_(std::move(pipeline)), options_(options) {
    TORCH_CHECK(options.batch_size >= 1 && options.num_workers >= 0 && options.prefetch >= 1,
                "batch_size and prefetch must be at least 1 and num_workers at least 0, but got batch_size ", options.batch_size,
                ", num_workers ", options.num_workers, ", prefetch ", options.prefetch);
    const int64_t num_slots = num_buffers(options.num_workers, options.prefetch) + (options.make_copy_event ? 1 : 0);
    for (int64_t i = 0; i < num_slots; ++i) {
      slots_.emplace_back(make_batch_tensors(dataset.info(), pipeline_, options));
      if (options.make_copy_event) slots_.back().copied = options.make_copy_event();
    }
  }

  ~State() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      cancelled_ = true;
    }
    work_.notify_all();
    for (auto& thread : threads_) thread.join();
  }

  void start_threads() {
    for (int64_t i = 0; i < options_.num_workers; ++i) threads_.emplace_back([this] { work(); });
  }

  void start_epoch(int64_t epoch, SampleList samples, const std::vector<int64_t>& batch_sizes) {
    const int64_t size = dataset_.size();
    std::vector<int64_t> begins{0};
    begins.reserve(batch_sizes.size() + 1);
    for (const int64_t batch_size : batch_sizes) {
      TORCH_CHECK(batch_size >= 0 && batch_size <= options_.batch_size, "a batch has ", batch_size, " samples, not 0 to ",
                  options_.batch_size);
      begins.push_back(begins.back() + batch_size);
    }
    TORCH_CHECK(begins.back() == static_cast<int64_t>(samples.size()), "the batches have ", begins.back(),
                " samples in total, but the epoch has ", samples.size());
    for (const int64_t index : samples.indices)
      TORCH_CHECK(index >= 0 && index < size, "index ", index, " is not in the data set, which has ", size, " samples");
    std::unique_lock lock(mutex_);
    num_batches_ = 0;
    cancelled_ = true;
    ready_.wait(lock, [this] { return num_busy_ == 0; });
    cancelled_ = false;
    for (auto& slot : slots_) {
      slot.number = -1;
      if (slot.copied) slot.copied->wait();
    }
    seeds_ = {options_.seed, epoch};
    samples_ = std::move(samples);
    begins_ = std::move(begins);
    num_batches_ = static_cast<int64_t>(batch_sizes.size());
    num_taken_ = num_released_ = next_ = 0;
    work_.notify_all();
  }

  const Batch* next() {
    const int64_t num_released = wait_for_copies();
    const auto begin = Clock::now();
    Slot* slot = options_.num_workers == 0 ? prepare_next() : wait_for_next(num_released);
    counts_.waited += Clock::now() - begin;
    if (slot == nullptr) return nullptr;
    if (slot->error) throw DataError(*slot->error);
    ++next_;
    ++counts_.num_batches;
    for (const auto& [index, text] : slot->skipped) {
      if (reported_.insert(index).second) options_.report_skipped(text);
    }
    auto& batch = slot->batch;
    batch.size = static_cast<int64_t>(batch.positions.size());
    batch.images = slot->images.narrow(0, 0, batch.size);
    batch.targets = slot->targets.narrow(0, 0, batch.size);
    batch.copied = slot->copied.get();
    return &batch;
  }

  LoaderCounts counts() const { return counts_; }
  int64_t batch_size() const { return options_.batch_size; }

 private:
  int64_t batch_size(int64_t number) const { return begins_[static_cast<size_t>(number) + 1] - begins_[static_cast<size_t>(number)]; }
  Slot& slot_of(int64_t number) { return slots_[static_cast<size_t>(number) % slots_.size()]; }

  // Returns how many of the batches that next() has returned may be overwritten, after waiting until the device has copied them.
  int64_t wait_for_copies() {
    if (!options_.make_copy_event || next_ == 0) return next_;
    // Does not wait for the latest batch, because the device needs some work in its queue while the host prepares more.
    if (next_ > 1) slot_of(next_ - 2).copied->wait();
    return next_ - 1;
  }

  Slot* prepare_next() {
    if (next_ == num_batches_) return nullptr;
    Slot& slot = slot_of(next_);
    prepare(slot, next_, memory_);
    return &slot;
  }

  Slot* wait_for_next(int64_t num_released) {
    std::unique_lock lock(mutex_);
    num_released_ = num_released;
    work_.notify_one();
    if (next_ == num_batches_) return nullptr;
    counts_.num_ready += std::ranges::count_if(slots_, [&](const Slot& ready) { return ready.number >= next_; });
    Slot& slot = slot_of(next_);
    ready_.wait(lock, [&] { return slot.number == next_; });
    return &slot;
  }

  void work() {
    Memory memory;
    std::unique_lock lock(mutex_);
    const auto may_take = [this] { return num_taken_ < num_batches_ && num_taken_ < num_released_ + static_cast<int64_t>(slots_.size()); };
    while (true) {
      work_.wait(lock, [&] { return stopping_ || may_take(); });
      if (stopping_) return;
      const int64_t number = num_taken_++;
      Slot& slot = slot_of(number);
      ++num_busy_;
      lock.unlock();
      prepare(slot, number, memory);
      lock.lock();
      slot.number = number;
      --num_busy_;
      ready_.notify_one();
    }
  }

  // Memory that a thread reuses for each sample.
  struct Memory {
    Scratch scratch;
    PictureMemory picture;
  };

  // Returns early if the epoch is cancelled.
  void prepare(Slot& slot, int64_t number, Memory& memory) const {
    slot.error.reset();
    slot.skipped.clear();
    slot.batch.positions.clear();
    const int64_t size = batch_size(number);
    const auto begin = static_cast<size_t>(begins_[static_cast<size_t>(number)]);
    const auto end = begin + static_cast<size_t>(size);
    for (size_t i = begin; i < end && !cancelled_; ++i) {
      if (i + 1 < end) dataset_.prefetch(samples_.indices[i + 1]);
      if (write_sample(slot, samples_[i], memory)) slot.batch.positions.push_back(static_cast<int64_t>(i - begin));
      if (slot.error) return;
    }
    if (size >= kLargerBatch && static_cast<int64_t>(slot.skipped.size()) == size) {
      slot.error = fmt::format(
          "none of the {} samples of a batch can be read; check whether the data set's files are accessible; the first error is: {}", size,
          slot.skipped.front().second);
    }
  }

  // Writes the sample behind those of the slot's batch. Returns whether it belongs to the batch.
  bool write_sample(Slot& slot, const EpochSample& which, Memory& memory) const {
    const int64_t index = which.index;
    const auto row = static_cast<int64_t>(slot.batch.positions.size());
    try {
      Sample sample;
      try {
        sample = dataset_.read(index, memory.scratch);
        pipeline_.write(sample, seeds_, which, memory.picture, entry(slot.images, row),
                        dataset_.info().has_masks ? static_cast<uint8_t*>(entry(slot.targets, row)) : nullptr);
      } catch (const c10::Error&) {
        throw;
      } catch (const std::exception& error) {
        if (!options_.report_skipped) throw;
        slot.skipped.emplace_back(index, fmt::format("{}: {}", dataset_.describe(index), error.what()));
        return false;
      }
      write_target(sample.target, dataset_.info(), slot, entry(slot.targets, row));
      return true;
    } catch (const c10::Error& error) {
      slot.error = fmt::format("{}: {}", dataset_.describe(index), error.what_without_backtrace());
    } catch (const std::exception& error) {
      slot.error = fmt::format("{}: {}", dataset_.describe(index), error.what());
    }
    return false;
  }

  const Dataset& dataset_;
  const Pipeline pipeline_;
  const LoaderOptions options_;
  std::vector<Slot> slots_;
  Memory memory_;  // for batches that next() prepares
  LoaderCounts counts_;
  int64_t next_ = 0;                      // the batch that next() returns next
  std::unordered_set<int64_t> reported_;  // samples that were skipped in any epoch

  // State of the epoch; changed only while no worker is busy.
  EpochSeeds seeds_{options_.seed, 0};
  SampleList samples_;
  std::vector<int64_t> begins_;  // where each batch begins in samples_, followed by the end of the last batch

  std::mutex mutex_;               // guards the members below and each slot's number
  std::condition_variable work_;   // a worker may take a batch, or must stop
  std::condition_variable ready_;  // a worker has finished a batch
  int64_t num_batches_ = 0;
  int64_t num_taken_ = 0;
  int64_t num_released_ = 0;
  int64_t num_busy_ = 0;
  bool stopping_ = false;
  std::atomic<bool> cancelled_ = false;  // read without the lock
  std::vector<std::thread> threads_;
};

DataLoader::DataLoader(const Dataset& dataset, Pipeline pipeline, const LoaderOptions& options)
    : state_(std::make_unique<State>(dataset, std::move(pipeline), options)) {
  state_->start_threads();
}
DataLoader::~DataLoader() = default;

void DataLoader::start_epoch(int64_t epoch, SampleList samples, const std::vector<int64_t>& batch_sizes) {
  state_->start_epoch(epoch, std::move(samples), batch_sizes);
}
void DataLoader::start_epoch(int64_t epoch, std::vector<int64_t> indices) {
  const auto num_samples = static_cast<int64_t>(indices.size());
  std::vector<int64_t> batch_sizes;
  for (int64_t begin = 0; begin < num_samples; begin += batch_size()) batch_sizes.push_back(std::min(batch_size(), num_samples - begin));
  start_epoch(epoch, std::move(indices), batch_sizes);
}
const Batch* DataLoader::next() { return state_->next(); }
int64_t DataLoader::batch_size() const { return state_->batch_size(); }
LoaderCounts DataLoader::counts() const { return state_->counts(); }

}  // namespace trainer::data
