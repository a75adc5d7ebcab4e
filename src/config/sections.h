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
    keys.add_component("name", component, models, "", "The network; `trainer list models` shows them.");
    keys.add("weights", weights,
             {.doc = "Published weights that training begins with, fetched once to ${TRAINER_HOME:-~/.cache/trainer}/weights: a name that "
                     "`trainer weights list` shows, `default` for torchvision's default, or the address of a file; the last layer begins "
                     "at random for another number of classes. Transforms that the experiment does not give are those of the weights. "
                     "Empty: none."});
    keys.add("weights_mirror", weights_mirror,
             {.doc = "The address of a folder with the files (https://, http:// or file://) to use instead of torchvision's."});
    keys.refuse("weights",
                [this] { return !weights.empty() && !init_from.empty() ? "given together with model.init_from; keep one of them" : ""; });
    keys.refuse("weights_mirror",
                [this] { return !weights_mirror.empty() && weights.empty() ? "has no effect without model.weights" : ""; });
    keys.add("init_from", init_from,
             {.doc = "A file whose parameters and buffers training begins with, by their names: a state_dict of PyTorch, safetensors, or a "
                     "checkpoint; empty: none.",
              .is_path = true});
    keys.add(
        "init_strict", init_strict,
        {.doc = "Refuse a file in which something is missing, unexpected or of another shape; false: load what fits, such as all "
                "but a head for other classes, of which a checkpoint's rows follow the names of the classes, and log what was skipped."});
    keys.add(
        "freeze", freeze,
        {.doc = "Layers and parameters, by their names or the beginnings of them up to a dot, as in [conv1, layer1], or [backbone] for "
                "all but the last layer: their parameters "
                "stay as they are, and so do the running statistics of their batch normalisation, which are used in training too. "
                "`trainer validate` shows all names.",
         .may_be_empty = false});
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
  part.doc = "Part of the training samples that is validated on.";
  keys.add("validation", section.validation, part);
  part.doc = "Part of them that is neither trained nor validated on, for `trainer eval --split test`.";
  keys.add("test", section.test, part);
  keys.add(
      "group", section.group,
      {.doc = "A regular expression (ECMAScript) in the path of an image below the data set's folder, such as \"^([^_]+)_\": images for "
              "which its first group in brackets, or else what it finds, is the same stay together. Empty: those that "
              "dataset.group_column of `csv` tells, or each image for itself."});
  keys.add(
      "stratify", section.stratify,
      {.doc = "Take the exact parts of each class, of all its groups in the order of their hashes. Then a group may change its part when "
              "others are added; false: by the hash of its name alone, so that it never does, and parts are about as large."});
  keys.add("folds", section.folds,
           {.min = 2, .max = 1000, .doc = "Divide what is not for the test into so many folds, of which one is validated on; null: none."});
  keys.add("fold", section.fold, {.min = 0, .doc = "Which of the folds, from 0, is validated on."});
  keys.add("seed", section.seed, {.min = 0, .doc = "Another seed gives another split; that of the run does not change it."});
  keys.refuse("fold", [&section]() -> std::string {
    if (!section.folds) return section.fold > 0 ? "has no effect without folds; set folds, or leave it out" : "";
    return section.fold < *section.folds ? "" : "must be less than folds; the first is 0";
  });
  keys.refuse("validation", [&section]() -> std::string {
    if (section.folds) return "";
    if (section.validation <= 0) return "must be greater than 0; to hold nothing out, leave dataset.split out";
    return section.validation + section.test < 1 ? "" : "leaves no training samples beside test; lower one of them";
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
    keys.add_component("name", component, registries.datasets, "", "The data set; `trainer list datasets` shows them.");
    keys.add_components(
        "train_transforms", train_transforms, registries.transforms,
        "Applied to each training image, in this order; without this key those that the data set's line tells, or none, and with "
        "training.cache_features those of validation.");
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
    keys.add_section(
        "split", split,
        "Divides the training samples into parts for training, validation and test by the hash of their names, so that a sample "
        "stays in its part when others are added, and samples of a group are in one part; `split.csv` of the run has them. {}: "
        "with these defaults; null: not divided so.");
    keys.refuse("split", [this] {
      return split && validation_split.value.value_or(0) > 0 ? "given together with dataset.validation_split; keep one of them" : "";
    });
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
             {.min = 1, .unit = "images", .doc = "Images a rank takes in a micro-step. Give this or `global_batch_size`; neither: 128."});
    keys.add("global_batch_size", global_batch_size,
             {.min = 1,
              .unit = "images",
              .doc = "Images all ranks take together in an optimizer step. Where they cannot be divided evenly among ranks or "
                     "`training.accumulation_steps`, the parts differ by one; the result does not depend on the number of ranks."});
    keys.add(
        "num_workers", num_workers,
        {.min = 0,
         .max = 256,
         .unit = "threads",
         .doc = "Threads that prepare batches; 0: the training thread does it; auto: one on the CPU, and with a GPU one for each core that "
                "this process may use, at most 16. Results do not depend on it."});
    keys.add("prefetch", prefetch,
             {.min = 1,
              .max = 1024,
              .unit = "batches",
              .doc = "Batches that are kept ready, at least one for each of the threads; their buffers are allocated once."});
    keys.add_section(
        "sampler",
        [this, &samplers](KeyTable& section) {
          section.add_component("name", sampler, samplers, "shuffled", "`trainer list samplers` shows them.");
        },
        "Which training samples an epoch has, and their order, which all ranks share.");
    keys.add("drop_last", drop_last, {.doc = "Leave out a training epoch's last batch when it is not full on every rank."});
    keys.add_choice(
        "shards", shards, {{"pad", data::Shards::kPad}, {"drop", data::Shards::kDrop}, {"exact", data::Shards::kExact}},
        {.doc = "When the number of an epoch's images is not a multiple of the ranks: repeat some images or leave some out, as PyTorch's "
                "DistributedSampler does, or take each of them once, the ranks' parts then differing by one."});
    keys.refuse("global_batch_size",
                [this] { return batch_size && global_batch_size ? "given together with dataloader.batch_size; keep one of them" : ""; });
    keys.add("pin_memory", pin_memory, {.doc = "Batches in page-locked memory, for faster copies to a GPU; auto: where there is one."});
  }
};

}  // namespace trainer::config

