#pragma once

#include "config/registries.h"
#include "distributed/supervision/failure.h"
#include "trainer/component.h"
#include "trainer/keys.h"
#include "trainer/options.h"

namespace trainer::config {

struct ModelSection {
  ComponentConfig component;
  std::string weights = {};
  std::string weights_mirror = {};
  std::string init_from = {};
  bool init_strict = true;
  std::vector<std::string> freeze = {};

  void describe(KeyTable& keys, const RegistryBase& models) {
    keys.add_component("name", component, models, "", "The network; `trainer list models` shows all.");
    keys.add(
        "weights", weights,
        {.doc = "Published weights from which training starts, downloaded once to "
                "${TRAINER_HOME:-${XDG_CACHE_HOME:-~/.cache}/trainer}/weights: a name from "
                "`trainer weights list`, `default` for torchvision's default, or the URL of a file. If the number of classes differs, the "
                "last layer is initialised at random. With a name, transforms that the experiment does not set are those of the weights. "
                "Empty: none."});
    keys.add("weights_mirror", weights_mirror,
             {.doc = "The URL of a folder (https://, http:// or file://) from which "
                     "published weights are downloaded, instead of torchvision's server."});
    // A resumed run has its weights already, and features depend on the weights themselves.
    for (const char* key : {"weights", "weights_mirror", "init_from", "init_strict"}) keys.set_facts(key, {});
    keys.refuse("weights",
                [this] { return !weights.empty() && !init_from.empty() ? "given together with model.init_from; keep one of them" : ""; });
    keys.refuse("weights_mirror", [this] {
      return !weights_mirror.empty() && weights.empty() ? "has no effect without model.weights; set model.weights, or remove it" : "";
    });
    keys.add("init_from", init_from,
             {.doc = "A file from which parameters and buffers are initialised by their names: a state_dict of PyTorch, safetensors, or a "
                     "checkpoint; empty: none.",
              .is_path = true});
    keys.add("init_strict", init_strict,
             {.doc = "true: refuse a file in which an entry is missing, unexpected or of another shape; false: load the entries that fit, "
                     "for example all except the last layer if the classes differ, and log the skipped entries; from a checkpoint with "
                     "class names, the last layer's rows are matched by these names."});
    keys.add("freeze", freeze,
             {.doc = "Layers and parameters that are not trained, given by their names or by the beginnings of names up to a dot, as in "
                     "[conv1, layer1]; [backbone] stands for all layers except the last. Batch normalisation in these layers uses its "
                     "running statistics in training too, and does not change them. `trainer validate -v` prints all names.",
              .may_be_empty = false});
    keys.warn("freeze", [this] {
      return !freeze.empty() && weights.empty() && init_from.empty()
                 ? "the frozen layers keep their random initial values; set model.weights or model.init_from, or remove this key"
                 : "";
    });
  }
};

struct SplitSection {
  double validation = 0.2;
  double test = 0;
  std::string group = {};
  bool stratify = false;
  std::optional<int64_t> folds = {};
  int64_t fold = 0;
  int64_t seed = 0;

  bool operator==(const SplitSection&) const = default;
};

}  // namespace trainer::config

