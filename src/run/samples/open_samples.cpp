#include "run/samples/open_samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "base/text.h"
#include "run/samples/split_samples.h"
#include "train/engine/failure_message.h"
#include "trainer/error.h"
#include "trainer/model.h"

namespace trainer::samples {
namespace {

// For data sets whose number of classes was unknown when the configuration was checked.
void check_num_classes(const config::Experiment& experiment, const data::DatasetInfo& info) {
  const auto& model = dynamic_cast<const models::ModelOptions&>(*experiment.model.component.options);
  if (info.num_classes == 0 || info.num_classes == model.num_outputs()) return;
  throw DataError(fmt::format("{}: {} has {}, but the data set {} has {}", experiment.place_of("model." + model.outputs_key()),
                              experiment.model.component.name, counted(model.num_outputs(), "output"), experiment.dataset.component.name,
                              counted(info.num_classes, "class", "classes")));
}

// Invalid labels form a separate class; they are reported when the sample is read.
std::vector<int64_t> labels_of(const data::Dataset& files) {
  const auto num_classes = files.info().num_classes;
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < files.size(); ++i) {
    const auto label = files.label(i);
    labels.push_back(data::refusal_of_label(label, num_classes).empty() ? label : num_classes);
  }
  return labels;
}

// Divides the files by dataset.split.
SampleSplit divide_training_files(const config::Experiment& experiment, const data::Dataset& files, data::Split held_out, Logger& logger) {
  const auto parts = divide_files(experiment, files).parts;
  SampleSplit result;
  int64_t num_others = 0;
  for (int64_t i = 0; i < files.size(); ++i) {
    const auto part = parts[static_cast<size_t>(i)];
    if (part == held_out) {
      result.first.push_back(i);
    } else if (part == data::Split::kTrain) {
      result.second.push_back(i);
    } else {
      ++num_others;
    }
  }
  const bool is_test = held_out == data::Split::kTest;
  if (result.first.empty() || result.second.empty()) {
    throw UsageError(fmt::format(
        "{}: of {}, {} are for {} and {} for training; choose another fraction{}", experiment.place_of("dataset.split"),
        counted(files.size(), "image"), result.first.size(), is_test ? "the test" : "validation", result.second.size(),
        is_test ? " (dataset.split.test)" : ", smaller groups (dataset.split.group), fewer folds, another seed, or stratify: true"));
  }
  if (!is_test && num_others == 0 && experiment.dataset.split->test > 0) {
    logger.warn("{}: the test part has no images; raise dataset.split.test, or choose another dataset.split.seed",
                experiment.place_of("dataset.split"));
  }
  logger.info("of {}, {} are for training, {} for {} and {} for {} (dataset.split)", counted(files.size(), "image"), result.second.size(),
              result.first.size(), is_test ? "the test" : "validation", num_others, is_test ? "validation" : "a test");
  return result;
}

// The indices of the training files that are held out for `chosen`, and of the files to train on.
SampleSplit split_training_files(const config::Experiment& experiment, const data::Dataset& files, Logger& logger,
                                 data::Split chosen = data::Split::kValidation) {
  if (experiment.dataset.split) return divide_training_files(experiment, files, chosen, logger);
  const auto size = files.size();
  const double part = experiment.dataset.validation_split.value.value_or(0);
  const auto count = static_cast<int64_t>(static_cast<double>(size) * part + 0.5);
  const auto seed = static_cast<uint64_t>(experiment.seed);
  const bool by_class = experiment.dataset.stratify && files.info().has_labels();
  auto indices = by_class ? split_by_class(labels_of(files), count, seed) : split_samples(indices_up_to(size), count, seed);
  const auto& [held_out, rest] = indices;
  if (held_out.empty() || count == size) {
    const bool are_single = held_out.empty() && count > 0 && count < size;
    throw UsageError(fmt::format("{}: {} of {} images leaves no images for training or none for validation{}",
                                 experiment.place_of("dataset.validation_split"), part, size,
                                 are_single ? ", because no class has more than one image, and each class keeps one for training; set "
                                              "dataset.stratify: false to hold out images regardless of their class"
                                            : "; choose another fraction"));
  }
  logger.info("{} of the {} training images are held out for validation (dataset.validation_split: {})", held_out.size(), size, part);
  return indices;
}

// Chooses `count` of these training samples at random, by the seed; they serve for training and for validation.
std::vector<int64_t> choose_overfit(const config::Experiment& experiment, int64_t count, std::vector<int64_t> samples) {
  count = std::min(count, static_cast<int64_t>(samples.size()));
  return split_samples(std::move(samples), count, static_cast<uint64_t>(experiment.seed)).first;
}

std::shared_ptr<const data::Dataset> open_files(const config::Experiment& experiment, const data::DatasetFactory& dataset,
                                                data::Split split, Logger& logger) {
  auto files = engine::build_in_memory("the list of samples of " + experiment.dataset.component.name, "choose a smaller data set",
                                       [&] { return dataset.open(split, logger); });
  if (files->size() > 0) return files;
  throw DataError(fmt::format("{}: {} has no {} samples; add some, or use another data set", experiment.place_of("dataset.name"),
                              experiment.dataset.component.name, split == data::Split::kTrain ? "training" : "validation"));
}

}  // namespace

