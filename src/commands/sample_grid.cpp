#include "commands/sample_grid.h"

#include <fmt/format.h>

#include "commands/image_grid.h"
#include "data/pipeline.h"
#include "session/random_streams.h"
#include "trainer/error.h"

namespace trainer::commands {

data::RgbImage draw_sample_grid(const config::Experiment& experiment, const data::Dataset& dataset, const data::SampleList& samples,
                                int64_t epoch) {
  const data::Pipeline pipeline(without_normalize(experiment.dataset.train_transforms), dataset.info(),
                                {torch::kFloat32, /*channels_last=*/true});
  const data::EpochSeeds seeds(session::augmentation_seed(experiment), epoch);
  data::Scratch scratch;
  data::PictureMemory memory;
  return draw_image_grid(pipeline.output_shape(), static_cast<int64_t>(samples.size()), [&](int64_t i, float* out) {
    const auto which = samples[static_cast<size_t>(i)];
    try {
      const auto sample = dataset.read(which.index, scratch);
      pipeline.write(sample, seeds, which, memory, out);
      return dataset.info().has_labels() ? drawable_class_name(dataset.info().class_names, sample.target.label) : "";
    } catch (const std::runtime_error& error) {
      throw DataError(fmt::format("{}: {}", dataset.describe(which.index), error.what()));
    }
  });
}

}  // namespace trainer::commands
