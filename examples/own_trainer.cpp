// A custom network and data set in the training loop of `trainer`. FOLDER is the run directory: a run that was stopped continues.
//   torchrun --nproc-per-node 2 --no-python ./own_trainer FOLDER [EPOCHS]
#include <torch/torch.h>
#include <trainer/trainer.h>

#include <iostream>

namespace data = trainer::data;
namespace models = trainer::models;
namespace nn = trainer::nn;
namespace optim = trainer::optim;
namespace task = trainer::task;

constexpr int kSide = 24, kClasses = 4;

struct NetShape : models::ModelOptions {
  std::vector<int64_t> input_shape() const override { return {1, kSide, kSide}; }
  int64_t num_outputs() const override { return kClasses; }
};

// Layers of LibTorch. Those of trainer/nn.h are faster on a CPU.
struct Net : models::Model {
  Net() : Model(NetShape()) { register_module("layers", layers); }
  torch::Tensor forward(const torch::Tensor& x) override { return layers->forward(x).flatten(1); }
  torch::nn::Sequential layers{torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 16, 3).stride(2)), torch::nn::BatchNorm2d(16),
                               torch::nn::ReLU(), torch::nn::Conv2d(16, kClasses, 3), torch::nn::AdaptiveAvgPool2d(1)};
};

// Grey images of stripes in four widths, which are the classes.
class Stripes : public data::Dataset {
 public:
  explicit Stripes(int64_t size) : size_(size) {}
  const data::DatasetInfo& info() const override { return info_; }
  int64_t size() const override { return size_; }
  // Loader threads call this at the same time, each with its own scratch.
  data::Sample read(int64_t index, data::Scratch& scratch) const override {
    const int64_t label = index % kClasses;
    scratch.bytes.clear();
    for (int64_t pixel = 0; pixel < kSide * kSide; ++pixel) scratch.bytes.push_back((pixel + index) / (label + 1) % 2 == 0 ? 0 : 255);
    return {.image = data::ImageView::whole(scratch.bytes.data(), 1, kSide, kSide), .target = {.label = label}};
  }

 private:
  data::DatasetInfo info_{.shape = {1, kSide, kSide}, .num_classes = kClasses};
  int64_t size_;
};

int main(int argc, char** argv) try {
  if (argc < 2) return std::cerr << "usage: own_trainer FOLDER [EPOCHS]\n", 2;
  const auto run = trainer::distributed::init_process_group();
  trainer::TrainerParts parts{
      .model = [](const auto&) { return std::make_shared<Net>(); },
      .task = trainer::make(task::task_registry(), "classification", trainer::make(nn::loss_registry(), nn::CrossEntropyOptions())),
      .optimizer = [](auto groups) { return trainer::make(optim::optimizer_registry(), optim::AdamWOptions{.lr = 0.01}, groups); },
      .train = std::make_shared<Stripes>(1000),
      .validation = std::make_shared<Stripes>(200),
      .train_transforms = {data::transform_registry().configure(data::RandomCropOptions{.size = kSide, .padding = 2}),
                           data::transform_registry().configure(data::RandomVerticalFlipOptions())},
      .lr_schedule = optim::lr_scheduler_registry().configure(optim::CosineOptions())};
  trainer::Trainer training(*run, std::move(parts),
                            {.plan = {.global_batch_size = 32, .epochs = argc > 2 ? std::stoll(argv[2]) : 3}, .run_directory = argv[1]});
  const auto end = training.run();
  const auto test = training.evaluate(std::make_shared<Stripes>(300));
  std::cout << end.reason + " " + std::to_string(trainer::reporting::value_of(test.metrics, "top1").value()) + "\n";
  run->shutdown();
} catch (const std::exception& error) {
  return std::cerr << "error: " << error.what() << "\n", 1;
}
