#include "inference/predictor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <functional>
#include <numeric>

#include "base/file.h"
#include "config/reader.h"
#include "data/image_file.h"
#include "data/operations/operations.h"
#include "data/threads.h"
#include "inference/place_model.h"
#include "inference/weights_by_name.h"
#include "models/model_registry.h"
#include "nn/batch_norm.h"
#include "nn/layers.h"
#include "trainer/error.h"
#include "trainer/inference.h"
#include "trainer/nn.h"

namespace trainer::inference {
namespace {

const Description& require_images(const Description& description) {
  const auto& samples = description.samples;
  if (samples.is_image && !samples.has_masks) return description;
  throw UsageError(fmt::format("{}: its network was trained on {}, which has no {}; give a network that classifies images",
                               description.source, description.dataset, samples.is_image ? "labels of whole images" : "images"));
}

std::shared_ptr<models::Model> make_model(const Description& description, const state::Tree& file, bool averaged,
                                          const device::Placement& placement) {
  // The seeds do not matter: the initial values are replaced, and predictions do not use dropout.
  const models::BuildContext context{.init_generator = at::make_generator<at::CPUGeneratorImpl>(0),
                                     .dropout_generator = at::globalContext().defaultGenerator(placement.device).clone(),
                                     .norm = nn::batch_norms()};
  try {
    const nn::NoInitialValues values_are_loaded;
    auto model = models::model_registry().make(description.model, context);
    load_weights(file, description.source, averaged, *model);
    return model;
  } catch (const OptionError& error) {
    throw UsageError(fmt::format("{}: model.{}: {}", description.source, error.member(), error.problem()));
  }
}

data::BatchLayout layout_of(const device::Placement& placement) {
  return {placement.input_dtype, placement.memory_format == torch::MemoryFormat::ChannelsLast};
}

}  // namespace

Predictor::Predictor(const Description& description, const state::Tree& file, bool averaged, const device::Placement& placement)
    : samples_(require_images(description).samples),
      model_(make_model(description, file, averaged, placement)),
      placement_(placement_for(*model_, placement)),
      tta_(description.tta),
      point_(read_operating_point(file, description.source, averaged, samples_)),
      reader_(samples_, description.transforms, layout_of(placement_)) {
  place_model(*model_, placement_);
  // Again, because the network was made in float32.
  if (placement_.dtype == torch::kFloat64) load_weights(file, description.source, averaged, *model_);
  model_->eval();
  nn::fix_weights(*model_);
  const auto& wanted = model_->input_shape();
  if (takes_shape(wanted, reader_.shape())) return;
  throw UsageError(fmt::format(
      "{}: model.name: {} takes samples of shape {}, but images have {} after dataset.validation_transforms; give a checkpoint whose "
      "transforms fit its network",
      description.source, description.model.name, input_shape_text(wanted), input_shape_text(reader_.shape())));
}

torch::Tensor Predictor::make_batch(int64_t num_images) const {
  auto sizes = reader_.shape();
  sizes.insert(sizes.begin(), num_images);
  return torch::zeros(sizes, torch::TensorOptions(reader_.layout().dtype)).contiguous(placement_.memory_format);
}

Outputs Predictor::compute(const torch::Tensor& images, bool with_features) {
  auto* const backbone_model = backbone();
  if (with_features && backbone_model == nullptr) throw std::logic_error("the network does not provide the features before its last layer");
  const torch::InferenceMode inference;
  const amp::AutocastGuard autocast(placement_.device.type(), placement_.autocast_dtype);
  Outputs outputs;
  const auto forward = [&](const torch::Tensor& view) {
    if (!with_features) return model_->forward(view);
    const auto features = backbone_model->forward_features(view);
    // The original image comes first, then other views of it.
    if (!outputs.features.defined()) outputs.features = features.flatten(1).to(torch::kFloat32).cpu();
    return backbone_model->forward_head(features);
  };
  const auto logits = task::average_over_views(images.to(placement_.device), tta_, forward);
  if (logits.dim() != 2 || logits.size(0) != images.size(0) || logits.size(1) != num_outputs()) {
    throw UsageError(fmt::format(
        "the network returns values of shape {}, but {} {} for each of {} images were expected; correct the network's forward()",
        fmt::join(logits.sizes(), "x"), num_outputs(), point_.kind == AnswerKind::kNumbers ? "numbers" : "classes", images.size(0)));
  }
  outputs.answers = answers_of(point_, logits).cpu();
  return outputs;
}

torch::Tensor Predictor::heatmaps(const torch::Tensor& images, std::span<const int64_t> labels) {
  auto* const network = dynamic_cast<models::FeatureMapModel*>(model_.get());
  const amp::AutocastGuard autocast(placement_.device.type(), placement_.autocast_dtype);
  torch::Tensor maps;
  if (network != nullptr) {
    const torch::NoGradGuard maps_have_no_history;
    maps = network->forward_maps(images.to(placement_.device)).to(placement_.dtype);
  }
  if (!maps.defined() || maps.dim() < 3)
    throw UsageError("this network has no maps of the image before its last layers, so there are no heat maps for it");
  maps.requires_grad_();
  const auto classes = torch::tensor(at::ArrayRef<int64_t>(labels.data(), labels.size())).to(placement_.device).unsqueeze(1);
  const auto scores = network->forward_head(network->pool_maps(maps)).gather(1, classes);
  auto gradients = torch::autograd::grad({scores.sum()}, {maps}).front();
  const torch::NoGradGuard no_gradients;
  if (maps.dim() == 3) {
    const auto side = static_cast<int64_t>(std::sqrt(static_cast<double>(maps.size(1) - 1)));
    const auto patches = [&](const torch::Tensor& tokens) {
      return tokens.slice(1, tokens.size(1) - side * side).transpose(1, 2).unflatten(2, {side, side});
    };
    gradients = patches(gradients);
    maps = patches(maps);
  }
  const auto to_unit_range = [](const torch::Tensor& heat) {
    constexpr double kEpsilon = 1e-7;  // of pytorch-grad-cam
    const auto positive = heat - heat.amin({2, 3}, /*keepdim=*/true);
    return positive / (positive.amax({2, 3}, /*keepdim=*/true) + kEpsilon);
  };
  const auto heat = (gradients.mean({2, 3}, /*keepdim=*/true) * maps).sum(1, /*keepdim=*/true).relu();
  const auto resized = at::upsample_bilinear2d(to_unit_range(heat), images.sizes().slice(2), /*align_corners=*/false);
  return to_unit_range(resized).squeeze(1).to(torch::kCPU, torch::kFloat32).contiguous();
}

std::vector<Prediction> Predictor::predict(std::span<const std::string> files, int64_t num_best, int num_threads, const Extras& extras) {
  std::vector<Prediction> predictions(files.size());
  const auto images = make_batch(static_cast<int64_t>(files.size()));
  auto* const bytes = static_cast<std::byte*>(images.data_ptr());
  const auto bytes_of_image = images.nbytes() / files.size();
  const auto always = [](size_t /*num_done*/) { return true; };
  data::for_each_in_threads<ImageReader::Memory>(files.size(), num_threads, always, [&](size_t i, ImageReader::Memory& memory) {
    try {
      reader_.read_file(files[i], memory, bytes + i * bytes_of_image);
    } catch (const Error&) {
      throw;
    } catch (const c10::Error& error) {
      predictions[i].problem = error.what_without_backtrace();
    } catch (const std::exception& error) {
      predictions[i].problem = error.what();
    }
  });
  const auto outputs = compute(images, extras.features);
  const auto num_all = static_cast<size_t>(num_outputs());
  for (size_t i = 0; i < predictions.size(); ++i) {
    if (!predictions[i].problem.empty()) continue;
    const auto row = static_cast<int64_t>(i);
    const std::span<const double> values(outputs.answers[row].const_data_ptr<double>(), num_all);
    if (point_.kind == AnswerKind::kNumbers) {
      predictions[i].numbers = {values.begin(), values.end()};
    } else {
      sort_classes(values, num_best, predictions[i]);
    }
    if (!extras.features) continue;
    const auto* feature = outputs.features[row].const_data_ptr<float>();
    predictions[i].features = {feature, feature + outputs.features.size(1)};
  }
  if (!extras.heatmap) return predictions;
  std::vector<int64_t> labels;
  for (const auto& prediction : predictions) labels.push_back(prediction.classes.empty() ? 0 : prediction.classes.front());
  const auto heat = heatmaps(images, labels).flatten(1);
  for (size_t i = 0; i < predictions.size(); ++i) {
    const auto* values = heat[static_cast<int64_t>(i)].const_data_ptr<float>();
    if (predictions[i].problem.empty()) predictions[i].heatmap = {values, values + heat.size(1)};
  }
  return predictions;
}

void Predictor::sort_classes(std::span<const double> probabilities, int64_t num_best, Prediction& prediction) const {
  const auto at = [](const auto& values, int64_t label) { return values[static_cast<size_t>(label)]; };
  std::function<bool(int64_t)> is_decided;
  if (point_.kind == AnswerKind::kClasses) {
    is_decided = [&](int64_t label) { return at(probabilities, label) >= at(point_.thresholds, label); };
  } else {
    const auto decision = decide(point_, probabilities);
    prediction.is_rejected = decision.is_rejected;
    is_decided = [label = decision.label](int64_t other) { return other == label; };
  }
  auto& classes = prediction.classes;
  classes.resize(probabilities.size());
  std::iota(classes.begin(), classes.end(), 0);
  const auto others = std::ranges::stable_partition(classes, is_decided);
  const auto is_more_probable = [&](int64_t one, int64_t other) { return at(probabilities, one) > at(probabilities, other); };
  std::stable_sort(classes.begin(), others.begin(), is_more_probable);
  std::stable_sort(others.begin(), classes.end(), is_more_probable);
  prediction.decided.assign(classes.begin(), others.begin());
  classes.resize(static_cast<size_t>(num_best));
  for (const auto label : classes) prediction.probabilities.push_back(at(probabilities, label));
}

bool takes_image_files(const data::DatasetInfo& samples) {
  return samples.is_image && samples.shape.size() == 3 &&
         (samples.shape[0] == 1 || samples.shape[0] == 3 || samples.decoding.has_float_pixels());
}

ImageFileInput input_of_image_files(data::DatasetInfo samples, std::vector<ComponentConfig> transforms) {
  auto& mode = samples.decoding.mode;
  if (!takes_image_files(samples)) {
    throw UsageError(
        "image files cannot be the input, because the network was trained on samples that are not grey or RGB images; give a network "
        "trained on images");
  }
  if (mode == data::ImageMode::kRgb && samples.shape[0] == 1) mode = data::ImageMode::kGrey;
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
    : decoding_(input.samples.decoding), pipeline_(input.transforms, input.samples, layout) {}

void ImageReader::read_file(const std::string& path, Memory& memory, void* out) const {
  read_encoded(read_bytes(path, memory.file), memory, out);
}

void ImageReader::read_encoded(std::span<const uint8_t> file, Memory& memory, void* out) const { write({.encoded = file}, memory, out); }

void ImageReader::read_pixels(int height, int width, Memory& memory, void* out) const {
  auto& pixels = memory.pixels;
  if (decoding_.has_float_pixels()) {
    throw UsageError(
        fmt::format("the network needs images of dataset.mode: {}, not 8-bit pixels; use image files", data::name_of(decoding_.mode)));
  }
  write({.image = decoding_.mode == data::ImageMode::kGrey
                      ? data::make_grey(pixels, height, width)
                      : data::ImageView::whole(pixels.data(), 3, height, width, data::PixelOrder::kInterleaved)},
        memory, out);
}

void ImageReader::write(const data::Sample& sample, Memory& memory, void* out) const {
  pipeline_.write(sample, {/*seed=*/0, /*number=*/0}, {/*index=*/0}, memory.picture, out);
}

}  // namespace trainer::inference
