#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "cli/arguments.h"
#include "commands/command.h"
#include "commands/output.h"
#include "datasets/registry.h"
#include "input/image_file.h"
#include "input/pipeline.h"
#include "session/random_streams.h"
#include "session/registries.h"

namespace trainer::commands {
namespace {

constexpr int kMargin = 2;

// Training images as they are transformed in epoch 0, in rows and columns; without `normalize`, whose values are not colours.
input::RgbImage draw_grid(const config::Experiment& experiment, const input::Dataset& dataset, int64_t count) {
  auto transforms = experiment.dataset.train_transforms;
  std::erase_if(transforms, [](const config::ComponentConfig& transform) { return transform.name == "normalize"; });
  const input::Pipeline pipeline(transforms, dataset.info(), {});
  const auto& shape = pipeline.output_shape();
  const auto channels = static_cast<int>(shape[0]);
  const auto height = static_cast<int>(shape[1]);
  const auto width = static_cast<int>(shape[2]);
  const auto columns = static_cast<int>(std::ceil(std::sqrt(static_cast<double>(count))));
  const auto rows = static_cast<int>((count + columns - 1) / columns);
  input::RgbImage grid{rows * (height + kMargin) + kMargin, columns * (width + kMargin) + kMargin, {}};
  grid.pixels.assign(static_cast<size_t>(grid.height) * static_cast<size_t>(grid.width) * 3, 255);

  const input::EpochSeeds seeds(session::augmentation_seed(experiment), /*number=*/0);
  input::Scratch scratch;
  input::PictureMemory memory;
  std::vector<float> values(static_cast<size_t>(channels) * static_cast<size_t>(height) * static_cast<size_t>(width));
  for (int64_t i = 0; i < count; ++i) {
    pipeline.write(dataset.read(i, scratch), seeds, i, memory, values.data());
    const int top = kMargin + static_cast<int>(i) / columns * (height + kMargin);
    const int left = kMargin + static_cast<int>(i) % columns * (width + kMargin);
    for (int y = 0; y < height; ++y) {
      for (int x = 0; x < width; ++x) {
        for (int c = 0; c < 3; ++c) {
          const float value = values[static_cast<size_t>((std::min(c, channels - 1) * height + y) * width + x)];
          grid.pixels[static_cast<size_t>(((top + y) * grid.width + left + x) * 3 + c)] = static_cast<uint8_t>(std::lround(value * 255.0F));
        }
      }
    }
  }
  return grid;
}

}  // namespace

ExitCode data(const std::vector<std::string>& args) {
  CLI::App app("Shows a data set.", "trainer data");
  app.require_subcommand(1);
  auto* show = app.add_subcommand("show", "write a picture of training images, transformed as in training");
  config::ExperimentSource source;
  cli::add_experiment(*show, source);
  std::filesystem::path output;
  int64_t count = 64;
  show->add_option("--output", output, "the picture (.png or .jpg)")->required()->type_name("FILE");
  show->add_option("--count", count, "number of images")->check(CLI::Range(int64_t{1}, int64_t{10000}));
  cli::parse(app, args);

  const auto experiment = config::load(source.file, source.overrides, session::all_registries());
  const auto logger = make_console_logger();
  const auto dataset = datasets::dataset_registry().make(experiment.dataset.component).open(datasets::Split::kTrain, *logger);
  if (!dataset->info().is_image) throw UsageError(fmt::format("dataset.name: {} has no images to show", experiment.dataset.component.name));
  count = std::min(count, dataset->size());
  input::write_image_file(output, draw_grid(experiment, *dataset, count));
  print("{}: {} of {} training images\n", output.string(), count, dataset->size());
  return ExitCode::kDone;
}

}  // namespace trainer::commands