namespace trainer {

inline void describe(KeyTable& keys, config::SplitSection& section) {
  KeyInfo part{.min = 0, .max = 1, .max_excluded = true};
  part.doc = "Fraction of the training samples that is used for validation; no effect if folds is set.";
  keys.add("validation", section.validation, part);
  part.doc = "Fraction of the training samples that is kept for `trainer eval --split test` and not used in the run.";
  keys.add("test", section.test, part);
  keys.add("group", section.group,
           {.doc = "A regular expression (ECMAScript) that is searched for in an image's path below the data set's folder, such as "
                   "\"^([^_]+)_\". Images with the same match are a group, which stays in one part; if the expression has "
                   "capturing parentheses, only the text of the first pair is compared. Empty: the groups are those of "
                   "dataset.group_column of `csv`, or else "
                   "single images."});
  keys.add(
      "stratify", section.stratify,
      {.doc = "true: each part gets the configured fraction of each class's groups, rounded to whole groups. The groups of a class are "
              "assigned in the order of their hashes, so adding groups may move a group to another part. false: a group's part depends "
              "only on the hash of the group's name, so a group never moves, but the fractions are approximate."});
  keys.add("folds", section.folds,
           {.min = 2,
            .max = 1000,
            .doc = "Divide the samples outside the test part into this many folds, one of which is used for validation; null: no folds."});
  keys.add("fold", section.fold, {.min = 0, .doc = "Index of the fold that is used for validation, from 0."});
  keys.add("seed", section.seed, {.min = 0, .doc = "Seed of the split. The run's own seed (key seed) does not affect the split."});
  keys.refuse("fold", [&section]() -> std::string {
    if (!section.folds) return section.fold > 0 ? "has no effect without folds; set folds, or remove it" : "";
    return section.fold < *section.folds ? "" : "must be less than folds, because folds are counted from 0";
  });
  keys.refuse("validation", [&section]() -> std::string {
    if (section.folds) return "";
    if (section.validation <= 0) return "must be greater than 0; to use the data set's own validation images, remove dataset.split";
    return section.validation + section.test < 1 ? "" : "the sum of validation and test must be less than 1; lower one of them";
  });
}

}  // namespace trainer

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
  std::optional<SplitSection> split = {};
  OnError on_error = OnError::kFail;
  std::string stage_to = {};
  engine::Distribution distribution = engine::Distribution::kLocal;
  Auto<int64_t> distribution_group_size = {};

  // Whether validation samples are some of the training files.
  bool holds_out() const { return split || validation_split.value.value_or(0) > 0; }

  void describe(KeyTable& keys, const Registries& registries) {
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
    keys.add("validation_split", validation_split,
             {.min = 0,
              .max = 1,
              .max_excluded = true,
              .doc = "Fraction of the training set that is held out, chosen by `seed`, and used for validation instead of the validation "
                     "set; 0: none; auto: 0.1 if there are validations, but neither the data set nor `split` provides a validation set; "
                     "otherwise 0."});
    keys.add(
        "stratify", stratify,
        {.doc = "true: validation_split holds out the same fraction of each class, as scikit-learn's train_test_split(stratify=labels) "
                "does; false: the images are drawn from all classes together, as in runs from before this key existed."});
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
};

struct DataLoaderSection {
  std::optional<int64_t> batch_size = {};
  std::optional<int64_t> global_batch_size = {};
  Auto<int64_t> num_workers = {};
  int64_t prefetch = 4;
  bool drop_last = true;
  data::Shards shards = data::Shards::kPad;
  Auto<bool> pin_memory = {};
  ComponentConfig sampler;

  void describe(KeyTable& keys, const RegistryBase& samplers) {
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
        {.doc =
             "What to do when the number of an epoch's images is not a multiple of the number of ranks: pad repeats some images and drop "
             "skips some, both as PyTorch's DistributedSampler does; exact uses each image once, so ranks may differ by one image."});
    keys.refuse("global_batch_size",
                [this] { return batch_size && global_batch_size ? "given together with dataloader.batch_size; keep one of them" : ""; });
    keys.add("pin_memory", pin_memory, {.doc = "Keep batches in page-locked memory, for faster copies to a GPU; auto: if there is a GPU."});
  }
};

}  // namespace trainer::config

namespace trainer {

// The task, the loss, the optimizer and its schedule.

// In the namespace of KeyTable, so that argument-dependent lookup finds this function.
inline void describe(KeyTable& keys, optim::ParameterGroupOptions& options) {
  keys.add(
      "parameters", options.parameters,
      {.doc = "Names of layers and parameters. The name of a layer stands for everything in it: [layer1] includes layer1.0.conv1.weight.",
       .required = true,
       .may_be_empty = false});
  keys.add("lr_factor", options.lr_factor, {.min = 0, .doc = "Factor by which the learning rate of these parameters is multiplied."});
  keys.add("weight_decay", options.weight_decay,
           {.min = 0, .doc = "Weight decay of these parameters; null: the optimizer's weight_decay."});
}

}  // namespace trainer

namespace trainer::config {

struct TaskSection {
  ComponentConfig component;