data::DatasetFactory dataset_of(const config::Experiment& experiment) {
  return datasets::dataset_registry().make(experiment.dataset.component);
}

Division divide_files(const config::Experiment& experiment, const data::Dataset& files) {
  const auto& options = *experiment.dataset.split;
  const bool by_class = options.stratify && files.info().has_labels();
  auto groups = groups_of(files, options);
  auto parts = divide(groups, by_class ? labels_of(files) : std::vector<int64_t>(), options);
  return {std::move(groups), std::move(parts)};
}

engine::OpenedSamples open_samples(const config::Experiment& experiment, Logger& logger) {
  return open_samples(experiment, dataset_of(experiment), logger);
}

engine::OpenedSamples open_samples(const config::Experiment& experiment, const data::DatasetFactory& dataset, Logger& logger,
                                   const std::optional<int64_t>& num_overfit) {
  const auto files = open_files(experiment, dataset, data::Split::kTrain, logger);
  check_num_classes(experiment, files->info());
  std::vector<int64_t> held_out, rest;
  if (experiment.dataset.holds_out()) {
    std::tie(held_out, rest) = split_training_files(experiment, *files, logger);
    std::vector<data::Split> parts(static_cast<size_t>(files->size()), data::Split::kTest);
    for (const auto i : rest) parts[static_cast<size_t>(i)] = data::Split::kTrain;
    for (const auto i : held_out) parts[static_cast<size_t>(i)] = data::Split::kValidation;
    for (const auto part : {data::Split::kTrain, data::Split::kValidation}) {
      if (const auto warning = describe_missing_classes(*files, parts, part); !warning.empty()) logger.warn("{}", warning);
    }
  }
  if (num_overfit) rest = choose_overfit(experiment, *num_overfit, experiment.dataset.holds_out() ? rest : indices_up_to(files->size()));
  engine::OpenedSamples samples{.train =
                                    experiment.dataset.holds_out() || num_overfit ? engine::Samples(files, rest) : engine::Samples(files)};
  if (experiment.validation.is_off()) return samples;
  if (num_overfit) {
    samples.validation = samples.train;
  } else if (experiment.dataset.holds_out()) {
    samples.validation.emplace(files, held_out);
  } else {
    samples.validation.emplace(open_files(experiment, dataset, data::Split::kValidation, logger));
  }
  return samples;
}

engine::Samples open_split(const config::Experiment& experiment, const data::DatasetFactory& dataset, data::Split split, Logger& logger) {
  const auto files = open_files(experiment, dataset, experiment.dataset.holds_out() ? data::Split::kTrain : split, logger);
  check_num_classes(experiment, files->info());
  if (!experiment.dataset.holds_out()) return engine::Samples(files);
  const bool is_train = split == data::Split::kTrain;
  const auto [held_out, rest] = split_training_files(experiment, *files, logger, is_train ? data::Split::kValidation : split);
  return {files, is_train ? rest : held_out};
}

}  // namespace trainer::samples
