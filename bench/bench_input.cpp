// The input pipeline of the program for bench.py, by default on one thread: CIFAR-10 with crop, flip and normalise, or image files or a
// packed data set with ImageNet's transforms.

#include <ATen/Parallel.h>

#include <CLI/CLI.hpp>

#include "base/log.h"
#include "bench/serve.h"
#include "config/load.h"
#include "data/data_loader.h"
#include "data/sharded_sampler.h"
#include "datasets/dataset_registry.h"
#include "run/recipe/registries.h"

namespace {

constexpr const char* kCifar =
    "experiment: bench\nmodel: {name: resnet20}\ntraining: {epochs: 1}\ndataset:\n  name: cifar10\n  train_transforms:\n"
    "    - random_crop: {size: 32, padding: 4}\n    - random_horizontal_flip\n"
    "    - normalize: {mean: [0.4914, 0.4822, 0.4465], std: [0.2470, 0.2435, 0.2616]}\n";
// With the data set's default transforms.
constexpr const char* kImages = "experiment: bench\nmodel: {name: resnet18}\ntraining: {epochs: 1}\ndataset:\n  name: ";

}  // namespace

int main(int argc, char** argv) {
  using namespace trainer;
  CLI::App app("The input pipeline, measured by bench.py");
  std::string dtype = "float32";
  std::string data;
  int64_t batch_size = 128;
  bool channels_last = false;
  std::string dataset_name = "cifar10";
  bool rand_augment = false;
  int64_t num_workers = 0;
  app.add_option("--batch-size", batch_size);
  app.add_option("--dtype", dtype)->check(CLI::IsMember({"float32", "bfloat16"}));
  app.add_flag("--channels-last", channels_last);
  app.add_option("--dataset", dataset_name)->check(CLI::IsMember({"cifar10", "image_folder", "lmdb"}));
  app.add_flag("--rand-augment", rand_augment, "RandAugment before the normalisation of CIFAR-10");
  app.add_option("--workers", num_workers);
  app.add_option("--data", data)->required();
  CLI11_PARSE(app, argc, argv);

  at::set_num_threads(1);
  static const auto registries = recipe::all_registries();
  const auto text = dataset_name == "cifar10" ? kCifar : kImages + dataset_name;
  auto experiment = config::load_text(text, "bench", {"dataset.root=" + data}, registries);
  auto& transforms = experiment.dataset.train_transforms;
  if (rand_augment) transforms.insert(transforms.end() - 1, registries.transforms.configure("rand_augment"));
  const auto logger = make_quiet_logger();
  const auto dataset = datasets::dataset_registry().make(experiment.dataset.component).open(data::Split::kTrain, *logger);
  const data::Pipeline pipeline(transforms, dataset->info(), {dtype == "float32" ? torch::kFloat32 : torch::kBFloat16, channels_last});
  data::DataLoader loader(*dataset, pipeline, {.batch_size = batch_size, .num_workers = num_workers});
  data::ShardedSampler sampler(data::sampler_registry().make(experiment.dataloader.sampler, {.dataset = *dataset, .files = *dataset}), {});
  int64_t epoch = 0;
  bool started = false;
  bench::serve({{"dtype", dtype}, {"channels_last", channels_last}}, [&](int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      const auto* batch = started ? loader.next() : nullptr;
      // Drops an incomplete last batch, like drop_last.
      if (batch != nullptr && batch->size == batch_size) continue;
      sampler.set_epoch(epoch);
      loader.start_epoch(epoch++, sampler.samples().indices);
      started = true;
      loader.next();
    }
    return nlohmann::json::object();
  });
}
