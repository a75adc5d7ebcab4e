#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <memory>
#include <semaphore>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "base/file.h"
#include "base/file_lock.h"
#include "base/signal.h"
#include "base/text.h"
#include "commands/command.h"
#include "commands/data.h"
#include "commands/pictures.h"
#include "commands/sample_progress.h"
#include "config/reader.h"
#include "data/image_file.h"
#include "data/picture.h"
#include "data/transforms/transform.h"
#include "datasets/lmdb.h"
#include "datasets/lmdb_file.h"

namespace trainer::commands {
namespace {

namespace fs = std::filesystem;
using data::Split;

struct Part {
  const char* title;
  const char* folder;  // in the output
  Split split;
  std::unique_ptr<data::Dataset> source;
};

void throw_if_stopped() {
  if (stop_signal() != 0) throw Error("stopped on request; the same command continues", ExitCode::kStopped);
}

// Creates the folder `output`, and returns the lock of the file that marks it as an unfinished data set. Throws UsageError if `output`
// holds a finished data set, and Error if another process has the lock.
FileLock begin_output(const fs::path& output, Logger& logger) {
  const auto marker = output / datasets::kUnfinished;
  if (!fs::exists(marker)) {
    for (const char* name : {datasets::kPackedTrain, datasets::kPackedValidation}) {
      if (fs::exists(output / name)) {
        throw UsageError(
            fmt::format("--output {0}: {0}/{1} exists already; give another --output, or remove {0}/{1} if you no longer need it",
                        output.string(), name));
      }
    }
  }
  std::error_code error;
  fs::create_directories(output, error);
  if (error) throw Error(fmt::format("cannot create {}: {}", output.string(), explain_refusal(output, error)));
  // This program's marker is empty or describes a process, and is removed at the end; any other file is not a marker and must be kept.
  if (fs::is_regular_file(marker) && fs::file_size(marker) > 0 && !read_file(marker).starts_with("process ")) {
    throw UsageError(
        fmt::format("--output: {} was not written by this program, which marks unfinished data sets with a file of this name; name "
                    "another folder",
                    marker.string()));
  }
  FileLock lock(marker, {.logger = &logger});
  if (lock.is_held()) return lock;
  if (lock.error() == std::errc::operation_would_block) {
    throw Error(fmt::format("{} is packing into {}; wait for it, or name another folder",
                            lock.other().empty() ? "another process" : lock.other(), output.string()));
  }
  throw Error(fmt::format("cannot write {}: {}", marker.string(), explain_refusal(marker, lock.error())));
}

// The folder with which the names of all samples begin; empty if they have none in common.
std::string folder_of_names(const data::Dataset& source) {
  std::string folder;
  for (int64_t i = 0; i < source.size(); ++i) {
    const auto [name, key, group, index] = source.origin(i);
    if (!name.ends_with(key)) return "";
    if (i == 0) folder = name.substr(0, name.size() - key.size());
    if (name != folder + key) return "";
  }
  return folder;
}

// Throws UsageError if a column of a CSV file defines groups: packing would lose them, and dataset.split could then divide a group.
void refuse_groups(const data::Dataset& source) {
  if (source.size() == 0 || source.origin(0).group.empty()) return;
  throw UsageError(
      "dataset.group_column: a packed data set does not keep the groups of a CSV file; remove this key, and set dataset.split.group to "
      "find the groups in the paths");
}

// The transform `resize` that makes the shorter edge `size` pixels long; null if `size` is not set.
std::shared_ptr<const data::ImageTransform> make_resize(std::optional<int64_t> size) {
  if (!size) return nullptr;
  const auto& registry = data::transform_registry();
  const auto components = config::read_components("[resize: {size: " + std::to_string(*size) + "}]", "--resize", registry);
  return std::get<std::shared_ptr<const data::ImageTransform>>(registry.make(components.front()));
}

// Prepares the entries of a packed data set in several threads, a few ahead, and returns them in the order of the samples.
class EntryQueue {
 public:
  // Begins with sample `begin`. `source` must outlive the queue.
  EntryQueue(const data::Dataset& source, const datasets::PackOptions& options, int64_t begin, int num_threads)
      : source_(source), options_(options), resize_(make_resize(options.resize)), num_taken_(begin), next_(begin) {
    constexpr int kSlotsPerThread = 4;
    slots_.resize(static_cast<size_t>(kSlotsPerThread * num_threads));
    free_.release(kSlotsPerThread * num_threads);
    for (int i = 0; i < num_threads; ++i) threads_.emplace_back([this](const std::stop_token& stop) { work(stop); });
  }
  ~EntryQueue() {
    for (auto& thread : threads_) thread.request_stop();
    free_.release(std::ssize(threads_));
  }