namespace trainer {

// The task, the loss, the optimizer and its schedule.

// Beside KeyTable, where the compiler looks for it.
inline void describe(KeyTable& keys, optim::ParameterGroupOptions& options) {
  keys.add("parameters", options.parameters,
           {.doc = "Layers and parameters, by their names or the beginnings of them up to a dot, as in [fc].",
            .required = true,
            .may_be_empty = false});
  keys.add("lr_factor", options.lr_factor, {.min = 0, .doc = "Their learning rate, as a factor on that of the others."});
  keys.add("weight_decay", options.weight_decay, {.min = 0, .doc = "Instead of the optimizer's weight_decay; null: that one."});
}

}  // namespace trainer

namespace trainer::config {

struct TaskSection {
  ComponentConfig component;

  void describe(KeyTable& keys, const RegistryBase& tasks) {
    keys.add_component("name", component, tasks, "classification",
                       "What the network learns and what is measured. If left out: classification; multi_label if the data set gives "
                       "any number of classes for each image and the loss fits; regression if the loss is one of numbers.");
  }
};

struct LossSection {
  ComponentConfig component;

  void describe(KeyTable& keys, const RegistryBase& losses) {
    keys.add_component("name", component, losses, "cross_entropy", "What is minimised.");
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
             {.doc = "Apply the optimizer's weight_decay to normalisation weights and to biases too, as PyTorch does; false: only to "
                     "weights with two or more dimensions."});
    keys.add(
        "skip_zero_grads", skip_zero_grads,
        {.doc = "Leave a parameter as it is in a step in which its gradient is zero everywhere: no weight decay, no momentum. Waits for "
                "the device in every step."});
    keys.add("layer_decay", layer_decay,
             {.min = 0,
              .max = 1,
              .min_excluded = true,
              .doc = "Multiplies the learning rate of each layer or block once for each one that comes after it, so that the first ones, "
                     "which need to change least in fine-tuning, learn slowest. 0.65 to 0.9 are usual; null: all learn alike."});
    keys.add_sections("groups", groups,
                      "Parameters with a learning rate or a weight decay of their own, for fine-tuning; of several items that name a "
                      "parameter, the first counts.");
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
              .doc = "Linear warm-up before the schedule, which then covers the remaining steps; this or warmup_epochs."});
    keys.add("warmup_epochs", warmup.epochs, {.min = 0, .unit = "epochs", .doc = "The same in epochs; fractions allowed."});
    keys.add("warmup_start_factor", warmup.start_factor,
             {.min = 0, .max = 1, .doc = "Part of the learning rate that the warm-up starts from."});
    keys.refuse("warmup_epochs", [this] {
      return warmup.steps > 0 && warmup.epochs > 0 ? "given together with lr_scheduler.warmup_steps; keep one of them" : "";
    });
  }
};

}  // namespace trainer::config