  void describe(KeyTable& keys, const RegistryBase& tasks) {
    keys.add_component(
        "name", component, tasks, "classification",
        "What the network learns, and the metrics of its results. Default: classification; multi_label if the data set gives "
        "any number of classes for each image and the loss supports it; regression if the loss is for numbers.");
    keys.set_facts("name", {.is_fixed_on_resume = true, .is_for_predictions = true});
  }
};

struct LossSection {
  ComponentConfig component;

  void describe(KeyTable& keys, const RegistryBase& losses) {
    keys.add_component("name", component, losses, "cross_entropy", "The function that is minimised.");
  }
};

struct OptimizerSection {
  ComponentConfig component;
  bool decay_norm_and_bias = true;
  bool skip_zero_grads = false;
  std::optional<double> layer_decay;
  std::vector<optim::ParameterGroupOptions> groups = {};

  void describe(KeyTable& keys, const RegistryBase& optimizers) {
    keys.add_component("name", component, optimizers, "sgd", "The update rule.");
    keys.add("decay_norm_and_bias", decay_norm_and_bias,
             {.doc = "Apply the optimizer's weight_decay also to normalisation weights and to biases, as PyTorch does; false: only to "
                     "weights with two or more dimensions."});
    keys.add("skip_zero_grads", skip_zero_grads,
             {.doc = "Skip the update of a parameter, with its weight decay and momentum, in a step in which its gradient is zero "
                     "everywhere. This check waits for the GPU in every step."});
    keys.add(
        "layer_decay", layer_decay,
        {.min = 0,
         .max = 1,
         .min_excluded = true,
         .doc = "The learning rate of each layer or block is multiplied by this factor once for every layer or block after it, because "
                "fine-tuning should change the first layers least. Usual values are 0.65 to 0.9; null: all have the same learning rate."});
    keys.add_sections("groups", groups,
                      "Parameters with their own learning rate or weight decay, for fine-tuning; if several items name a parameter, the "
                      "first one applies.");
    for (const char* key : {"name", "layer_decay", "groups"}) keys.set_facts(key, {.is_fixed_on_resume = true});
  }
};

struct LrSchedulerSection {
  ComponentConfig component;
  optim::WarmupOptions warmup = {};

  void describe(KeyTable& keys, const RegistryBase& lr_schedulers) {
    keys.add_component("name", component, lr_schedulers, "constant", "The learning rate as a function of the step.");
    keys.add("warmup_steps", warmup.steps,
             {.min = 0,
              .unit = "steps",
              .doc = "Steps of linear warm-up, not for onecycle. cosine, linear and polynomial cover the steps after it. Set this or "
                     "warmup_epochs."});
    keys.add("warmup_epochs", warmup.epochs,
             {.min = 0, .unit = "epochs", .doc = "Epochs of linear warm-up; fractions are allowed. Set this or warmup_steps."});
    keys.add("warmup_start_factor", warmup.start_factor,
             {.min = 0, .max = 1, .doc = "Factor by which the learning rate is multiplied at the start of the warm-up."});
    keys.refuse("warmup_epochs", [this] {
      return warmup.steps > 0 && warmup.epochs > 0 ? "given together with lr_scheduler.warmup_steps; keep one of them" : "";
    });
  }
};

}  // namespace trainer::config

namespace trainer {

// In the namespace of KeyTable, so that argument-dependent lookup finds this function.
inline void describe(KeyTable& keys, optim::EmaOptions& options) {
  keys.add("decay", options.decay,
           {.min = 0, .max = 1, .max_excluded = true, .doc = "Weight of the old average in each update except the first."});
  keys.add("warmup", options.warmup,
           {.doc = "Limit the decay to n / (9 + n) after n updates, so that the average soon forgets the first values."});
}

inline void describe(KeyTable& keys, engine::EarlyStoppingOptions& options) {
  keys.add("patience", options.patience,
           {.min = 1, .unit = "validations", .doc = "Number of consecutive validations without improvement after which training ends."});
  keys.add("min_delta", options.min_delta,
           {.min = 0, .doc = "A validation is an improvement if its metric is better than the best so far by more than this value."});
}

}  // namespace trainer