  // The entry of the next sample, which must exist. Rethrows the exception of its preparation: std::runtime_error with only the reason if
  // the sample cannot be read.
  std::string next() {
    auto& slot = slot_of(next_++);
    slot.entry.wait();
    auto entry = std::exchange(slot, {}).entry;
    free_.release();
    return entry.get();
  }

 private:
  struct Slot {
    std::promise<std::string> promise;  // moved to the thread that prepares the entry
    std::future<std::string> entry = promise.get_future();
  };

  Slot& slot_of(int64_t index) { return slots_[static_cast<size_t>(index) % slots_.size()]; }

  void work(const std::stop_token& stop) {
    data::Scratch scratch;
    data::PictureMemory memory;
    while (true) {
      free_.acquire();
      const int64_t index = num_taken_++;
      if (stop.stop_requested() || index >= source_.size()) return;
      // Not kept in the slot, which next() replaces as soon as the entry is ready, while set_value() may still be running.
      auto promise = std::move(slot_of(index).promise);
      try {
        promise.set_value(make(source_.read(index, scratch), memory));
      } catch (...) {
        promise.set_exception(std::current_exception());
      }
    }
  }

  std::string make(const data::Sample& sample, data::PictureMemory& memory) const {
    constexpr int kQuality = 95;  // of images that are resized but not stored as pixels
    const bool is_file = !sample.encoded.empty();
    const bool stays_file = is_file && !options_.raw;
    if (stays_file && !resize_) return datasets::file_entry(sample.encoded);
    auto picture = is_file ? data::Picture(sample.encoded, memory, source_.info().decoding) : data::Picture(sample.image, memory);
    const bool is_larger = options_.resize && std::min(picture.height(), picture.width()) > *options_.resize;
    if (!is_larger && stays_file) return datasets::file_entry(sample.encoded);
    if (!is_larger && !is_file) return datasets::pixels_entry(sample.image);
    // The resizing uses no random numbers.
    const data::EpochSeeds seeds(0, 0);
    data::SampleRandom unused(seeds, {});
    if (is_larger) resize_->apply(picture, unused);
    if (stays_file) {
      const auto rgb = rgb_of(picture);
      return datasets::file_entry(data::encode_jpeg(rgb.pixels.data(), rgb.height, rgb.width, kQuality));
    }
    const auto pixels = picture.pixels();
    return datasets::pixels_entry(
        data::ImageView::whole(pixels.data, pixels.channels, pixels.height, pixels.width, data::PixelOrder::kInterleaved));
  }