namespace trainer {

// Beside KeyTable, where the compiler looks for it.
inline void describe(KeyTable& keys, optim::EmaOptions& options) {
  keys.add("decay", options.decay, {.min = 0, .max = 1, .max_excluded = true, .doc = "Part of the average that is kept in each step."});
  keys.add("warmup", options.warmup,
           {.doc = "Keep less at first, (1 + n) / (10 + n) in the n-th step, so that the beginning is soon forgotten."});
}

inline void describe(KeyTable& keys, engine::EarlyStoppingOptions& options) {
  keys.add("patience", options.patience,
           {.min = 1, .unit = "validations", .doc = "The training ends after so many validations in a row that were not better."});
  keys.add("min_delta", options.min_delta,
           {.min = 0, .doc = "A validation is better if it differs by more than this from the best one, in the metric's own unit."});
}

}  // namespace trainer

namespace trainer::config {

struct TrainingSection {
  // Exactly one of them is given.
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
    keys.add("epochs", epochs, {.min = 1, .unit = "epochs", .doc = "Passes over the training set. Give this or `steps`."});
    keys.add("steps", steps,
             {.min = 1,
              .unit = "steps",
              .doc = "Optimizer steps, in as many epochs as they need; the training ends after them, also within an epoch. To replace the "
                     "`epochs` of a file on the command line, add training.epochs=null."});
    keys.add("mixup_off_epochs", mixup_off_epochs,
             {.min = 0,
              .unit = "epochs",
              .doc = "The last epochs, in which dataset.batch_transforms mix nothing, so that the training ends on images as they are."});
    keys.refuse("mixup_off_epochs", [this]() -> std::string {
      if (mixup_off_epochs == 0) return "";
      if (!epochs) return "needs training.epochs instead of training.steps";
      return mixup_off_epochs > *epochs ? "is more than training.epochs; choose fewer" : "";
    });
    keys.add(
        "cache_features", cache_features,
        {.doc = "Compute the frozen layers (model.freeze) once for each image instead of in each epoch, and keep the results in "
                "${TRAINER_HOME:-~/.cache/trainer}/features for this and later runs with the same weights, images and transforms. "
                "Needs train_transforms without random ones, as they are by default; dropout and drop_path of the frozen layers are off."});
    keys.add("unfreeze_after", unfreeze_after,
             {.min = 1,
              .unit = "epochs",
              .doc = "After so many epochs the parameters that model.freeze names are trained too; the running statistics of their batch "
                     "normalisation stay as they are, because those of few images would do harm. null: never."});
    keys.refuse("unfreeze_after", [this]() -> std::string {
      if (!unfreeze_after) return "";
      if (cache_features)
        return "given together with training.cache_features; train the frozen network first, and then another run with model.init_from";
      return epochs && *unfreeze_after >= *epochs ? "is not less than training.epochs, so that it has no effect; choose fewer" : "";
    });
    keys.refuse("epochs", [this] { return epochs || steps ? "" : "missing; give this or training.steps"; });
    keys.refuse("steps", [this] { return epochs && steps ? "given together with training.epochs; set one of them to null" : ""; });
    keys.add("accumulation_steps", accumulation_steps,
             {.min = 1,
              .unit = "micro-steps",
              .doc = "Micro-steps whose gradients are joined into one optimizer step. A shorter group at an epoch's end is averaged over "
                     "the images that it has."});
    keys.add("max_grad_norm", max_grad_norm,
             {.min = 0, .min_excluded = true, .doc = "Scale the gradient down to this 2-norm when it is longer; null: never."});
    keys.add("max_minutes", max_minutes,
             {.min = 0,
              .min_excluded = true,
              .unit = "minutes",
              .doc = "After so long since its start the process stops as on request: saved, with exit code 75; null: never."});
    keys.add_choice("on_non_finite", on_non_finite, {{"stop", engine::OnNonFinite::kStop}, {"skip", engine::OnNonFinite::kSkip}},
                    {.doc = "A step whose loss or gradients are not finite is skipped and saved for `trainer replay`; stop: and the run "
                            "ends; skip: and the run continues, up to ten times in a row. Skipping waits for the GPU in each step. What "
                            "amp.dtype: float16 skips to find its scale is neither."});
    keys.add_section("ema", ema,
                     "An exponential moving average of the parameters over the steps, validated beside the parameters themselves; {}: with "
                     "these defaults; null: none.");
    keys.add_section("early_stopping", early_stopping,
                     "End the training when the metric of checkpoint.monitor does not get better any more; {}: with these defaults; null: "
                     "never.");
    keys.add("overfit_batches", overfit_batches,
             {.min = 1,
              .unit = "steps",
              .doc = "To test a network and its settings: train on the images of so many steps only, chosen by `seed`, and validate on the "
                     "same images; the loss must come close to zero. null: on the whole training set."});
    keys.add("extend", extend,
             {.doc = "Continue a finished run, although more has changed than a greater number of epochs or steps, such as the learning "
                     "rate or its schedule."});
  }
};

