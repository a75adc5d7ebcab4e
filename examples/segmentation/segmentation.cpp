// Semantic segmentation as a plug-in: a data set of images and masks, a loss and a task for pixels, and a small U-Net (Ronneberger et al.,
// 2015). The task measures the mean intersection over union, like torchmetrics' MulticlassJaccardIndex.

#include <torch/torch.h>
#include <trainer/error.h>
#include <trainer/registry.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace {

namespace data = trainer::data;
namespace fs = std::filesystem;
namespace nn = torch::nn;
namespace reporting = trainer::reporting;
namespace task = trainer::task;

// root/train/images/1.jpg, root/train/masks/1.png, root/validation/…
struct MaskedFolderOptions {
  std::string root;
  std::vector<std::string> classes;

  void describe(trainer::KeyTable& keys) {
    keys.add("root", root, {.doc = "Folder with train and validation, each with images and masks.", .required = true, .is_path = true});
    keys.set_facts("root", {.affects_features = true, .samples = trainer::KeyFacts::Samples::kAll});
    keys.add("classes", classes, {.doc = "Names of the labels 0, 1, …", .required = true, .may_be_empty = false});
  }
};

class MaskedFolder : public data::Dataset {
 public:
  MaskedFolder(data::DatasetInfo info, fs::path folder) : info_(std::move(info)), folder_(std::move(folder)) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder_ / "images", error)) images_.push_back(entry.path());
    if (images_.empty()) throw trainer::DataError((folder_ / "images").string() + " holds no images; set dataset.root to another folder");
    std::ranges::sort(images_);
    for (const auto& image : images_) {
      if (!fs::exists(mask_of(image))) throw trainer::DataError(image.string() + " has no mask " + mask_of(image).string() + "; add it");
    }
  }

  const data::DatasetInfo& info() const override { return info_; }
  int64_t size() const override { return static_cast<int64_t>(images_.size()); }
  data::SampleOrigin origin(int64_t index) const override {
    const auto& image = images_[static_cast<size_t>(index)];
    return {image.string(), image.filename().string(), "", index};
  }

  data::Sample read(int64_t index, data::Scratch& scratch) const override {
    const auto& image = images_[static_cast<size_t>(index)];
    read_file(mask_of(image), scratch.bytes);
    auto mask = data::decode_image(scratch.bytes, scratch.mask);
    // The label is the grey value, which all three channels have; an image with a palette gives its colours.
    const auto num_pixels = static_cast<size_t>(mask.height) * static_cast<size_t>(mask.width);
    for (size_t i = 0; i < num_pixels; ++i) {
      const auto* pixel = mask.pixels + 3 * i;
      if (pixel[0] != pixel[1] || pixel[0] != pixel[2]) throw std::runtime_error(mask_of(image).string() + " is not grey");
      scratch.mask[i] = pixel[0];
    }
    mask = data::ImageView::whole(scratch.mask.data(), 1, mask.height, mask.width);
    read_file(image, scratch.bytes);
    return {.encoded = scratch.bytes, .target = {.mask = mask}};
  }

 private:
  fs::path mask_of(const fs::path& image) const { return folder_ / "masks" / image.stem().concat(".png"); }
  static void read_file(const fs::path& file, std::vector<uint8_t>& bytes) {
    std::ifstream stream(file, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(stream), {});
    if (stream.bad() || bytes.empty()) throw std::runtime_error(file.string() + " cannot be read");
  }

  data::DatasetInfo info_;
  fs::path folder_;
  std::vector<fs::path> images_;
};

data::DatasetFactory make_masked_folder(const MaskedFolderOptions& options) {
  const data::DatasetInfo info{.shape = {3, data::kAnySize, data::kAnySize},
                               .num_classes = static_cast<int64_t>(options.classes.size()),
                               .class_names = options.classes,
                               .has_masks = true};
  return {.info = info, .open = [info, root = fs::path(options.root)](data::Split split, trainer::Logger&) {
            return std::make_unique<MaskedFolder>(info, root / (split == data::Split::kTrain ? "train" : "validation"));
          }};
}