namespace trainer::config {

struct TrainingSection {
  // Exactly one of `epochs` and `steps` is given.
  std::optional<int64_t> epochs;
  std::optional<int64_t> steps;
  int64_t accumulation_steps = 1;
  std::optional<double> max_grad_norm;
  std::optional<double> max_minutes;
  engine::OnNonFinite on_non_finite = engine::OnNonFinite::kStop;
  std::optional<optim::EmaOptions> ema;
  int64_t mixup_off_epochs = 0;
  bool cache_features = false;
  std::optional<int64_t> unfreeze_after;
  std::optional<engine::EarlyStoppingOptions> early_stopping;
  std::optional<int64_t> overfit_batches;
  bool extend = false;

  void describe(KeyTable& keys) {
    keys.add("epochs", epochs, {.min = 1, .unit = "epochs", .doc = "Passes over the training set. Set this or `steps`."});
    keys.add("steps", steps,
             {.min = 1,
              .unit = "steps",
              .doc = "Optimizer steps, in as many epochs as needed; training ends after them, even within an epoch. To replace the "
                     "`epochs` of a file on the command line, add training.epochs=null."});
    keys.add("mixup_off_epochs", mixup_off_epochs,
             {.min = 0,
              .unit = "epochs",
              .doc = "Number of epochs at the end of training without dataset.batch_transforms, so that training ends on unmixed images."});
    keys.refuse("mixup_off_epochs", [this]() -> std::string {
      if (mixup_off_epochs == 0) return "";
      if (!epochs) return "needs training.epochs instead of training.steps";
      return mixup_off_epochs > *epochs ? "is more than training.epochs; choose fewer epochs" : "";
    });
    keys.add(
        "cache_features", cache_features,
        {.doc = "Compute the frozen layers (model.freeze) once for each image instead of in each epoch, and keep the results in "
                "${TRAINER_HOME:-${XDG_CACHE_HOME:-~/.cache}/trainer}/features for this and later runs with the same weights, images and "
                "transforms. "
                "dataset.train_transforms must not be random; by default they are dataset.validation_transforms. Dropout and drop_path of "
                "the frozen layers are off."});
    keys.add("unfreeze_after", unfreeze_after,
             {.min = 1,
              .unit = "epochs",
              .doc = "Number of epochs after which the parameters in model.freeze are trained too; the running statistics of their batch "
                     "normalisation stay unchanged, because the statistics of a few images are inaccurate. null: never."});
    keys.refuse("unfreeze_after", [this]() -> std::string {
      if (!unfreeze_after) return "";
      if (cache_features)
        return "given together with training.cache_features; train the frozen network first, then start another run with model.init_from";
      return epochs && *unfreeze_after >= *epochs ? "has no effect, because it is not less than training.epochs; choose fewer epochs" : "";
    });
    keys.refuse("epochs", [this] { return epochs || steps ? "" : "missing; set training.epochs or training.steps"; });
    keys.refuse("steps", [this] { return epochs && steps ? "given together with training.epochs; set one of them to null" : ""; });
    keys.add("accumulation_steps", accumulation_steps,
             {.min = 1,
              .unit = "micro-steps",
              .doc = "Micro-steps whose gradients are accumulated for one optimizer step. If fewer micro-steps are left at the end of an "
                     "epoch, the gradient is averaged over their images."});
    keys.add("max_grad_norm", max_grad_norm,
             {.min = 0, .min_excluded = true, .doc = "Scale the gradient down to this 2-norm if its norm is larger; null: never."});
    keys.add("max_minutes", max_minutes,
             {.min = 0,
              .min_excluded = true,
              .unit = "minutes",
              .doc = "Time limit, from the start of the process, after which the run saves a checkpoint and stops with exit code 75, as "
                     "after a stop request. null: none."});
    keys.add_choice("on_non_finite", on_non_finite, {{"stop", engine::OnNonFinite::kStop}, {"skip", engine::OnNonFinite::kSkip}},
                    {.doc = "What to do after a step whose loss or gradients are not finite; the step is skipped, and the first three such "
                            "steps are saved for `trainer replay`. stop: end the run; skip: continue, but end the run at the tenth such "
                            "step in a row. With skip, every step waits for the GPU. Steps that are skipped to find the loss scale "
                            "(amp.dtype: float16) do not count."});
    keys.add_section("ema", ema,
                     "An exponential moving average of the parameters over the steps, validated in addition to the parameters themselves; "
                     "{}: with the defaults of its keys; null: none.");
    keys.add_section("early_stopping", early_stopping,
                     "End training when the metric of checkpoint.monitor stops improving; {}: with the defaults of its keys; null: never.");
    keys.add("overfit_batches", overfit_batches,
             {.min = 1,
              .unit = "steps",
              .doc = "To test a network and its settings: train only on the images of this many steps, chosen by `seed`, and validate on "
                     "the same images; the loss must come close to zero. null: train on the whole training set."});
    for (const char* key : {"unfreeze_after", "overfit_batches"}) keys.set_facts(key, {.is_fixed_on_resume = true});
    keys.add("extend", extend,
             {.doc = "true: continue a finished run even if its configuration has changed in more than the number of epochs or steps, for "
                     "example in the learning rate or its schedule."});
  }
};

// The device, the precision and the threads of the computation.

inline const Choices<device::ConvolutionChoice> kConvolutionChoices = {{"auto", device::ConvolutionChoice::kAuto},
                                                                       {"direct", device::ConvolutionChoice::kDirect},
                                                                       {"winograd2", device::ConvolutionChoice::kWinograd2},
                                                                       {"winograd4", device::ConvolutionChoice::kWinograd4}};

struct RuntimeSection {
  device::DeviceChoice device = device::DeviceChoice::kAuto;
  device::FloatType dtype = device::FloatType::kFloat32;
  Auto<int64_t> threads = {};
  bool deterministic = false;
  bool cudnn_benchmark = true;
  Auto<bool> allow_tf32 = {};
  Auto<bool> channels_last = {};
  device::ConvolutionChoice convolution = device::ConvolutionChoice::kAuto;
  device::FuseChoice fuse = device::FuseChoice::kAuto;
  device::CudaGraphChoice cuda_graph = device::CudaGraphChoice::kOff;
  std::string cuda_allocator = {};

