// Implements libtrainer_predict (trainer/predict.h).

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <exception>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "checkpoint/store.h"
#include "device/cuda_module.h"
#include "inference/description.h"
#include "inference/predictor.h"
#include "trainer/checkpoint.h"
#include "trainer/error.h"
#include "trainer/predict.h"

using trainer::UsageError;
using trainer::inference::ImageReader;

struct trainer_predictor {
  explicit trainer_predictor(trainer::inference::Predictor made) : predictor(std::move(made)) {
    for (int64_t label = 0; label < predictor.num_outputs(); ++label) {
      const auto& named = predictor.output_names();
      class_names.push_back(named.empty() ? std::to_string(label) : named[static_cast<size_t>(label)]);
    }
    if (predictor.has_features()) num_features = compute(predictor.make_batch(1), /*with_features=*/true).features.size(1);
  }

  trainer::inference::Outputs compute(const torch::Tensor& images, bool with_features) {
    const std::scoped_lock lock(mutex);
    return predictor.compute(images, with_features);
  }

  trainer::inference::Predictor predictor;
  std::vector<std::string> class_names;
  std::mutex mutex;  // guards the network
  int64_t num_features = 0;
};

namespace {

void write_error(std::string_view message, char* error, size_t error_size) {
  if (error == nullptr || error_size == 0) return;
  // The message may quote names of a file that are not UTF-8.
  const auto text = trainer::printable(message);
  auto length = std::min(text.size(), error_size - 1);
  // Do not cut a UTF-8 character.
  while (length > 0 && length < text.size() && (static_cast<unsigned char>(text[length]) & 0xC0) == 0x80) --length;
  std::memcpy(error, text.data(), length);
  error[length] = '\0';
}

// Calls `work` and writes the message of an exception to `error`. Returns whether `work` succeeded.
template <class Work>
bool succeeds(char* error, size_t error_size, const Work& work) noexcept {
  try {
    work();
    return true;
  } catch (const c10::Error& failure) {
    write_error(failure.what_without_backtrace(), error, error_size);
  } catch (const std::exception& failure) {
    write_error(failure.what(), error, error_size);
  } catch (...) {
    write_error("unknown error", error, error_size);
  }
  return false;
}

// Only the process that opens the first predictor has LibTorch's threads: in one that fork() makes of it, a computation would wait for them
// for ever.
void refuse_forked_process() {
  static std::atomic<pid_t> first{0};
  pid_t expected = 0;
  if (first.compare_exchange_strong(expected, ::getpid()) || expected == ::getpid()) return;
  throw UsageError(fmt::format(
      "process {} has opened a predictor and then called fork(), and LibTorch cannot compute in the new process; open the first "
      "predictor after fork(), or start the process with exec()",
      expected));
}

trainer::device::Placement place(trainer::device::PlacementOptions options, const char* device) {
  using trainer::device::DeviceChoice;
  if (device != nullptr) {
    const std::string_view name(device);
    if (name != "cpu" && name != "cuda") throw UsageError(fmt::format("the device \"{}\" is neither cpu nor cuda", name));
    options.device = name == "cpu" ? DeviceChoice::kCpu : DeviceChoice::kCuda;
  }
  // Predictions do not use CUDA graphs.
  options.cuda_graph = trainer::device::CudaGraphChoice::kOff;
  trainer::device::CudaAccess cuda;
  if (options.device != DeviceChoice::kCpu) cuda = trainer::device::open_cuda_module();
  return trainer::device::choose_placement(options, {.num_threads = at::get_num_threads()}, cuda);
}

// The number of bytes of a pixel, and the positions of red, green and blue in it.
struct PixelForm {
  int64_t size;
  std::array<int, 3> positions;
};
constexpr std::array<PixelForm, 5> kForms = {{{3, {0, 1, 2}}, {3, {2, 1, 0}}, {4, {0, 1, 2}}, {4, {2, 1, 0}}, {1, {0, 0, 0}}}};

void check(const trainer_image& image) {
  constexpr int32_t kMost = 32768;
  if (image.pixels == nullptr) throw UsageError("its pixels are a null pointer");
  if (image.height < 1 || image.width < 1 || image.height > kMost || image.width > kMost) {
    throw UsageError(fmt::format("it has {} x {} pixels; height and width must be from 1 to {}", image.height, image.width, kMost));
  }
  if (image.order < 0 || image.order >= static_cast<int32_t>(kForms.size()))
    throw UsageError(fmt::format("its order {} is not valid; use TRAINER_RGB or another constant of trainer/predict.h", image.order));
  const auto row = kForms[static_cast<size_t>(image.order)].size * image.width;
  if (image.stride != 0 && image.stride < row) {
    throw UsageError(fmt::format("its stride {2} is too small: a row of {0} pixels has {1} bytes", image.width, row, image.stride));
  }
}

// Writes red, green and blue of each pixel to `to`, [height][width][3].
void copy_colours(const trainer_image& image, std::vector<uint8_t>& to) {
  const auto& form = kForms[static_cast<size_t>(image.order)];
  const auto stride = image.stride == 0 ? form.size * image.width : image.stride;
  to.resize(static_cast<size_t>(image.height) * static_cast<size_t>(image.width) * 3);
  auto* out = to.data();
  for (int64_t y = 0; y < image.height; ++y) {
    const auto* pixel = image.pixels + y * stride;
    for (int32_t x = 0; x < image.width; ++x, pixel += form.size) {
      for (const int position : form.positions) *out++ = pixel[position];
    }
  }
}

using ReadImage = std::function<void(size_t i, const ImageReader& reader, ImageReader::Memory& memory, void* out)>;

void predict(trainer_predictor* opened, size_t count, const ReadImage& read, double* probabilities, float* features) {
  refuse_forked_process();
  if (opened == nullptr) throw UsageError("the argument predictor is a null pointer");
  auto& predictor = *opened;
  if (probabilities == nullptr) throw UsageError("the argument probabilities is a null pointer");
  if (features != nullptr && !predictor.predictor.has_features()) {
    throw UsageError("this network does not separate its features from its last layer; pass a null pointer for features");
  }
  if (count == 0) return;
  const auto images = predictor.predictor.make_batch(static_cast<int64_t>(count));
  auto* const bytes = static_cast<std::byte*>(images.data_ptr());
  const auto bytes_of_image = images.nbytes() / count;
  ImageReader::Memory memory;
  for (size_t i = 0; i < count; ++i) read(i, predictor.predictor.reader(), memory, bytes + i * bytes_of_image);
  const auto outputs = predictor.compute(images, features != nullptr);
  std::memcpy(probabilities, outputs.answers.contiguous().const_data_ptr(), outputs.answers.nbytes());
  if (features != nullptr) std::memcpy(features, outputs.features.contiguous().const_data_ptr(), outputs.features.nbytes());
}

// Reads the only image, the content of a file.
ReadImage read_encoded(const void* bytes, size_t size) {
  if (bytes == nullptr || size == 0) throw UsageError("the image file has no bytes");
  return [=](size_t, const ImageReader& reader, ImageReader::Memory& memory, void* out) {
    reader.read_encoded({static_cast<const uint8_t*>(bytes), size}, memory, out);
  };
}

ReadImage read_pixels(const trainer_image* images) {
  return [=](size_t i, const ImageReader& reader, ImageReader::Memory& memory, void* out) {
    const auto& image = images[i];
    try {
      check(image);
    } catch (const UsageError& failure) {
      throw UsageError(fmt::format("image {}: {}", i, failure.what()));
    }
    copy_colours(image, memory.pixels);
    reader.read_pixels(image.height, image.width, memory, out);
  };
}

void write_heatmap(trainer_predictor* opened, const ReadImage& read, int64_t label, float* heatmap) {
  refuse_forked_process();
  if (opened == nullptr || heatmap == nullptr) throw UsageError("the argument predictor or heatmap is a null pointer");
  auto& predictor = opened->predictor;
  if (label < 0 || label >= predictor.num_outputs())
    throw UsageError(fmt::format("the label {} is not that of a class; labels are from 0 to {}", label, predictor.num_outputs() - 1));
  const auto image = predictor.make_batch(1);
  ImageReader::Memory memory;
  read(0, predictor.reader(), memory, image.data_ptr());
  const std::scoped_lock lock(opened->mutex);
  const auto heat = predictor.heatmaps(image, {&label, 1});
  std::memcpy(heatmap, heat.const_data_ptr(), heat.nbytes());
}

}  // namespace