struct UNetOptions : trainer::models::ClassifierOptions {
  int64_t width = 16;

  void describe(trainer::KeyTable& keys) {
    describe_num_classes(keys);
    describe_in_channels(keys);
    keys.add("width", width, {.min = 1, .max = 512, .doc = "Channels of the first layer; each of the two lower levels doubles them."});
  }
  std::vector<int64_t> input_shape() const override { return {num_channels(), -1, -1}; }
};

nn::Sequential two_convolutions(int64_t in, int64_t out) {
  nn::Sequential layers;
  for (const int64_t channels : {in, out}) {
    layers->push_back(nn::Conv2d(nn::Conv2dOptions(channels, out, 3).padding(1).bias(false)));
    layers->push_back(nn::BatchNorm2d(out));
    layers->push_back(nn::ReLU());
  }
  return layers;
}

// Outputs [N, classes, H, W]. Height and width of the images must be multiples of 4.
class UNet : public trainer::models::Model {
 public:
  explicit UNet(const UNetOptions& options) : Model(options) {
    const auto width = options.width;
    down1_ = register_module("down1", two_convolutions(options.num_channels(), width));
    down2_ = register_module("down2", two_convolutions(width, 2 * width));
    middle_ = register_module("middle", two_convolutions(2 * width, 4 * width));
    up2_ = register_module("up2", two_convolutions(6 * width, 2 * width));
    up1_ = register_module("up1", two_convolutions(3 * width, width));
    outputs_ = register_module("outputs", nn::Conv2d(nn::Conv2dOptions(width, options.num_outputs(), 1)));
  }

  torch::Tensor forward(const torch::Tensor& x) override {
    TORCH_CHECK(x.size(2) % 4 == 0 && x.size(3) % 4 == 0, "unet needs a height and width that are multiples of 4, not ", x.size(2), " x ",
                x.size(3));
    const auto first = down1_->forward(x);
    const auto second = down2_->forward(torch::max_pool2d(first, 2));
    const auto third = middle_->forward(torch::max_pool2d(second, 2));
    const auto above = up2_->forward(torch::cat({second, doubled(third)}, 1));
    return outputs_->forward(up1_->forward(torch::cat({first, doubled(above)}, 1)));
  }

 private:
  static torch::Tensor doubled(const torch::Tensor& x) { return torch::upsample_nearest2d(x, {2 * x.size(2), 2 * x.size(3)}); }

  nn::Sequential down1_{nullptr}, down2_{nullptr}, middle_{nullptr}, up2_{nullptr}, up1_{nullptr};
  nn::Conv2d outputs_{nullptr};
};

// Returns the mean over the pixels with a class, for each image. Callers average over images, not over pixels, so that the result does not
// depend on how the images are divided among ranks.
torch::Tensor mean_over_pixels(const torch::Tensor& of_pixels, const torch::Tensor& targets) {
  const auto num_pixels = targets.ne(data::kNoClass).sum({1, 2}).clamp_min(1);
  return of_pixels.sum({1, 2}) / num_pixels;
}

struct NoOptions {
  void describe(trainer::KeyTable&) {}
};

class PixelCrossEntropy : public trainer::nn::Loss {
 public:
  torch::Tensor operator()(const torch::Tensor& outputs, const torch::Tensor& targets) const override {
    const auto options = nn::functional::CrossEntropyFuncOptions().ignore_index(data::kNoClass).reduction(torch::kNone);
    return mean_over_pixels(nn::functional::cross_entropy(outputs, targets.to(torch::kInt64), options), targets).mean();
  }
  bool has_classes() const override { return true; }
};

reporting::MetricInfo percent(std::string name) {
  return {.name = std::move(name), .higher_is_better = true, .format = reporting::MetricFormat::kPercent};
}