  void describe(KeyTable& keys) {
    using device::CudaGraphChoice;
    using device::DeviceChoice, device::FloatType, device::FuseChoice;
    keys.add_choice("device", device, {{"auto", DeviceChoice::kAuto}, {"cpu", DeviceChoice::kCpu}, {"cuda", DeviceChoice::kCuda}},
                    {.doc = "Device that computes; auto: the GPU if there is one, otherwise the CPU."});
    keys.add_choice("dtype", dtype, {{"float32", FloatType::kFloat32}, {"float64", FloatType::kFloat64}},
                    {.doc = "Type of parameters, and of images without bfloat16 autocast; float64 is for exact comparisons."});
    keys.add("threads", threads,
             {.min = 1,
              .max = 1024,
              .unit = "threads",
              .doc = "Compute threads of this process. The exact bits of the results on a CPU depend on their number. auto: "
                     "OMP_NUM_THREADS if it is set (torchrun's default of 1 does not count), else the cores that the process may use "
                     "(affinity, cgroup) divided by the ranks on this host, at most SLURM_CPUS_PER_TASK."});
    keys.add("deterministic", deterministic,
             {.doc = "Use only deterministic algorithms, and end with an error at an operation that has none. "
                     "Two runs on GPUs of the same type are then equal bit for bit."});
    keys.add("cudnn_benchmark", cudnn_benchmark,
             {.doc = "Let cuDNN try its algorithms in the first steps and keep the fastest; off with deterministic."});
    keys.add("allow_tf32", allow_tf32,
             {.doc = "Round float32 inputs to TF32's 10 bits of mantissa on a GPU, which is faster; auto: for convolutions, but not for "
                     "matrix products, as PyTorch does."});
    keys.add("channels_last", channels_last,
             {.doc = "Store images and filters in NHWC order; auto: where this makes the network faster, but never for float64."});
    keys.add_choice(
        "convolution", convolution, kConvolutionChoices,
        {.doc =
             "Algorithm of 3×3 convolutions with stride 1 on a CPU: direct, or Winograd's algorithm with tiles of 2×2 (winograd2) or 4×4 "
             "(winograd4) in those layers that it makes faster. auto: winograd4, but direct with bfloat16 autocast on a processor with "
             "AMX, and for predictions of fewer than eight images at once. Compared with direct, rounding errors in usual networks are as "
             "large with winograd2, and three to six times larger with winograd4; they are relative to the largest nearby values, so the "
             "relative error of a much smaller value has no bound. direct is always used on a GPU, with float64, with float16, without "
             "channels_last and with deterministic."});
    keys.add_choice("fuse", fuse, {{"off", FuseChoice::kOff}, {"auto", FuseChoice::kAuto}, {"on", FuseChoice::kOn}},
                    {.doc = "Whether operators are fused. auto: on a CPU in channels_last, batch normalisation, the addition of a residual "
                            "and the following ReLU are one operator; on: on a GPU in channels_last too, except with float64 (its kernels "
                            "have never run on a real GPU); off: LibTorch's separate operators are used."});
    keys.add_choice("cuda_graph", cuda_graph,
                    {{"off", CudaGraphChoice::kOff}, {"auto", CudaGraphChoice::kAuto}, {"on", CudaGraphChoice::kOn}},
                    {.doc = "Record the kernels of a step once and then launch them with one call, which is faster for small networks, "
                            "whose kernels finish before the processor can launch the next. It needs one process, distributed.backend: "
                            "auto, training.accumulation_steps: 1, optimizer.skip_zero_grads: false, more GPU memory, and the optimizer "
                            "adam, adamw, or sgd with dampening 0; auto: where these conditions are met; on: refuse to train where they "
                            "are not."});
    keys.add("cuda_allocator", cuda_allocator,
             {.doc = "Settings of the GPU's memory allocator, in the format of PYTORCH_CUDA_ALLOC_CONF (\"expandable_segments:True\"); "
                     "empty: those of the environment variable. Another backend can only be chosen by the variable."});
  }
};

enum class AmpDtype { kAuto, kBfloat16, kFloat16 };

struct AmpSection {
  Auto<bool> enabled = {};
  AmpDtype dtype = AmpDtype::kAuto;
  amp::GradScalerOptions scaler = {};

