#include <gmock/gmock.h>

#include "config/load.h"
#include "run/recipe/build.h"
#include "run/recipe/registries.h"
#include "run/samples/open_samples.h"
#include "tests/testing/temporary_folder.h"
#include "trainer/error.h"

namespace trainer::samples {
namespace {

using data::Split;

config::Experiment experiment_on(const std::string& dataset) {
  const auto text = "experiment: test\nmodel: {name: demo_conv}\ntraining: {epochs: 1}\ndataset: " + dataset;
  return config::load_text(text, "test.yaml", {}, recipe::all_registries());
}

engine::Samples open(const config::Experiment& experiment, Split split) {
  return open_split(experiment, datasets::dataset_registry().make(experiment.dataset.component), split, *make_quiet_logger());
}

std::vector<int64_t> indices_of(const engine::Samples& samples) {
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < samples.size(); ++i) indices.push_back(samples.dataset().origin(i).index);
  return indices;
}

TEST(OpenSplit, HasTheSamplesOfTheTraining) {
  for (const char* part : {"0", "0.25"}) {
    const auto experiment = experiment_on(
        std::string("{name: synthetic, shape: [3, 32, 32], num_classes: 10, num_train: 40, num_validation: 12, validation_split: ") + part +
        "}");
    const auto both = open_samples(experiment, *make_quiet_logger());
    for (const auto& [split, source] : {std::pair(Split::kTrain, &both.train), std::pair(Split::kValidation, &both.validation.value())}) {
      const auto alone = open(experiment, split);
      EXPECT_EQ(indices_of(alone), indices_of(*source));
      EXPECT_EQ(alone.dataset().label(5), source->dataset().label(5));
    }
  }
}

TEST(OpenSplit, ClassesOfOneImageHoldOutNoneUnlessStratifyIsOff) {
  const auto error_of = [](const std::string& more) -> std::string {
    // The three images of this data set are of different classes.
    const auto experiment =
        experiment_on("{name: synthetic, shape: [3, 32, 32], num_classes: 1000, num_train: 3, num_validation: 3, " + more + "}");
    try {
      open(experiment, Split::kTrain);
    } catch (const UsageError& error) {
      const std::string text = error.what();
      return text.substr(text.find("dataset."));
    }
    return "no error";
  };
  const std::string begin = "dataset.validation_split: ";
  EXPECT_EQ(error_of("validation_split: 0.3"),
            begin +
                "0.3 of 3 images leaves no images for training or none for validation, because no class has more than one image, and each "
                "class keeps one for training; set dataset.stratify: false to hold out images regardless of their class");
  EXPECT_EQ(error_of("validation_split: 0.3, stratify: false"), "no error");
  EXPECT_EQ(error_of("validation_split: 0.1"),
            begin + "0.1 of 3 images leaves no images for training or none for validation; choose another fraction");
  EXPECT_EQ(error_of("validation_split: 0.9"),
            begin + "0.9 of 3 images leaves no images for training or none for validation; choose another fraction");
}

TEST(OpenSplit, TheValidationSetNeedsNoTrainingFiles) {
  const testing::TemporaryFolder folder;
  std::filesystem::copy(TRAINER_SOURCE_DIR "/datasets/cifar10_sample/cifar-10-batches-bin/test_batch.bin", folder.path());
  const auto experiment = experiment_on("{name: cifar10, root: " + folder.path().string() + "}");
  EXPECT_EQ(open(experiment, Split::kValidation).size(), 500);
  EXPECT_THROW(open(experiment, Split::kTrain), DataError);
}

// The data set of a plug-in may have an empty split.
TEST(OpenSplit, AnEmptySetIsRefused) {
  struct Numbers : data::Dataset {
    explicit Numbers(int64_t size) : num_samples(size) {}
    const data::DatasetInfo& info() const override { return info_; }
    int64_t size() const override { return num_samples; }
    data::Sample read(int64_t, data::Scratch&) const override { return {}; }

    int64_t num_samples;
    data::DatasetInfo info_{.shape = {3, 32, 32}, .num_classes = 10};
  };
  const auto experiment = experiment_on("{name: synthetic, shape: [3, 32, 32], num_classes: 10, validation_split: 0}");
  const auto factory_of = [](int64_t num_train, int64_t num_validation) {
    return data::DatasetFactory{.info = Numbers(0).info(), .open = [=](Split split, Logger&) {
                                  return std::make_unique<Numbers>(split == Split::kTrain ? num_train : num_validation);
                                }};
  };
  const std::string begin = "test.yaml:4:17: dataset.name: synthetic has no ";
  const std::string end = " samples; add some, or use another data set";
  EXPECT_THAT([&] { open_samples(experiment, factory_of(5, 0), *make_quiet_logger()); },
              ::testing::ThrowsMessage<DataError>(begin + "validation" + end));
  EXPECT_THAT([&] { open_split(experiment, factory_of(0, 5), Split::kTrain, *make_quiet_logger()); },
              ::testing::ThrowsMessage<DataError>(begin + "training" + end));
}

}  // namespace
}  // namespace trainer::samples