trainer_predictor* trainer_predict_open(const char* checkpoint, const char* device, int flags, char* error, size_t error_size) {
  trainer_predictor* opened = nullptr;
  succeeds(error, error_size, [&] {
    if (checkpoint == nullptr) throw UsageError("the argument checkpoint is a null pointer");
    if ((flags & ~TRAINER_AVERAGED) != 0) throw UsageError(fmt::format("the flags {} are neither 0 nor TRAINER_AVERAGED", flags));
    refuse_forked_process();
    const auto file = trainer::checkpoint::checkpoint_of(checkpoint).string();
    const auto tree = trainer::checkpoint::load(file);
    const auto description = trainer::inference::read_description(tree, file);
    const auto placement = place(description.placement, device);
    opened = new trainer_predictor({description, tree, (flags & TRAINER_AVERAGED) != 0, placement});
  });
  return opened;
}

void trainer_predict_close(trainer_predictor* predictor) { delete predictor; }

int64_t trainer_predict_num_classes(const trainer_predictor* predictor) { return predictor->predictor.num_outputs(); }

int trainer_predict_kind(const trainer_predictor* predictor) {
  using trainer::inference::AnswerKind;
  const auto kind = predictor->predictor.operating_point().kind;
  return kind == AnswerKind::kClass ? TRAINER_ONE_CLASS : kind == AnswerKind::kClasses ? TRAINER_ANY_CLASSES : TRAINER_NUMBERS;
}