  void describe(KeyTable& keys) {
    keys.add("enabled", enabled,
             {.doc = "Compute the forward pass and the loss under autocast; auto: where the type is fast (bfloat16: avx512_bf16 on a CPU, "
                     "compute capability 8 or higher on a GPU; float16: any GPU), but not with float64."});
    keys.add_choice(
        "dtype", dtype, {{"auto", AmpDtype::kAuto}, {"bfloat16", AmpDtype::kBfloat16}, {"float16", AmpDtype::kFloat16}},
        {.doc = "Type of the autocast operations; auto: bfloat16. float16 uses a GradScaler, which the following keys configure."});
    // Limited because the scale and its reciprocal must fit into float32, even after the scale has grown.
    keys.add("init_scale", scaler.init_scale,
             {.min = 1e-30, .max = 1e30, .doc = "Initial scale, the factor by which the loss is multiplied."});
    keys.add(
        "growth_factor", scaler.growth_factor,
        {.min = 1, .min_excluded = true, .doc = "The scale is multiplied by this factor after growth_interval steps without an overflow."});
    keys.add("backoff_factor", scaler.backoff_factor,
             {.min = 0,
              .max = 1,
              .min_excluded = true,
              .max_excluded = true,
              .doc = "The scale is multiplied by this factor after an overflow, and the step is skipped."});
    keys.add("growth_interval", scaler.growth_interval,
             {.min = 1, .unit = "steps", .doc = "Steps without an overflow before the scale grows."});
  }
};

// How the processes of a run find each other and work together.

struct DistributedSection {
  distributed::BackendChoice backend = distributed::BackendChoice::kAuto;
  std::string init_method = "env://";
  std::string secret_file = {};
  int64_t timeout_seconds = 600;
  int64_t hang_seconds = supervision::kDefaultHangLimit.count();
  double straggler_ratio = 1.5;
  bool sync_batch_norm = true;
  distributed::DataParallelOptions data_parallel = {.gradient_as_bucket_view = true};

