// Networks with initial values that depend on the training images.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "inference/weights_by_name.h"
#include "models/model_registry.h"
#include "nn/batch_norm.h"
#include "tests/testing/ranks.h"
#include "tests/testing/small_run.h"
#include "tests/testing/temporary_folder.h"
#include "trainer/error.h"

namespace trainer::engine {
namespace {

const std::string kFitText =
    "experiment: fit\n"
    "model: {name: airbench, widths: [8, 8, 8]}\n"
    "dataset: {name: synthetic, shape: [3, 32, 32], num_classes: 10, num_train: 40, num_validation: 8}\n"
    "dataloader: {global_batch_size: 12}\n"
    "runtime: {threads: 1, channels_last: false}\namp: {enabled: false}\n"
    "training: {epochs: 1}\n";

torch::Tensor first_layer_of(const Parts& parts) { return parts.network.model->named_buffers()["whiten.weight"].clone(); }

torch::Tensor first_layer_without_data() {
  const auto component = testing::SmallSession(kFitText).context.experiment().model.component;
  auto generator = at::detail::createCPUGenerator(1);
  return models::model_registry()
      .make(component, {.init_generator = generator, .dropout_generator = generator, .norm = nn::batch_norms()})
      ->named_buffers()["whiten.weight"];
}

torch::Tensor images_of(const data::Dataset& dataset, int64_t first) {
  std::vector<torch::Tensor> images;
  data::Scratch scratch;
  for (int64_t i = first; i < dataset.size(); ++i) {
    const auto values = dataset.read(i, scratch).values;
    images.push_back(torch::tensor(std::vector<float>(values.begin(), values.end())).view({3, 32, 32}));
  }
  return torch::stack(images);
}

TEST(FitModel, UsesTheFirstTrainingImages) {
  testing::SmallSession run(kFitText);
  auto& parts = run.parts();
  const auto fitted = first_layer_of(parts);
  EXPECT_FALSE(torch::equal(fitted, first_layer_without_data()));
  parts.network.model->fit(images_of(parts.data.train.samples.dataset(), 0));
  EXPECT_TRUE(torch::equal(first_layer_of(parts), fitted));
}

// Another data set, of which the first images cannot be read.
class DamagedImages : public data::Dataset {
 public:
  DamagedImages(const data::Dataset& all, int64_t num_damaged) : all_(all), num_damaged_(num_damaged) {}
  const data::DatasetInfo& info() const override { return all_.info(); }
  int64_t size() const override { return all_.size(); }
  data::Sample read(int64_t index, data::Scratch& scratch) const override {
    if (index < num_damaged_) throw std::runtime_error("the file is damaged");
    return all_.read(index, scratch);
  }

 private:
  const data::Dataset& all_;
  int64_t num_damaged_;
};

TEST(FitModel, PassesOverImagesThatCannotBeRead) {
  testing::SmallSession run(kFitText);
  auto& parts = run.parts();
  const auto& all = parts.data.train.samples.dataset();
  const data::Pipeline pipeline({}, all.info(), {});
  inference::fit_model(*parts.network.model, DamagedImages(all, 2), pipeline);
  const auto fitted = first_layer_of(parts);
  parts.network.model->fit(images_of(all, 2));
  EXPECT_TRUE(torch::equal(first_layer_of(parts), fitted));
  EXPECT_THAT([&] { inference::fit_model(*parts.network.model, DamagedImages(all, all.size()), pipeline); },
              ::testing::ThrowsMessage<DataError>("sample 0: the file is damaged"));
}

TEST(FitModel, WithoutValidationToo) {
  const auto expected = first_layer_of(testing::SmallSession(kFitText).parts());
  testing::SmallSession run(kFitText, {"validation.every_epochs=null"});
  EXPECT_TRUE(torch::equal(first_layer_of(run.parts()), expected));
}

TEST(FitModel, AllRanksStartWithTheSameValues) {
  const auto expected = first_layer_of(testing::SmallSession(kFitText).parts());
  testing::run_ranks(3, [&](distributed::ProcessGroups& groups) {
    testing::SmallSession run(kFitText, {}, make_ranks(groups));
    EXPECT_TRUE(torch::equal(first_layer_of(run.parts()), expected));
  });
}

TEST(FitModel, AResumedRunKeepsTheValuesOfItsCheckpoint) {
  const testing::TemporaryFolder folder;
  rank::RankContext context(testing::SmallSession::on_cpu(testing::SmallSession::load(kFitText, {})), {.num_threads = 2},
                            make_quiet_logger());
  const auto make_recipe = [&] {
    auto recipe = rank::recipe_of(context);
    recipe.options.run_directory = folder.path();
    return recipe;
  };
  testing::Recorder events;
  int num_calls = 0;
  torch::Tensor expected;
  {
    auto recipe = make_recipe();
    session::Session straight(context.this_rank(), recipe);
    straight.train(events, [&] { return num_calls++ == 2; });
    expected = first_layer_of(straight.parts());
  }
  auto recipe = make_recipe();
  session::Session resumed(context.this_rank(), recipe);
  EXPECT_TRUE(torch::equal(first_layer_of(resumed.parts()), first_layer_without_data())) << "computed, although the checkpoint has them";
  resumed.train(events, [] { return false; });
  EXPECT_TRUE(torch::equal(first_layer_of(resumed.parts()), expected));
}

}  // namespace
}  // namespace trainer::engine
