#pragma once

#include "config/registries.h"
#include "train/engine/options.h"
#include "trainer/keys.h"

namespace trainer::config {

// What to do about a sample that cannot be read or decoded.
enum class OnError { kFail, kSkip };

struct DatasetSection {
  ComponentConfig component;
  std::vector<ComponentConfig> train_transforms;
  std::vector<ComponentConfig> validation_transforms;
  std::vector<ComponentConfig> batch_transforms;
  Auto<double> validation_split = {};
  bool stratify = true;
  OnError on_error = OnError::kFail;
  std::string stage_to = {};
  engine::Distribution distribution = engine::Distribution::kLocal;
  Auto<int64_t> distribution_group_size = {};

  void describe(KeyTable& keys, const Registries& registries) {
    using engine::Distribution;
    keys.add_component("name", component, registries.datasets, "", "The data set; `trainer list datasets` shows them.");
    keys.add_components("train_transforms", train_transforms, registries.transforms,
                        "Applied to each training image, in this order; without this key those that the data set's line tells, or none.");
    keys.add_components("validation_transforms", validation_transforms, registries.transforms,
                        "Applied to each validation image; without this key those that the data set's line tells, or none.");
    keys.add_components(
        "batch_transforms", batch_transforms, registries.batch_transforms,
        "Mix the samples of each training batch, and their labels; of several, one is chosen at random for each batch. Each "
        "rank mixes its own samples, so that the pairs depend on the number of ranks and on accumulation_steps.");
    keys.add(
        "validation_split", validation_split,
        {.min = 0,
         .max = 1,
         .max_excluded = true,
         .doc =
             "Part of the training set that is held out and validated on instead of the validation set, chosen by `seed`; 0: none; auto: "
             "0.1 of a data set that has no validation set, otherwise 0."});
    keys.add("stratify", stratify,
             {.doc = "Whether validation_split holds out the same part of each class, as scikit-learn's train_test_split(stratify=labels); "
                     "false: of all images together, as runs without this key did."});
    keys.add_choice("on_error", on_error, {{"fail", OnError::kFail}, {"skip", OnError::kSkip}},
                    {.doc = "About a sample that cannot be read or decoded: end the run, or leave it out and log its name and the reason. "
                            "A skipped sample adds nothing to its step, so that the result does not depend on the number of ranks."});
    keys.add("stage_to", stage_to,
             {.doc = "A folder on a disk of each host, such as ${TMPDIR}, to which the data set's folder is copied before training, once "
                     "for all processes of the host; the copy is verified, and removed when the training is done. Empty: files are read "
                     "where they are.",
              .is_path = true});
    keys.add_choice(
        "distribution", distribution,
        {{"local", Distribution::kLocal}, {"scatter", Distribution::kScatter}, {"broadcast", Distribution::kBroadcast}},
        {.doc = "Who reads the samples: local: each process its own; scatter: the first process of each group, which sends each "
                "of the others its part of a batch; broadcast: the same, but it sends all parts to all of them. Only a process "
                "that reads needs the files. Results do not depend on it."});
    keys.add("distribution_group_size", distribution_group_size,
             {.min = 2,
              .unit = "processes",
              .doc = "Size of the groups in which one process reads for all, of consecutive ranks; auto: the processes of each host."});
    keys.refuse("distribution_group_size", [this] {
      return distribution_group_size.value && distribution == engine::Distribution::kLocal
                 ? "has no effect with dataset.distribution: local; set scatter or broadcast, or leave it out"
                 : "";
    });
  }
};

}  // namespace trainer::config