// The device, the precision and the threads of the computation.

inline const Choices<device::ConvolutionChoice> kConvolutionChoices = {{"auto", device::ConvolutionChoice::kAuto},
                                                                       {"direct", device::ConvolutionChoice::kDirect},
                                                                       {"winograd2", device::ConvolutionChoice::kWinograd2},
                                                                       {"winograd4", device::ConvolutionChoice::kWinograd4}};
enum class FuseChoice { kAuto, kOff };

struct RuntimeSection {
  device::DeviceChoice device = device::DeviceChoice::kAuto;
  device::FloatType dtype = device::FloatType::kFloat32;
  Auto<int64_t> threads = {};
  bool deterministic = false;
  bool cudnn_benchmark = true;
  Auto<bool> allow_tf32 = {};
  Auto<bool> channels_last = {};
  device::ConvolutionChoice convolution = device::ConvolutionChoice::kAuto;
  FuseChoice fuse = FuseChoice::kAuto;
  device::CudaGraphChoice cuda_graph = device::CudaGraphChoice::kOff;
  std::string cuda_allocator = {};

  void describe(KeyTable& keys) {
    using device::CudaGraphChoice;
    using device::DeviceChoice, device::FloatType;
    keys.add_choice("device", device, {{"auto", DeviceChoice::kAuto}, {"cpu", DeviceChoice::kCpu}, {"cuda", DeviceChoice::kCuda}},
                    {.doc = "auto: the GPU where there is one."});
    keys.add_choice("dtype", dtype, {{"float32", FloatType::kFloat32}, {"float64", FloatType::kFloat64}},
                    {.doc = "Type of parameters and images; float64 is for exact comparisons."});
    keys.add("threads", threads,
             {.min = 1,
              .max = 1024,
              .unit = "threads",
              .doc = "Compute threads of this process, on whose number the bits of a training on a CPU depend; auto: OMP_NUM_THREADS if it "
                     "is set (torchrun's own 1 does not count), else the cores that the process may use (affinity, cgroup, Slurm) divided "
                     "by the ranks on this host."});
    keys.add(
        "deterministic", deterministic,
        {.doc = "Refuse operations that are not deterministic; on a GPU, two runs on GPUs of the same model are then equal bit for bit."});
    keys.add("cudnn_benchmark", cudnn_benchmark,
             {.doc = "Let cuDNN try its algorithms on the first steps and keep the fastest; off under deterministic."});
    keys.add(
        "allow_tf32", allow_tf32,
        {.doc = "Round float32 inputs to TF32's 10 bits of mantissa on a GPU, which is faster; auto: in convolutions, but not in matrix "
                "products, as PyTorch does."});
    keys.add("channels_last", channels_last,
             {.doc = "Images and filters in NHWC order in memory; auto: where the network gains from it, but never for float64."});
    keys.add_choice(
        "convolution", convolution, kConvolutionChoices,
        {.doc = "Algorithm of 3×3 convolutions with stride 1, on a CPU in float32 and channels_last: direct, or Winograd's with "
                "tiles of 2×2 or 4×4 (faster), for the layers that gain from it. Winograd's rounds relative to the largest values nearby: "
                "in usual networks 2×2 as direct does, 4×4 three to six times more, and without a bound beside much larger values. "
                "auto: winograd4, but direct with bfloat16 autocast on a processor with AMX, and to predict less than eight images at "
                "once. Always direct elsewhere, "
                "with float16 and under deterministic."});
    keys.add_choice("fuse", fuse, {{"auto", FuseChoice::kAuto}, {"off", FuseChoice::kOff}},
                    {.doc = "auto: on a CPU, batch normalisation, the addition of a residual and the ReLU behind it are one operator; off: "
                            "LibTorch's operators, one after the other."});
    keys.add_choice(
        "cuda_graph", cuda_graph, {{"off", CudaGraphChoice::kOff}, {"auto", CudaGraphChoice::kAuto}, {"on", CudaGraphChoice::kOn}},
        {.doc =
             "Record the kernels of a step once and then start them with one call, which is faster for small networks, whose kernels the "
             "GPU finishes before the processor can start the next. It needs one process, training.accumulation_steps 1, and the "
             "optimizer sgd (without dampening), adam or adamw without skip_zero_grads; auto: where that is so; on: refuse to train "
             "otherwise. It needs more "
             "memory of the GPU."});
    keys.add(
        "cuda_allocator", cuda_allocator,
        {.doc = "Settings of the GPU's memory allocator, in the format of PYTORCH_CUDA_ALLOC_CONF (\"expandable_segments:True\"); empty: "
                "those of the environment variable, which alone can choose another backend."});
  }
};