  const data::Dataset& source_;
  datasets::PackOptions options_;
  std::shared_ptr<const data::ImageTransform> resize_;  // null: keep the sizes
  std::vector<Slot> slots_;                             // of the samples that are prepared or taken, by their index
  std::counting_semaphore<> free_{0};                   // slots
  std::atomic<int64_t> num_taken_;
  int64_t next_;
  std::vector<std::jthread> threads_;
};

datasets::PackInfo pack_info(const config::Experiment& experiment, const data::DatasetFactory& factory, const data::Dataset& source,
                             const datasets::PackOptions& options) {
  datasets::PackInfo info{.source = experiment.dataset.component.name,
                          .num_samples = source.size(),
                          .samples = source.info(),
                          .transforms = factory.default_transforms,
                          .folder = folder_of_names(source),
                          .options = options};
  auto& shape = info.samples.shape;
  if (options.resize && std::min(shape[1], shape[2]) > *options.resize) {
    const auto after = make_resize(options.resize)->plan({static_cast<int>(shape[1]), static_cast<int>(shape[2])});
    shape[1] = after.height;
    shape[2] = after.width;
  }
  return info;
}

void write_part(const Part& part, datasets::PackWriter& writer, const config::Experiment& experiment, const PackArguments& arguments,
                int num_threads, Logger& logger) {
  const auto& source = *part.source;
  int64_t index = writer.num_written();
  if (index > 0 && index < source.size()) logger.info("{}: continues after {} of {} samples", part.title, index, source.size());
  SampleProgress progress(fmt::format("{}: packed", part.title), logger, index);
  EntryQueue entries(source, arguments.options, index, num_threads);
  for (; index < source.size(); ++index) {
    try {
      writer.add(entries.next());
    } catch (const Error&) {
      throw;
    } catch (const std::runtime_error& reason) {
      const auto text = fmt::format("{}: {}", source.describe(index), reason.what());
      if (experiment.dataset.on_error == config::OnError::kFail) {
        writer.commit();
        throw DataError(
            fmt::format("{} {}; put a good file in its place and continue with the same command, or set dataset.on_error=skip to "
                        "pack the others (`trainer data check` lists all unreadable files)",
                        part.title, text));
      }
      progress.log_above([&] { logger.warn("skipped (dataset.on_error: skip): {}", text); });
      writer.add(datasets::unreadable_entry(reason.what()));
    }
    progress.update(index + 1, source.size());
    if (stop_signal() != 0) break;
  }
  writer.commit();
  throw_if_stopped();
}

// Reads a finished part completely and compares the checksums.
void verify_part(const Part& part, const fs::path& output, Logger& logger) {
  const auto packed = datasets::open_packed(output, part.split);
  SampleProgress progress(fmt::format("{}: compared", part.title), logger);
  // Samples are prefetched this many positions before they are compared.
  constexpr int64_t kAhead = 16;
  for (int64_t index = 0; index < packed->size(); ++index) {
    if (index + kAhead < packed->size()) packed->prefetch(index + kAhead);
    try {
      packed->check(index);
    } catch (const std::runtime_error& reason) {
      throw DataError(fmt::format("{} {} was stored incorrectly: {}; remove {} and pack again, on another disk if this repeats", part.title,
                                  packed->describe(index), reason.what(), output.string()));
    }
    progress.update(index + 1, packed->size());
    throw_if_stopped();
  }
}

}  // namespace

void add_pack_options(CLI::App& app, PackArguments& arguments) {
  app.add_option("--output", arguments.output, "folder of the packed data set")->required()->type_name("DIR");
  app.add_flag("--raw", arguments.options.raw, "store pixels instead of image files: larger, but nothing is decoded in training");
  app.add_option("--resize", arguments.options.resize,
                 "shrink larger images so that the shorter edge has this length; image files become JPEG files of quality 95")
      ->check(CLI::Range(int64_t{1}, static_cast<int64_t>(data::kMaxPixels)));
}

void pack(const config::Experiment& experiment, const PackArguments& arguments, int num_threads) {
  install_stop_handlers();
  const auto logger = make_console_logger();
  const auto& [output, options] = arguments;
  const auto factory = datasets::dataset_registry().make(experiment.dataset.component);
  if (!factory.info.is_image) {
    throw UsageError(fmt::format("dataset.name: {} has no images to pack", experiment.dataset.component.name));
  }
  if (factory.info.has_masks) {
    throw UsageError(fmt::format("dataset.name: {} has masks, which a packed data set cannot hold", experiment.dataset.component.name));
  }
  std::vector<Part> parts;
  parts.push_back({"training", datasets::kPackedTrain, Split::kTrain, factory.open(Split::kTrain, *logger)});
  if (factory.has_validation) {
    parts.push_back({"validation", datasets::kPackedValidation, Split::kValidation, factory.open(Split::kValidation, *logger)});
  }
  for (const auto& part : parts) refuse_groups(*part.source);
  if (factory.info.decoding.has_float_pixels() && (options.raw || options.resize)) {
    throw UsageError(fmt::format("{}: images of dataset.mode: {} are always packed as their original files; remove this option",
                                 options.raw ? "--raw" : "--resize", data::name_of(factory.info.decoding.mode)));
  }
  const auto lock = begin_output(output, *logger);
  if (!factory.has_validation && fs::exists(output / datasets::kPackedValidation)) {
    throw UsageError(
        fmt::format("{}: this unfinished copy was begun with validation images, which {} does not have now; add them again, or remove "
                    "the folder",
                    output.string(), experiment.dataset.component.name));
  }
  // The constructors compare the data set with an unfinished output, so that a difference is reported before any sample is read.
  std::vector<std::unique_ptr<datasets::PackWriter>> writers;
  for (const auto& part : parts) {
    writers.push_back(
        std::make_unique<datasets::PackWriter>(output / part.folder, pack_info(experiment, factory, *part.source, options), *part.source));
  }
  for (size_t i = 0; i < parts.size(); ++i) write_part(parts[i], *writers[i], experiment, arguments, num_threads, *logger);
  writers.clear();
  for (const auto& part : parts) verify_part(part, output, *logger);
  fs::remove(output / datasets::kUnfinished);
  flush_folder(output);
  int64_t num_samples = 0;
  uint64_t num_bytes = 0;
  for (const auto& part : parts) {
    num_samples += part.source->size();
    num_bytes += fs::file_size(datasets::lmdb_file(output / part.folder));
  }
  print_written(output, "{}, {}, checksums compared", counted(num_samples, "sample"), format_bytes(num_bytes));
}

}  // namespace trainer::commands