  void describe(KeyTable& keys) {
    using distributed::BackendChoice, distributed::GradientCompression;
    keys.add_choice("backend", backend, {{"auto", BackendChoice::kAuto}, {"gloo", BackendChoice::kGloo}, {"nccl", BackendChoice::kNccl}},
                    {.doc = "Backend that transfers tensors between processes; auto: nccl between GPUs, else gloo."});
    keys.add("init_method", init_method,
             {.doc = "Where the processes meet: env:// (MASTER_ADDR and MASTER_PORT), tcp://HOST:PORT, or file:///PATH on a disk that all "
                     "of them share. The option --init-method takes precedence."});
    keys.add("secret_file", secret_file,
             {.doc = "A file with the same 16 or more random characters on all hosts, by which the processes of a run recognise each "
                     "other; \"\": the secret of the launcher, if it has one (see Trust in running.md)."});
    keys.add("timeout_seconds", timeout_seconds,
             {.min = 1,
              .max = 86400,
              .unit = "seconds",
              .doc = "How long to wait for a process that is late, at the start and during the run."});
    keys.add(
        "hang_seconds", hang_seconds,
        {.min = 1,
         .max = 86400,
         .unit = "seconds",
         .doc = "A process counts as hung if, for this many seconds, it does not respond or remains in the same step, validation batch "
                "or checkpoint, or at the same file. It is then named in the log, and the run ends."});
    keys.add("straggler_ratio", straggler_ratio,
             {.min = 1,
              .min_excluded = true,
              .doc = "A process for which the others wait is named in the log if its own work (waiting for data, and computing until its "
                     "first gradients are ready) takes more than this many times as long as the median of the other processes."});
    keys.add(
        "sync_batch_norm", sync_batch_norm,
        {.doc = "true: batch normalisation uses the statistics of the batches of all processes together. false: each process uses its own "
                "batch."});
    keys.add("bucket_cap_mb", data_parallel.bucket_cap_mb,
             {.min = 0,
              .min_excluded = true,
              .unit = "MiB",
              .doc = "Gradients are collected in buckets of up to this size, which are sent during backward, or on CPUs after it if the "
                     "gradients of all ranks together are at most 4 MiB."});
    keys.add("broadcast_buffers", data_parallel.broadcast_buffers,
             {.doc = "Copy the running statistics of rank 0 to all ranks before each step; no effect if "
                     "distributed.sync_batch_norm already keeps all of them equal."});
    keys.add("find_unused_parameters", data_parallel.find_unused_parameters,
             {.doc = "Allow parameters on which a step's loss does not depend; costs a traversal of the autograd graph in every step."});
    keys.add("gradient_as_bucket_view", data_parallel.gradient_as_bucket_view,
             {.doc = "Keep gradients in the buckets that are sent, which saves a copy of them."});
    keys.add_choice(
        "gradient_compression", data_parallel.gradient_compression,
        {{"none", GradientCompression::kNone}, {"float16", GradientCompression::kFloat16}, {"bfloat16", GradientCompression::kBfloat16}},
        {.doc = "Send gradients rounded to this type, which halves the traffic."});
  }
};

inline const Choices<task::TestTimeAugmentation> kTtaChoices = {{"none", task::TestTimeAugmentation::kNone},
                                                                {"flip", task::TestTimeAugmentation::kFlip},
                                                                {"flip_and_shift", task::TestTimeAugmentation::kFlipAndShift}};

}  // namespace trainer::config

namespace trainer {

// In the namespace of KeyTable, so that argument-dependent lookup finds this function.
inline void describe(KeyTable& keys, engine::ValidationOptions& options) {
  keys.add("every_epochs", options.every_epochs,
           {.min = 1,
            .unit = "epochs",
            .doc = "Epochs between two validations; null: none at the end of epochs. The end of training is always validated, unless both "
                   "every_epochs and every_steps are null: then there are no validations, and the data set needs no validation part."});
  keys.add("every_steps", options.every_steps,
           {.min = 1, .unit = "steps", .doc = "Optimizer steps between two validations within an epoch; null: none within epochs."});
  keys.add("batch_size", options.batch_size, {.min = 1, .unit = "images", .doc = "Images per validation batch."});
  keys.add_choice(
      "tta", options.tta, config::kTtaChoices,
      {.doc = "Test-time augmentation: the network's outputs are averaged over several views of each image. flip: the image and its mirror "
              "image; flip_and_shift: also the image shifted by one pixel down and right, the image shifted up and left, and the mirror "
              "images of both; these four together have the same weight as the first two. Validation takes two or six times as long."});
}

}  // namespace trainer