enum class AmpDtype { kAuto, kBfloat16, kFloat16 };

struct AmpSection {
  Auto<bool> enabled = {};
  AmpDtype dtype = AmpDtype::kAuto;
  amp::GradScalerOptions scaler = {};

  void describe(KeyTable& keys) {
    keys.add("enabled", enabled,
             {.doc = "Forward and loss under autocast; auto: where bfloat16 is fast (avx512_bf16 or AMX on a CPU, compute capability 8 on "
                     "a GPU)."});
    keys.add_choice("dtype", dtype, {{"auto", AmpDtype::kAuto}, {"bfloat16", AmpDtype::kBfloat16}, {"float16", AmpDtype::kFloat16}},
                    {.doc = "Type of the autocast operations; auto: bfloat16. float16 brings the GradScaler with it, whose keys follow."});
    // The scale and its reciprocal are float32, and the scale may grow.
    keys.add("init_scale", scaler.init_scale, {.min = 1e-30, .max = 1e30, .doc = "What the loss is multiplied by at first."});
    keys.add("growth_factor", scaler.growth_factor,
             {.min = 1, .min_excluded = true, .doc = "The scale grows by this factor after growth_interval steps without an overflow."});
    keys.add("backoff_factor", scaler.backoff_factor,
             {.min = 0,
              .max = 1,
              .min_excluded = true,
              .max_excluded = true,
              .doc = "The scale falls by this factor at an overflow, and the step is skipped."});
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
                    {.doc = "What carries tensors between processes; auto: nccl between GPUs, else gloo."});
    keys.add("init_method", init_method,
             {.doc = "Where the processes meet: env:// (MASTER_ADDR and MASTER_PORT), tcp://HOST:PORT, or file:///PATH on a disk that all "
                     "of them see. The flag --init-method takes precedence."});
    keys.add(
        "secret_file", secret_file,
        {.doc = "A file with the same 16 or more random characters on all hosts, by which the processes of a run recognise each other; "
                "\"\": what the launcher gives (see Trust in running.md)."});
    keys.add("timeout_seconds", timeout_seconds,
             {.min = 1, .max = 86400, .unit = "seconds", .doc = "How long to wait for a process that is late, at the start and later."});
    keys.add("hang_seconds", hang_seconds,
             {.min = 1,
              .max = 86400,
              .unit = "seconds",
              .doc = "A process that does not answer for so long, or takes longer for one step, one validation batch or, at its start, one "
                     "file, hangs: it is named and the run ends."});
    keys.add("straggler_ratio", straggler_ratio,
             {.min = 1,
              .min_excluded = true,
              .doc = "A process for which the others wait is named in the log when its own work (waiting for data, and computing until its "
                     "first gradients are ready) takes more than this many times as long as the others' median."});
    keys.add("sync_batch_norm", sync_batch_norm,
             {.doc = "Batch normalisation over the batches of all processes together; false: each over its own."});
    keys.add(
        "bucket_cap_mb", data_parallel.bucket_cap_mb,
        {.min = 0, .min_excluded = true, .unit = "MiB", .doc = "Gradients are joined up to this size and then sent, during backward."});
    keys.add("broadcast_buffers", data_parallel.broadcast_buffers,
             {.doc = "Take the running statistics of rank 0 before each forward pass; without effect where they are synchronised anyway."});
    keys.add("find_unused_parameters", data_parallel.find_unused_parameters,
             {.doc = "Allow parameters that take no part in a step's loss; costs a walk through the graph in every step."});
    keys.add("gradient_as_bucket_view", data_parallel.gradient_as_bucket_view,
             {.doc = "Keep gradients in the memory that is sent, which saves a copy of them."});
    keys.add_choice(
        "gradient_compression", data_parallel.gradient_compression,
        {{"none", GradientCompression::kNone}, {"float16", GradientCompression::kFloat16}, {"bfloat16", GradientCompression::kBfloat16}},
        {.doc = "Send gradients in this type; halves the traffic and rounds."});
  }
};

