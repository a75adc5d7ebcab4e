#include "run/session/predictor.h"

#include <fmt/format.h>

#include <atomic>
#include <exception>
#include <thread>

#include "config/reader.h"
#include "data/image_file.h"
#include "data/operations/operations.h"
#include "datasets/image_files.h"
#include "run/session/build.h"
#include "run/session/check.h"
#include "run/session/network_file.h"
#include "train/task/task.h"
#include "trainer/amp.h"
#include "trainer/error.h"

namespace trainer::session {
namespace {

data::DatasetInfo require_classes(data::DatasetInfo samples, const config::Experiment& experiment, const std::string& file) {
  if (samples.is_image && samples.has_labels()) return samples;
  throw UsageError(fmt::format("{}: its network was trained on {}, which has no {}; give a network that classifies images", file,
                               experiment.dataset.component.name,
                               !samples.is_image   ? "images"
                               : samples.has_masks ? "labels of whole images"
                                                   : "classes"));
}

engine::Network build_trained(const config::Experiment& experiment, const NetworkFile& file, bool averaged,
                              const device::Placement& placement) {
  auto network = build_network(experiment, placement);
  file.load_weights(averaged, *network.model);
  network.model->eval();
  return network;
}

data::BatchLayout layout_of(const device::Placement& placement) {
  return {placement.input_dtype, placement.memory_format == torch::MemoryFormat::ChannelsLast};
}

// Calls work(i, memory) for each i below `count`, in up to `num_threads` threads. Throws what one of them has thrown.
void for_each_file(size_t count, int num_threads, const std::function<void(size_t, ImageReader::Memory&)>& work) {
  std::atomic<size_t> next = 0;
  std::vector<std::exception_ptr> failures(static_cast<size_t>(num_threads));
  const auto run = [&](size_t thread) {
    try {
      ImageReader::Memory memory;
      for (size_t i = next++; i < count; i = next++) work(i, memory);
    } catch (...) {
      failures[thread] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> threads;
    for (size_t i = 1; i < std::min(count, failures.size()); ++i) threads.emplace_back(run, i);
    run(0);
  }
  for (const auto& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace

Predictor::Predictor(const config::Experiment& experiment, const NetworkFile& file, bool averaged, const device::Placement& placement)
    : samples_(require_classes(samples_of(experiment, file), experiment, file.path())),
      network_(build_trained(experiment, file, averaged, placement)),
      tta_(experiment.validation.tta),
      reader_(samples_, experiment.dataset.validation_transforms, layout_of(network_.placement)) {
  const auto& wanted = network_.model->input_shape();
  if (takes_shape(wanted, reader_.shape())) return;
  throw UsageError(fmt::format("{}: model.name: {} takes samples of shape {}, but images have {} after dataset.validation_transforms",
                               file.path(), experiment.model.component.name, input_shape_text(wanted), input_shape_text(reader_.shape())));
}

std::vector<Prediction> Predictor::predict(std::span<const std::string> files, int64_t num_best, int num_threads) {
  const auto& placement = network_.placement;
  std::vector<Prediction> predictions(files.size());
  std::vector<int64_t> sizes = reader_.shape();
  sizes.insert(sizes.begin(), static_cast<int64_t>(files.size()));
  const auto images = torch::zeros(sizes, torch::TensorOptions(reader_.layout().dtype)).contiguous(placement.memory_format);
  auto* const bytes = static_cast<std::byte*>(images.data_ptr());
  const auto bytes_of_image = images.nbytes() / files.size();
  for_each_file(files.size(), num_threads, [&](size_t i, ImageReader::Memory& memory) {
    try {
      reader_.read(files[i], memory, bytes + i * bytes_of_image);
    } catch (const Error&) {
      throw;
    } catch (const c10::Error& error) {
      predictions[i].problem = error.what_without_backtrace();
    } catch (const std::exception& error) {
      predictions[i].problem = error.what();
    }
  });
  const torch::InferenceMode inference;
  const amp::AutocastGuard autocast(placement.device.type(), placement.autocast_dtype);
  const auto input = images.to(placement.device);
  torch::Tensor features;
  const auto forward = [&](const torch::Tensor& view) {
    if (!adds_features_) return network_.model->forward(view);
    const auto of_view = backbone()->forward_features(view);
    // Those of the image as it is come first.
    if (!features.defined()) features = of_view.flatten(1).to(torch::kFloat32).cpu();
    return backbone()->forward_head(of_view);
  };
  const auto outputs = task::average_over_views(input, tta_, forward);
  const auto probabilities = outputs.to(torch::kFloat64).softmax(1).cpu();
  const auto [values, classes] = probabilities.topk(num_best, 1);
  for (size_t i = 0; i < predictions.size(); ++i) {
    if (!predictions[i].problem.empty()) continue;
    const auto row = static_cast<int64_t>(i);
    const auto* best = classes[row].const_data_ptr<int64_t>();
    const auto* value = values[row].const_data_ptr<double>();
    predictions[i].classes = {best, best + num_best};
    predictions[i].probabilities = {value, value + num_best};
    if (!adds_features_) continue;
    const auto* feature = features[row].const_data_ptr<float>();
    predictions[i].features = {feature, feature + features.size(1)};
  }
  return predictions;
}

namespace {

// [height][width] of the same memory as the pixels, [height][width][3].
data::ImageView make_grey(std::vector<uint8_t>& pixels, int height, int width) {
  const data::PixelArray image{.data = pixels.data(), .channels = 3, .height = height, .width = width};
  data::to_grayscale(image);
  for (size_t i = 0; i < image.num_pixels(); ++i) pixels[i] = pixels[3 * i];
  return data::ImageView::whole(pixels.data(), 1, height, width);
}

}  // namespace

ImageFileInput input_of_image_files(data::DatasetInfo samples, std::vector<ComponentConfig> transforms) {
  const bool is_readable = samples.is_image && samples.shape.size() == 3 && (samples.shape[0] == 1 || samples.shape[0] == 3);
  if (!is_readable) throw UsageError("the network was not trained on grey or colour images, so that image files cannot be its input");
  if (samples.shape[1] != data::kAnySize) {
    const auto resize = fmt::format("[{{resize: {{size: [{}, {}]}}}}]", samples.shape[1], samples.shape[2]);
    transforms.insert(transforms.begin(), config::read_components(resize, "the size of an image", data::transform_registry()).front());
    samples.shape = {samples.shape[0], data::kAnySize, data::kAnySize};
  }
  return {std::move(samples), std::move(transforms)};
}

ImageReader::ImageReader(const data::DatasetInfo& samples, std::vector<ComponentConfig> transforms, data::BatchLayout layout)
    : ImageReader(input_of_image_files(samples, std::move(transforms)), layout) {}

ImageReader::ImageReader(const ImageFileInput& input, data::BatchLayout layout)
    : is_grey_(input.samples.shape[0] == 1), pipeline_(input.transforms, input.samples, layout) {}

void ImageReader::read(const std::string& path, Memory& memory, void* out) const {
  const auto file = datasets::read_bytes(path, memory.file);
  data::Sample sample;
  if (is_grey_) {
    const auto image = data::decode_image(file, memory.pixels);
    sample.image = make_grey(memory.pixels, image.height, image.width);
  } else {
    sample.encoded = file;
  }
  pipeline_.write(sample, {/*seed=*/0, /*number=*/0}, {/*index=*/0}, memory.picture, out);
}

}  // namespace trainer::session
