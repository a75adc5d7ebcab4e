#include "config/sections.h"

namespace trainer::config {

void SplitSection::describe(KeyTable& keys) {
  KeyInfo part{.min = 0, .max = 1, .max_excluded = true};
  part.doc = "Fraction of the training samples that is used for validation; no effect if folds is set.";
  keys.add("validation", validation, part);
  part.doc = "Fraction of the training samples that is kept for `trainer eval --split test` and not used in the run.";
  keys.add("test", test, part);
  keys.add("group", group,
           {.doc = "A regular expression (ECMAScript) that is searched for in an image's path below the data set's folder, such as "
                   "\"^([^_]+)_\". Images with the same match are a group, which stays in one part; if the expression has "
                   "capturing parentheses, only the text of the first pair is compared. Empty: the groups are those of "
                   "dataset.group_column of `csv`, or else "
                   "single images."});
  keys.add(
      "stratify", stratify,
      {.doc = "true: each part gets the configured fraction of each class's groups, rounded to whole groups. The groups of a class are "
              "assigned in the order of their hashes, so adding groups may move a group to another part. false: a group's part depends "
              "only on the hash of the group's name, so a group never moves, but the fractions are approximate."});
  keys.add("folds", folds,
           {.min = 2,
            .max = 1000,
            .doc = "Divide the samples outside the test part into this many folds, one of which is used for validation; null: no folds."});
  keys.add("fold", fold, {.min = 0, .doc = "Index of the fold that is used for validation, from 0."});
  keys.add("seed", seed, {.min = 0, .doc = "Seed of the split. The run's own seed (key seed) does not affect the split."});
  keys.refuse("fold", [this]() -> std::string {
    if (!folds) return fold > 0 ? "has no effect without folds; set folds, or remove it" : "";
    return fold < *folds ? "" : "must be less than folds, because folds are counted from 0";
  });
  keys.refuse("validation", [this]() -> std::string {
    if (folds) return "";
    if (validation <= 0) return "must be greater than 0; to use the data set's own validation images, remove dataset.split";
    return validation + test < 1 ? "" : "the sum of validation and test must be less than 1; lower one of them";
  });
}

void DatasetSection::describe(KeyTable& keys, const Registries& registries) {
  using engine::Distribution;
  using enum KeyFacts::Samples;
  keys.add_component("name", component, registries.datasets, "", "The data set; `trainer list datasets` shows all.");
  keys.set_facts("name", {.is_fixed_on_resume = true, .affects_features = true, .samples = kChoice});
  keys.add_components("train_transforms", train_transforms, registries.transforms,
                      "Applied to each training image, in this order. Without this key: dataset.validation_transforms with "
                      "training.cache_features; otherwise those of the published weights (model.weights), else the defaults of the data "
                      "set, if it has any; `trainer config show` prints them.");
  keys.add_components(
      "validation_transforms", validation_transforms, registries.transforms,
      "Applied to each validation image. Without this key: those of the published weights (model.weights), else the defaults of the "
      "data set, if it has any; `trainer config show` prints them.");
  keys.add_components("batch_transforms", batch_transforms, registries.batch_transforms,
                      "Transforms that mix the samples and the labels of each training batch; if several are listed, one is chosen at "
                      "random for each batch. Each rank mixes its own samples, so the mixed pairs depend on the number of ranks and on "
                      "accumulation_steps.");
  keys.set_facts("train_transforms", {});
  keys.set_facts("validation_transforms", {.is_for_predictions = true});
  keys.set_facts("batch_transforms", {});
  keys.add_sections(
      "size_schedule", size_schedule,
      "Smaller training images at first, for faster training: after train_transforms, the images are scaled down to `size` in "
      "the epochs that end before the fraction `until` of all epochs; with several items, both increase, and the first one "
      "that covers an epoch applies. Later epochs and all validations have images of full size.");
  keys.add("validation_split", validation_split,
           {.min = 0,
            .max = 1,
            .max_excluded = true,
            .doc = "Fraction of the training set that is held out, chosen by `seed`, and used for validation instead of the validation "
                   "set; 0: none; auto: 0.1 if there are validations, but neither the data set nor `split` provides a validation set; "
                   "otherwise 0."});
  keys.add("stratify", stratify,
           {.doc = "true: validation_split holds out the same fraction of each class, as scikit-learn's train_test_split(stratify=labels) "
                   "does; false: the images are drawn from all classes together."});
  keys.add_section("split", split,
                   "Divides the training samples into parts for training, validation and test by the hash of their names, so that a "
                   "sample stays in its part when others are added (with stratify: false), and the samples of a group are in the same "
                   "part; the run lists the parts in `split.csv`. {}: with the defaults of its keys; null: no such division.");
  for (const char* key : {"validation_split", "split"}) keys.set_facts(key, {.is_fixed_on_resume = true, .samples = kChoice});
  keys.set_facts("stratify", {.is_fixed_on_resume = true});
  keys.refuse("split", [this] {
    return split && validation_split.value.value_or(0) > 0 ? "given together with dataset.validation_split; keep one of them" : "";
  });
  keys.add_choice(
      "on_error", on_error, {{"fail", OnError::kFail}, {"skip", OnError::kSkip}},
      {.doc =
           "For a sample that cannot be read or decoded: fail ends the run; skip omits the sample and logs its name and the reason, but "
           "ends the run if none of a batch of eight or more can be read. In the mean gradient of a step, a skipped sample counts as one "
           "whose gradient is zero."});
  keys.add("stage_to", stage_to,
           {.doc = "A folder on a local disk of each host, such as ${TMPDIR}, to which the data set's folder is copied before training, "
                   "once for all processes of the host; the copy is verified, and removed when the run has finished, unless another run "
                   "uses it. Empty: files are read from their original place.",
            .is_path = true});
  keys.add_choice(
      "distribution", distribution,
      {{"local", Distribution::kLocal}, {"scatter", Distribution::kScatter}, {"broadcast", Distribution::kBroadcast}},
      {.doc =
           "Which processes read the samples. local: each process reads its own; scatter: the first process of each group "
           "(see distribution_group_size) reads, and sends the others their parts of a batch; broadcast: the same, but "
           "every process of the group receives all parts. Only processes that read need the files. Results do not depend on this key."});
  keys.add("distribution_group_size", distribution_group_size,
           {.min = 2,
            .unit = "processes",
            .doc = "Size of the groups of consecutive ranks in which one process reads for all; auto: one group for each host."});
  keys.refuse("distribution_group_size", [this] {
    return distribution_group_size.value && distribution == engine::Distribution::kLocal
               ? "has no effect with dataset.distribution: local; set scatter or broadcast, or remove it"
               : "";
  });
}

void DataLoaderSection::describe(KeyTable& keys, const RegistryBase& samplers) {
  keys.add("batch_size", batch_size,
           {.min = 1, .unit = "images", .doc = "Images per rank in a micro-step. Set this or `global_batch_size`; without either: 128."});
  keys.add("global_batch_size", global_batch_size,
           {.min = 1,
            .unit = "images",
            .doc = "Images of all ranks together in an optimizer step. If they cannot be divided evenly among the ranks or "
                   "`training.accumulation_steps`, the parts differ by one."});
  keys.add("num_workers", num_workers,
           {.min = 0,
            .max = 256,
            .unit = "threads",
            .doc = "Threads that prepare batches; 0: the training thread prepares them; auto: one on a CPU, and with a GPU as many as "
                   "compute threads (runtime.threads), at most 16. Results do not depend on this key."});
  keys.add("prefetch", prefetch,
           {.min = 1,
            .max = 1024,
            .unit = "batches",
            .doc = "Batches that are prepared in advance, at least one for each thread; their buffers are allocated once."});
  keys.add_section(
      "sampler",
      [this, &samplers](KeyTable& section) {
        section.add_component("name", sampler, samplers, "shuffled", "The sampler; `trainer list samplers` shows all.");
      },
      "Chooses the training samples of an epoch and their order, which is the same on all ranks.");
  keys.set_facts("sampler", {.is_fixed_on_resume = true});
  keys.add("drop_last", drop_last, {.doc = "Skip the last batch of a training epoch unless it is full on every rank."});
  keys.add_choice(
      "shards", shards, {{"pad", data::Shards::kPad}, {"drop", data::Shards::kDrop}, {"exact", data::Shards::kExact}},
      {.doc = "What to do when the number of an epoch's images is not a multiple of the number of ranks: pad repeats some images and drop "
              "skips some, both as PyTorch's DistributedSampler does; exact uses each image once, so ranks may differ by one image."});
  keys.refuse("global_batch_size",
              [this] { return batch_size && global_batch_size ? "given together with dataloader.batch_size; keep one of them" : ""; });
  keys.add("pin_memory", pin_memory, {.doc = "Keep batches in page-locked memory, for faster copies to a GPU; auto: if there is a GPU."});
}

}  // namespace trainer::config