namespace trainer::config {

struct CheckpointSection {
  std::optional<int64_t> every_epochs = 1;
  std::optional<int64_t> every_steps = {};
  int64_t keep_last = 3;
  engine::MonitorOptions best = {};

  void describe(KeyTable& keys, const Registries& registries) {
    using engine::MonitorMode;
    keys.add("every_epochs", every_epochs,
             {.min = 1,
              .unit = "epochs",
              .doc = "Epochs between two checkpoints, saved after the validation; null: none at the end of epochs. A checkpoint is always "
                     "saved at the end of training, after a stop request, and after the best validation so far."});
    keys.add("every_steps", every_steps,
             {.min = 1, .unit = "steps", .doc = "Optimizer steps between two checkpoints within an epoch; null: none within epochs."});
    keys.add("keep_last", keep_last,
             {.min = 1, .unit = "files", .doc = "Number of newest checkpoints that are kept, in addition to the best one."});
    const auto monitor = registries.monitor();
    Choices<std::string> choices = {{"auto", "auto"}};
    for (const auto& name : monitor.names) choices.emplace_back(name, name);
    keys.add_choice("monitor", best.metric, choices,
                    {.doc = "The metric by which the best checkpoint is chosen; auto: " + monitor.default_doc + "."});
    keys.add_choice("mode", best.mode, {{"auto", MonitorMode::kAuto}, {"max", MonitorMode::kMax}, {"min", MonitorMode::kMin}},
                    {.doc = "Whether a higher or a lower value is better; auto: what the metric defines, such as lower for a loss."});
  }
};

struct LoggingSection {
  int64_t every_steps = 50;
  bool tensorboard = true;
  bool all_ranks = false;
  std::optional<int64_t> histograms_every_epochs = {};
  std::vector<int64_t> profile_steps = {};
  std::vector<std::string> command = {};
  std::vector<ComponentConfig> sinks = {};

  void describe(KeyTable& keys, const RegistryBase& of_sinks) {
    keys.add("every_steps", every_steps, {.min = 1, .unit = "steps", .doc = "Optimizer steps between two lines with training metrics."});
    keys.add("tensorboard", tensorboard, {.doc = "Also write TensorBoard event files."});
    keys.add("all_ranks", all_ranks, {.doc = "true: each rank N except rank 0 also writes a log, to rank_N.log in the run directory."});
    keys.add("histograms_every_epochs", histograms_every_epochs,
             {.min = 1,
              .unit = "epochs",
              .doc = "Epochs between two sets of TensorBoard histograms of the parameters and their gradients; null: none."});
    keys.refuse("histograms_every_epochs", [this] {
      return histograms_every_epochs && !tensorboard
                 ? "needs logging.tensorboard: true, because histograms are only written to TensorBoard files"
                 : "";
    });
    keys.add("profile_steps", profile_steps,
             {.min = 0,
              .unit = "steps",
              .doc = "Two numbers [A, B]: steps A + 1 to B are profiled on rank 0. A table of the most expensive operations is logged, and "
                     "profile.json, for Perfetto or chrome://tracing, is written to the run directory; []: none."});
    keys.refuse("profile_steps", [this] {
      const bool is_range = profile_steps.size() == 2 && profile_steps[0] < profile_steps[1];
      return profile_steps.empty() || is_range ? "" : "expected two numbers, the first less than the second, as in [10, 20]";
    });
    keys.add("command", command,
             {.doc = "A program and its arguments; it receives each event of the run on its standard input, as a line of JSON like those "
                     "of metrics.jsonl; []: none.",
              .may_be_empty = false});
    keys.add_components("sinks", sinks, of_sinks,
                        "Additional sinks, defined by plug-ins (key plugins), that receive the events of the run.");
  }
};

}  // namespace trainer::config