class PixelMeter : public task::ValidationMeter {
 public:
  PixelMeter(torch::Device device, int64_t num_classes, int64_t num_batches)
      : ValidationMeter(device, num_batches),
        num_classes_(num_classes),
        counts_(torch::zeros({num_classes * num_classes + 1}, torch::TensorOptions(device).dtype(torch::kInt64))) {}

  void add(const task::EvaluatedBatch& batch, const torch::Tensor& loss, const torch::Tensor& outputs,
           const torch::Tensor& targets) override {
    ValidationMeter::add(batch, loss, outputs, targets);
    // Pixels without a class are counted in the last place.
    const auto cells = targets.to(torch::kInt64) * num_classes_ + outputs.argmax(1);
    const auto places = cells.masked_fill(targets.eq(data::kNoClass), num_classes_ * num_classes_).flatten();
    counts_.scatter_add_(0, places, torch::ones_like(places));
  }

  task::Measurement read(const trainer::distributed::ProcessGroup& group) override {
    auto measured = ValidationMeter::read(group);
    group.all_reduce(counts_);
    const auto confusion = group.to_host(counts_).narrow(0, 0, num_classes_ * num_classes_).view({num_classes_, num_classes_});
    const auto hits = confusion.diagonal();
    // The mean is over the classes that occur or were predicted.
    const auto unions = confusion.sum(0) + confusion.sum(1) - hits;
    const auto ious = (hits.to(torch::kFloat64) / unions).masked_select(unions > 0);
    const auto num_pixels = confusion.sum().item<double>();
    measured.metrics.push_back({percent("pixel_accuracy"), task::mean_of(hits.sum().item<double>(), num_pixels)});
    measured.metrics.push_back({percent("mean_iou"), num_pixels == 0 ? 0 : ious.mean().item<double>()});
    return measured;
  }

 private:
  int64_t num_classes_;
  torch::Tensor counts_;  // int64: the number of pixels of each actual and predicted class, then of those without a class
};

class Segmentation : public task::Task {
 public:
  using Task::Task;

  // A mean over the images, like the loss; the pixel accuracy of validation is a mean over all pixels.
  std::vector<task::MeanMetric> train_metrics() const override {
    return {{percent("image_accuracy"), [](const torch::Tensor& outputs, const torch::Tensor& targets) {
               return mean_over_pixels(outputs.argmax(1).eq(targets).to(torch::kFloat64), targets).sum();
             }}};
  }
  std::vector<reporting::MetricInfo> validation_metrics() const override { return {percent("pixel_accuracy"), percent("mean_iou")}; }
  std::string default_metric() const override { return "mean_iou"; }

  std::unique_ptr<task::ValidationMeter> make_validation_meter(torch::Device device, int64_t num_classes,
                                                               int64_t num_batches) const override {
    return std::make_unique<PixelMeter>(device, num_classes, num_batches);
  }

  std::vector<Mismatch> mismatches(const Setup& setup) const override {
    if (!setup.has_masks) {
      return {{"dataset.name", setup.dataset + " has no masks, which segmentation needs; use masked_folder"}};
    }
    if (setup.loss != "pixel_cross_entropy") return {{"loss.name", setup.loss + " is not a loss for pixels; use pixel_cross_entropy"}};
    return {};
  }
};

}  // namespace

TRAINER_PLUGIN() {
  trainer::register_dataset<MaskedFolderOptions>("masked_folder", "Images, and PNG files of the same names with the label of each pixel.",
                                                 make_masked_folder);
  trainer::register_model<UNetOptions>("unet", "A U-Net of two levels.",
                                       [](const auto& options, const auto&) { return std::make_shared<UNet>(options); });
  trainer::register_loss<NoOptions>("pixel_cross_entropy", "Cross entropy of each pixel.",
                                    [](const auto&) { return std::make_unique<PixelCrossEntropy>(); });
  trainer::register_task<NoOptions>("segmentation", "The class of each pixel; measures pixel accuracy and mean intersection over union.",
                                    [](const auto&, auto loss) { return std::make_unique<Segmentation>(std::move(loss)); });
}