inline const Choices<task::TestTimeAugmentation> kTtaChoices = {{"none", task::TestTimeAugmentation::kNone},
                                                                {"flip", task::TestTimeAugmentation::kFlip},
                                                                {"flip_and_shift", task::TestTimeAugmentation::kFlipAndShift}};

}  // namespace trainer::config

namespace trainer {

// Beside KeyTable, where the compiler looks for it.
inline void describe(KeyTable& keys, engine::ValidationOptions& options) {
  keys.add("every_epochs", options.every_epochs,
           {.min = 1,
            .unit = "epochs",
            .doc = "Epochs between two validations; null: none for epochs. There is always one at the end of the training, unless both "
                   "this and every_steps are null: then nothing is validated, and the data set's validation part is not needed."});
  keys.add("every_steps", options.every_steps,
           {.min = 1, .unit = "steps", .doc = "Optimizer steps between two validations within an epoch; null: none."});
  keys.add("batch_size", options.batch_size, {.min = 1, .unit = "images", .doc = "Images in a validation batch."});
  keys.add_choice("tta", options.tta, config::kTtaChoices,
                  {.doc = "Test-time augmentation: the network's outputs are averaged over several views of each image. flip: the image "
                          "and its mirror image; flip_and_shift: also the image shifted by one pixel, down and right or up and left, "
                          "and the mirror images of these; the four count as much as the first two. Validation takes two or six times "
                          "as long."});
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
              .doc = "Epochs between two checkpoints, saved after the validation; null: none for epochs. There is always one at the end of "
                     "the training, when it is stopped on request, and after a validation that was the best so far."});
    keys.add("every_steps", every_steps,
             {.min = 1, .unit = "steps", .doc = "Optimizer steps between two checkpoints within an epoch; null: none."});
    keys.add("keep_last", keep_last, {.min = 1, .unit = "files", .doc = "Newest checkpoints that are kept, beside the best one."});
    const auto monitor = registries.monitor();
    Choices<std::string> choices = {{"auto", "auto"}};
    for (const auto& name : monitor.names) choices.emplace_back(name, name);
    keys.add_choice("monitor", best.metric, choices, {.doc = "What the best checkpoint is chosen by; auto: " + monitor.default_doc + "."});
    keys.add_choice("mode", best.mode, {{"auto", MonitorMode::kAuto}, {"max", MonitorMode::kMax}, {"min", MonitorMode::kMin}},
                    {.doc = "Whether more or less of it is better; auto: less of a loss, more of all else."});
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
    keys.add("every_steps", every_steps, {.min = 1, .unit = "steps", .doc = "Optimizer steps between two training lines."});
    keys.add("tensorboard", tensorboard, {.doc = "Write TensorBoard event files too."});
    keys.add("all_ranks", all_ranks, {.doc = "Every rank but the first writes its log to rank_N.log in the run directory."});
    keys.add("histograms_every_epochs", histograms_every_epochs,
             {.min = 1,
              .unit = "epochs",
              .doc = "Epochs between two sets of histograms of the parameters and their gradients, for TensorBoard; null: none."});
    keys.refuse("histograms_every_epochs", [this] {
      return histograms_every_epochs && !tensorboard ? "needs logging.tensorboard: true, because they are written for TensorBoard" : "";
    });
    keys.add("profile_steps", profile_steps,
             {.min = 0,
              .unit = "steps",
              .doc = "Two numbers: the steps after the first, up to the second, are profiled on rank 0: a table of the dearest operations "
                     "in the log, and profile.json, for Perfetto or chrome://tracing, in the run directory; []: none."});
    keys.refuse("profile_steps", [this] {
      const bool is_range = profile_steps.size() == 2 && profile_steps[0] < profile_steps[1];
      return profile_steps.empty() || is_range ? "" : "expected two numbers, the first less than the second, as in [10, 20]";
    });
    keys.add("command", command,
             {.doc = "A program and its arguments, which gets each event of the run on its standard input, as a line of JSON like those of "
                     "metrics.jsonl; []: none.",
              .may_be_empty = false});
    keys.add_components("sinks", sinks, of_sinks, "What else gets the events of the run, each a sink that one of `plugins` adds.");
  }
};

}  // namespace trainer::config
