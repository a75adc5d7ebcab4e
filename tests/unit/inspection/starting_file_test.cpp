#include "run/survey/starting_file.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <numeric>

#include "config/load.h"
#include "run/recipe/registries.h"

namespace trainer::survey {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

DatasetFacts photos(std::vector<int64_t> images_per_class, std::vector<ImageSize> sizes) {
  DatasetFacts facts{.name = "photos"};
  facts.section = Node::map();
  facts.section.set("name", Node::scalar("image_folder"));
  facts.section.set("root", Node::scalar("my photos"));
  facts.info = {.shape = {3, data::kAnySize, data::kAnySize}, .num_classes = static_cast<int64_t>(images_per_class.size())};
  facts.targets = {.num_samples = std::accumulate(images_per_class.begin(), images_per_class.end(), int64_t{0}),
                   .class_counts = std::move(images_per_class)};
  facts.num_read = static_cast<int64_t>(sizes.size());
  facts.sizes.sizes = std::move(sizes);
  return facts;
}

std::string file_for(const DatasetFacts& facts,
                     const PixelStatistics& pixels = {.mean = {0.5, 0.25, 0.125}, .std = {0.1, 0.2, 0.3}, .num_images = 2}) {
  return starting_file(facts, choose_preparation(facts), pixels);
}

// Loads the text without the check against the data set, whose files do not exist here.
config::Experiment load(const std::string& text) {
  return config::load_text(text, "experiment.yaml", {}, recipe::registries_without_check());
}

TEST(StartingFile, WithoutWeightsPhotosAreNotEnlarged) {
  auto facts = photos({600, 400}, {{160, 160}, {200, 180}, {160, 240}});
  EXPECT_THAT(file_for(facts), HasSubstr("    - random_resized_crop: {size: 224, scale: [0.35, 1]}"));
  facts.may_use_weights = false;
  const auto text = file_for(facts);
  EXPECT_THAT(text, HasSubstr("    - random_resized_crop: {size: 160, scale: [0.35, 1]}"));
  EXPECT_THAT(text, HasSubstr("    - resize: {size: 182} "));
  EXPECT_THAT(text, HasSubstr("    - center_crop: {size: 160}\n"));
}

TEST(StartingFile, ForPhotos) {
  auto facts = photos({600, 400}, {{480, 640}, {300, 500}, {900, 700}});
  facts.info.class_names = {"cat", "big dog"};
  facts.num_validation = 50;
  const auto text = file_for(facts);
  EXPECT_THAT(text, HasSubstr("# 1000 training images of 2 classes:\n#   cat 600, \"big dog\" 400\n# 50 images for validation\n"
                              "# Sizes: 300 x 500 to 900 x 700 (height x width, of 3 of the training images)\n"));
  EXPECT_THAT(text, HasSubstr("\nmodel: {name: resnet18, weights: default, freeze: [backbone]}\n"));
  EXPECT_THAT(text, HasSubstr("\n  root: \"my photos\"\n"));
  EXPECT_THAT(text, HasSubstr("    - random_resized_crop: {size: 224, scale: [0.35, 1]}"));
  EXPECT_THAT(text, HasSubstr("    - resize: {size: 256} "));
  EXPECT_THAT(
      text,
      HasSubstr("    - center_crop: {size: 224}\n    - normalize: {mean: [0.4850, 0.4560, 0.4060], std: [0.2290, 0.2240, 0.2250]}\n"));
  EXPECT_THAT(text, HasSubstr("Mean and standard deviation are those of the images on which the weights were trained."));
  EXPECT_THAT(text, HasSubstr("dataloader: {global_batch_size: 32, num_workers: 4, drop_last: false}"));
  EXPECT_THAT(text, Not(HasSubstr("validation_split")));
  EXPECT_THAT(text, Not(HasSubstr("class_balanced")));
  const auto experiment = load(text);
  EXPECT_EQ(experiment.training.epochs, 30);
  EXPECT_EQ(experiment.training.unfreeze_after, 2);

  facts.may_use_weights = false;
  const auto without_weights = load(file_for(facts));
  EXPECT_EQ(without_weights.model.weights, "");
  EXPECT_THAT(without_weights.model.freeze, IsEmpty());
  EXPECT_EQ(without_weights.training.unfreeze_after, std::nullopt);
  EXPECT_EQ(experiment.dataset.train_transforms.size(), 3U);
}

TEST(StartingFile, ForSmallImagesOfOneSize) {
  const auto text = file_for(photos({4000, 20'000}, {{32, 32}, {32, 32}}));
  EXPECT_THAT(text, HasSubstr("\nmodel: {name: resnet20}\n"));
  EXPECT_THAT(text, HasSubstr("# No images for validation: a tenth of the training images is held out"));
  EXPECT_THAT(text, HasSubstr("# Size: 32 x 32 (height"));
  EXPECT_THAT(text, HasSubstr("    - resize: {size: [32, 32]}"));
  EXPECT_THAT(text, HasSubstr("    - random_crop: {size: 32, padding: 4}"));
  EXPECT_THAT(text, HasSubstr("global_batch_size: 128"));
  EXPECT_THAT(text, HasSubstr("lr: 0.1,"));
  EXPECT_EQ(load(text).training.epochs, 30);
  EXPECT_THAT(text, HasSubstr("# dataloader: {global_batch_size: 128, num_workers: 4, sampler: {name: class_balanced}}\n"));
  EXPECT_THAT(text, Not(HasSubstr("drop_last")));
  EXPECT_THAT(text, Not(HasSubstr("validation_split: ")));
}

TEST(StartingFile, OfFewImagesEachCounts) {
  const auto text = file_for(photos({1000, 999}, {{32, 32}}));
  EXPECT_THAT(text, HasSubstr("# No images for validation: a fifth of the training images is held out"));
  EXPECT_THAT(text, Not(HasSubstr("class_balanced")));
  const auto experiment = load(text);
  EXPECT_EQ(experiment.dataset.validation_split.value, 0.2);
  EXPECT_FALSE(experiment.dataloader.drop_last);
  EXPECT_TRUE(load(file_for(photos({1000, 1000}, {{32, 32}}))).dataloader.drop_last);
}

TEST(StartingFile, ManyClassesAreWrapped) {
  auto facts = photos(std::vector<int64_t>(20, 5), {{40, 50}});
  facts.info.class_names.assign(20, "fourteen_chars");
  const auto text = file_for(facts);
  const std::string line = " fourteen_chars 5, fourteen_chars 5, fourteen_chars 5, fourteen_chars 5, fourteen_chars 5,";
  EXPECT_THAT(text, HasSubstr("of 20 classes:\n#  " + line + "\n#  " + line + "\n#  "));
}

TEST(StartingFile, SizesAreThoseOfUsualNetworks) {
  const auto size_for = [](int edge) { return choose_preparation(photos({9}, {{edge, 2 * edge}})).size; };
  EXPECT_EQ(size_for(20), 32);
  EXPECT_EQ(size_for(64), 64);
  EXPECT_EQ(size_for(100), 128);
  EXPECT_EQ(size_for(4000), 224);
  EXPECT_THAT(file_for(photos({500, 500}, {{64, 64}})), HasSubstr("model: {name: resnet18, stem: cifar}"));
}

TEST(StartingFile, OfADataSetWithImagesOfOneShape) {
  auto facts = photos({6000, 6000}, {{28, 28}});
  facts.section.set("name", Node::scalar("mnist"));
  facts.info.shape = {1, 28, 28};
  const auto text = file_for(facts, {.mean = {0.1307}, .std = {0.3081}, .num_images = 12'000});
  EXPECT_THAT(text, Not(HasSubstr("resize")));
  EXPECT_THAT(text, Not(HasSubstr("flip")));
  EXPECT_THAT(text, HasSubstr("those of all training images"));
  EXPECT_EQ(load(text).dataset.validation_transforms.size(), 1U);
}

TEST(StartingFile, FewManyAndBadImages) {
  EXPECT_THAT(file_for(photos({2, 1}, {{40, 50}})), HasSubstr("global_batch_size: 2,"));
  const auto many = file_for(photos(std::vector<int64_t>(30, 50'000), {{400, 500}}));
  EXPECT_THAT(many, HasSubstr("\nmodel: {name: resnet18}\n"));
  EXPECT_THAT(many, HasSubstr("those of 2 of the training images"));
  EXPECT_THAT(many, HasSubstr("lr: 0.05,"));
  EXPECT_THAT(many, HasSubstr("# 1500000 training images of 30 classes, 50000 to 50000 of each\n"));
  EXPECT_EQ(load(many).training.epochs, 10);
  auto facts = photos({5, 5}, {{40, 50}});
  facts.num_unreadable = 2;
  facts.num_read = 10;
  const auto text = file_for(facts, {.mean = {1, 1, 1}, .std = {0, 0, 0}, .num_images = 8});
  EXPECT_THAT(text, HasSubstr("  on_error: skip "));
  EXPECT_THAT(text, HasSubstr("# 2 of 10 examined images cannot be read"));
  EXPECT_THAT(text, HasSubstr("std: [1.0000, 1.0000, 1.0000]"));
  load(text);
}

TEST(StartingFile, WithoutAGpuOnlyTheLastLayerIsTrainedOnCachedFeatures) {
  auto facts = photos({600, 400}, {{480, 640}});
  facts.has_gpu = false;
  auto text = file_for(facts);
  const auto experiment = load(text);
  EXPECT_TRUE(experiment.training.cache_features);
  EXPECT_THAT(experiment.dataset.train_transforms, IsEmpty()) << "without the key, they are those of the validation";
  EXPECT_EQ(experiment.training.unfreeze_after, std::nullopt);
  // The alternative of the comments: the transforms of training, and the second line `training`.
  const auto remove = [&](const std::string& part) {
    ASSERT_THAT(text, HasSubstr(part));
    text.replace(text.find(part), part.size(), "");
  };
  const auto first = text.find("\ntraining:");
  remove(text.substr(first, text.find('\n', first + 1) - first));
  const auto second = text.find("# training:");
  text.erase(second, 2);
  for (auto i = text.find("  #train_transforms:"); text.compare(i, 3, "  #") == 0; i = text.find('\n', i) + 1) text.erase(i + 2, 1);
  const auto all_layers = load(text);
  EXPECT_EQ(all_layers.dataset.train_transforms.size(), 3U);
  EXPECT_EQ(all_layers.training.unfreeze_after, 2);
  EXPECT_EQ(all_layers.training.epochs, experiment.training.epochs);
  // An image that cannot be read has no features.
  facts.num_unreadable = 1;
  EXPECT_FALSE(load(file_for(facts)).training.cache_features);
}

TEST(StartingFile, AcceptsTheNumbersOfEpochsThatItsFirstLinesAndTheDocumentationPropose) {
  auto without_gpu = photos({600, 400}, {{480, 640}});
  without_gpu.has_gpu = false;
  for (const auto& text : {file_for(photos({600, 400}, {{480, 640}})), file_for(without_gpu), file_for(photos({20, 20}, {{32, 32}})),
                           file_for(photos({100'000, 100'000}, {{32, 32}})), std::string(kStartingFileOfCifar10)}) {
    EXPECT_THAT(text, HasSubstr("training.epochs=5\n"));
    for (const int64_t epochs : {3, 5}) {
      const auto experiment =
          config::load_text(text, "experiment.yaml", {fmt::format("training.epochs={}", epochs)}, recipe::registries_without_check());
      EXPECT_GT(epochs, experiment.lr_scheduler.warmup.epochs) << "the whole training would be the warm-up";
    }
  }
}

TEST(JudgeFolders, SaysWhatTheFoldersLookLike) {
  const auto nested = judge_folders({"photos/train/cat/1.jpg", "photos/Val/cat/2.jpg"});
  EXPECT_EQ(nested.refusal, "the folder \"photos/Val\" is probably not a class; give its folder, \"photos\", to --data");
  EXPECT_EQ(judge_folders({"cat/train/1.jpg", "dog/train/2.jpg"}).refusal,
            "the folder \"cat/train\" is probably not a class; arrange the images as train/CLASS/... and val/CLASS/...");
  const auto patients = judge_folders({"p1/benign/1.jpg", "p1/other/2.jpg", "p2/benign/3.jpg", "p2/other/4.jpg"});
  EXPECT_THAT(patients.warning,
              HasSubstr("the folders \"p1\" to \"p2\" become the classes, but all of them contain the folders \"benign\" to \"other\""));
  const auto groups = judge_folders({"cat/p1/1.jpg", "cat/p2/2.jpg", "dog/p3/3.jpg"});
  EXPECT_EQ(groups.refusal + groups.warning, "");
  EXPECT_EQ(groups.folder_of_class, "cat/p1");
  EXPECT_EQ(judge_folders({"cat/p1/1.jpg", "cat/p2/2.jpg", "dog/3.jpg"}).folder_of_class, "");
  EXPECT_EQ(judge_folders({"cat/1.jpg", "dog/2.jpg"}).refusal, "");
  auto facts = photos({600, 400}, {{40, 50}});
  facts.folder_of_class = groups.folder_of_class;
  auto text = file_for(facts);
  EXPECT_THAT(text, HasSubstr("folders below the classes, such as cat/p1."));
  const auto line = text.find("  validation_split:");
  text.erase(line, text.find('\n', line) + 1 - line);
  text.erase(text.find("# split:"), 2);
  EXPECT_EQ(load(text).dataset.split->group, "^[^/]+/([^/]+)/");
}

TEST(StartingFile, WithoutData) {
  const auto experiment = load(std::string(kStartingFileOfCifar10));
  EXPECT_EQ(experiment.dataset.component.name, "cifar10");
}

}  // namespace
}  // namespace trainer::survey
