#include "commands/pack_samples.h"

#include <algorithm>
#include <span>
#include <utility>
#include <variant>

#include "config/reader.h"
#include "data/image_file.h"

namespace trainer::commands {
namespace {

// Of images that are resized, but not stored as pixels.
constexpr int kJpegQuality = 95;

// Makes entries; one for each thread.
class EntryMaker {
 public:
  // `resize`: null if options.resize is not set.
  EntryMaker(const datasets::PackOptions& options, const data::ImageTransform* resize) : options_(options), resize_(resize) {}

  std::string make(const data::Sample& sample) {
    const bool is_file = !sample.encoded.empty();
    const bool stays_file = is_file && !options_.raw;
    if (stays_file && resize_ == nullptr) return datasets::file_entry(sample.encoded);
    auto picture = is_file ? data::Picture(sample.encoded, memory_) : data::Picture(sample.image, memory_);
    const bool is_larger = options_.resize && std::min(picture.height(), picture.width()) > *options_.resize;
    if (!is_larger && stays_file) return datasets::file_entry(sample.encoded);
    if (!is_larger && !is_file) return datasets::pixels_entry(sample.image);
    if (is_larger) resize_->apply(picture, random_);
    const auto pixels = picture.pixels();
    if (stays_file) return datasets::file_entry(data::encode_jpeg(pixels.data, pixels.height, pixels.width, kJpegQuality));
    return datasets::pixels_entry(
        data::ImageView::whole(pixels.data, pixels.channels, pixels.height, pixels.width, data::PixelOrder::kInterleaved));
  }

 private:
  const datasets::PackOptions& options_;
  const data::ImageTransform* resize_;
  data::PictureMemory memory_;
  // A resize draws nothing from it.
  data::EpochSeeds seeds_{0, 0};
  data::SampleRandom random_{seeds_, {}};
};

}  // namespace

std::shared_ptr<const data::ImageTransform> make_resize(std::optional<int64_t> size) {
  if (!size) return nullptr;
  const auto& registry = data::transform_registry();
  const auto components = config::read_components("[resize: {size: " + std::to_string(*size) + "}]", "--resize", registry);
  return std::get<std::shared_ptr<const data::ImageTransform>>(registry.make(components.front()));
}

EntryQueue::EntryQueue(const data::Dataset& source, const datasets::PackOptions& options, int64_t begin, int num_threads)
    : source_(source), options_(options), resize_(make_resize(options.resize)), num_taken_(begin), next_(begin) {
  constexpr size_t kSlotsPerThread = 4;
  slots_.resize(kSlotsPerThread * static_cast<size_t>(num_threads));
  for (int i = 0; i < num_threads; ++i) threads_.emplace_back([this] { work(); });
}

EntryQueue::~EntryQueue() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
}

std::string EntryQueue::next() {
  std::unique_lock lock(mutex_);
  auto& slot = slot_of(next_);
  ready_.wait(lock, [&] { return slot.index == next_; });
  ++next_;
  auto entry = std::move(slot.entry);
  const auto error = std::exchange(slot.error, nullptr);
  work_.notify_one();
  if (error) std::rethrow_exception(error);
  return entry;
}

void EntryQueue::work() {
  EntryMaker maker(options_, resize_.get());
  data::Scratch scratch;
  std::unique_lock lock(mutex_);
  const auto may_take = [this] { return num_taken_ < source_.size() && num_taken_ < next_ + static_cast<int64_t>(slots_.size()); };
  while (true) {
    work_.wait(lock, [&] { return stopping_ || may_take(); });
    if (stopping_) return;
    const int64_t index = num_taken_++;
    lock.unlock();
    auto& slot = slot_of(index);
    try {
      slot.entry = maker.make(source_.read(index, scratch));
    } catch (...) {
      slot.error = std::current_exception();
    }
    lock.lock();
    slot.index = index;
    ready_.notify_one();
  }
}

}  // namespace trainer::commands