double trainer_predict_threshold(const trainer_predictor* predictor, int64_t label) {
  const auto& thresholds = predictor->predictor.operating_point().thresholds;
  return label < 0 || label >= static_cast<int64_t>(thresholds.size()) ? NAN : thresholds[static_cast<size_t>(label)];
}

const char* trainer_predict_class_name(const trainer_predictor* predictor, int64_t label) {
  const auto& names = predictor->class_names;
  return label < 0 || label >= static_cast<int64_t>(names.size()) ? nullptr : names[static_cast<size_t>(label)].c_str();
}

int64_t trainer_predict_num_features(const trainer_predictor* predictor) { return predictor->num_features; }

int trainer_predict_file(trainer_predictor* predictor, const char* path, double* probabilities, float* features, char* error,
                         size_t error_size) {
  return !succeeds(error, error_size, [&] {
    if (path == nullptr) throw UsageError("the argument path is a null pointer");
    const auto read = [&](size_t, const ImageReader& reader, ImageReader::Memory& memory, void* out) {
      try {
        reader.read_file(path, memory, out);
      } catch (const trainer::Error&) {
        throw;
      } catch (const std::exception& failure) {
        throw std::runtime_error(fmt::format("{}: {}", path, failure.what()));
      }
    };
    predict(predictor, 1, read, probabilities, features);
  });
}

int trainer_predict_encoded(trainer_predictor* predictor, const void* bytes, size_t size, double* probabilities, float* features,
                            char* error, size_t error_size) {
  return !succeeds(error, error_size, [&] { predict(predictor, 1, read_encoded(bytes, size), probabilities, features); });
}

int trainer_predict_images(trainer_predictor* predictor, const trainer_image* images, size_t count, double* probabilities, float* features,
                           char* error, size_t error_size) {
  return !succeeds(error, error_size, [&] {
    if (images == nullptr && count > 0) throw UsageError("the argument images is a null pointer");
    predict(predictor, count, read_pixels(images), probabilities, features);
  });
}

void trainer_predict_input_size(const trainer_predictor* predictor, int32_t* height, int32_t* width) {
  const auto& shape = predictor->predictor.reader().shape();
  if (height != nullptr) *height = static_cast<int32_t>(shape[1]);
  if (width != nullptr) *width = static_cast<int32_t>(shape[2]);
}

int trainer_predict_heatmap_encoded(trainer_predictor* predictor, const void* bytes, size_t size, int64_t label, float* heatmap,
                                    char* error, size_t error_size) {
  return !succeeds(error, error_size, [&] { write_heatmap(predictor, read_encoded(bytes, size), label, heatmap); });
}

int trainer_predict_heatmap(trainer_predictor* predictor, const trainer_image* image, int64_t label, float* heatmap, char* error,
                            size_t error_size) {
  return !succeeds(error, error_size, [&] {
    if (image == nullptr) throw UsageError("the argument image is a null pointer");
    write_heatmap(predictor, read_pixels(image), label, heatmap);
  });
}

int64_t trainer_predict_decide(const trainer_predictor* predictor, const double* probabilities) {
  if (predictor == nullptr || probabilities == nullptr) return -1;
  const auto& network = predictor->predictor;
  if (network.operating_point().kind != trainer::inference::AnswerKind::kClass) return -1;
  const auto decision = trainer::inference::decide(network.operating_point(), {probabilities, static_cast<size_t>(network.num_outputs())});
  return decision.is_rejected ? -1 : decision.label;
}
