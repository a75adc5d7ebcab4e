#include "config/load.h"

#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "base/file.h"
#include "config/reference.h"
#include "tests/testing/temporary_folder.h"

namespace trainer::config {
namespace {

struct NetOptions : Options {
  int64_t num_classes = 10;
  std::string stem = "cifar";
  void describe(KeyTable& keys) override {
    keys.add("num_classes", num_classes, {.min = 1, .doc = "Outputs."});
    keys.add("stem", stem, {.doc = "First layers."});
  }
};

struct CropOptions : Options {
  int64_t size = 0;
  std::vector<double> scale{1.0};
  void describe(KeyTable& keys) override {
    keys.add("size", size, {.min = 1, .doc = "Edge.", .required = true});
    keys.add("scale", scale, {.min = 0, .min_excluded = true, .doc = "A list."});
  }
};

struct RateOptions : Options {
  double lr = 0.1;
  double momentum = 0.0;
  void describe(KeyTable& keys) override {
    keys.add("lr", lr, {.min = 0, .min_excluded = true, .doc = "Learning rate."});
    keys.add("momentum", momentum, {.min = 0, .max = 1, .max_excluded = true, .doc = "Momentum."});
  }
};

struct NoOptions : Options {
  void describe(KeyTable&) override {}
};

// The components are never built, so their type is int.
using TestRegistry = Registry<int>;

template <class O>
void add(TestRegistry& registry, const std::string& name) {
  registry.add<O>(name, "A " + name + ".", [](const O&) { return 0; });
}

struct SmallRegistries {
  TestRegistry models{"model"}, datasets{"dataset"}, transforms{"transform"}, losses{"loss"}, optimizers{"optimizer"},
      lr_schedulers{"lr_scheduler"};

  SmallRegistries() {
    add<NetOptions>(models, "net");
    add<NoOptions>(models, "bare");
    add<NoOptions>(datasets, "data");
    add<CropOptions>(transforms, "crop");
    add<NoOptions>(transforms, "flip");
    add<NoOptions>(losses, "cross_entropy");
    add<RateOptions>(optimizers, "sgd");
    add<RateOptions>(optimizers, "adamw");
    add<NoOptions>(lr_schedulers, "constant");
  }
};

Registries small_registries() {
  static const SmallRegistries all;
  return {all.models, all.datasets, all.transforms, all.losses, all.optimizers, all.lr_schedulers};
}

constexpr const char* kMinimal = "experiment: small\nmodel: {name: net}\ndataset: {name: data}\ntraining: {epochs: 2}\n";

Experiment loaded(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return load_text(text, "x.yaml", overrides, small_registries());
}

std::string load_error(const std::string& text, const std::vector<std::string>& overrides = {}) {
  try {
    loaded(text, overrides);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

template <class O>
const O& options_of(const ComponentConfig& component) {
  return dynamic_cast<const O&>(*component.options);
}

TEST(Load, FillsDefaults) {
  const auto experiment = loaded(kMinimal);
  EXPECT_EQ(experiment.experiment, "small");
  EXPECT_EQ(experiment.training.epochs, 2);
  EXPECT_EQ(experiment.optimizer.component.name, "sgd");
  EXPECT_EQ(options_of<RateOptions>(experiment.optimizer.component).lr, 0.1);
  EXPECT_EQ(experiment.logging.every_steps, 50);
  EXPECT_FALSE(experiment.runtime.threads.value.has_value());
}

TEST(Load, ReadsEveryKindOfValue) {
  const auto experiment = loaded(std::string(kMinimal) +
                                     "dataloader: {batch_size: 64, drop_last: false, pin_memory: true}\n"
                                     "optimizer: {name: adamw, lr: 5.0e-4}\n"
                                     "runtime: {device: cpu, threads: 3, channels_last: false}\n"
                                     "validation: {batch_size: 7}\n",
                                 {"training.max_grad_norm=1.5"});
  EXPECT_EQ(experiment.dataloader.batch_size, 64);
  EXPECT_FALSE(experiment.dataloader.drop_last);
  EXPECT_EQ(experiment.dataloader.pin_memory.value, true);
  EXPECT_EQ(options_of<RateOptions>(experiment.optimizer.component).lr, 5.0e-4);
  EXPECT_EQ(experiment.runtime.device, DeviceChoice::kCpu);
  EXPECT_EQ(experiment.runtime.threads.value, 3);
  EXPECT_EQ(experiment.training.max_grad_norm, 1.5);
}

TEST(Load, ReportsAllProblemsTogetherInOrder) {
  const auto error = load_error(
      "experiment: small\n"
      "model: {name: net, num_clases: 10}\n"
      "dataset: {name: data}\n"
      "optimizer:\n"
      "  learning_rate: 0.1\n"
      "  momentum: 1\n"
      "training: {epochs: two}\n",
      {"logging.every_steps=0"});
  EXPECT_EQ(error,
            "x.yaml:2:20: model.num_clases: unknown key; did you mean \"num_classes\"?\n"
            "x.yaml:5:3: optimizer.learning_rate: unknown key; did you mean \"lr\"?\n"
            "x.yaml:6:13: optimizer.momentum: expected a number from 0 to 1 (1 excluded), got 1\n"
            "x.yaml:7:20: training.epochs: expected an integer >= 1, got two\n"
            "command line: logging.every_steps: expected an integer >= 1, got 0");
}

TEST(Load, MissingRequiredKeys) {
  const auto error = load_error("seed: 1\n");
  EXPECT_NE(error.find("x.yaml:1:1: experiment: missing; it has no default (text)"), std::string::npos) << error;
  EXPECT_NE(error.find("model.name: missing; it has no default (net | bare)"), std::string::npos) << error;
  EXPECT_NE(error.find("dataset.name: missing"), std::string::npos) << error;
  EXPECT_NE(error.find("training.epochs: missing"), std::string::npos) << error;
}

TEST(Load, UnknownKindGetsASuggestionAndItsKeysAreNotChecked) {
  EXPECT_EQ(load_error("experiment: s\nmodel: {name: nett, deep: 3}\ndataset: {name: data}\ntraining: {epochs: 1}\n"),
            "x.yaml:2:15: model.name: \"nett\" is not one of net, bare; did you mean \"net\"?");
}

TEST(Load, WrongShapes) {
  EXPECT_EQ(load_error("- a\n- b\n"), "x.yaml:1:1: expected a section of keys and values, got [a, b]");
  EXPECT_NE(load_error(std::string(kMinimal) + "logging: 5\n").find("logging: expected a section of keys and values, got 5"),
            std::string::npos);
  EXPECT_NE(
      load_error("experiment: s\nmodel: {name: [net]}\ndataset: {name: data}\ntraining: {epochs: 1}\n").find("expected a name, got [net]"),
      std::string::npos);
  EXPECT_NE(load_error("").find("the file is empty"), std::string::npos);
}

TEST(Load, ListsOfParts) {
  const auto experiment = loaded(
      "experiment: s\nmodel: {name: net}\ntraining: {epochs: 1}\ndataset:\n  name: data\n  train_transforms:\n"
      "    - crop: {size: 32}\n    - flip\n");
  ASSERT_EQ(experiment.dataset.train_transforms.size(), 2U);
  EXPECT_EQ(options_of<CropOptions>(experiment.dataset.train_transforms[0]).size, 32);
  const auto error = [](const std::string& list) { return load_error(kMinimal, {"dataset.train_transforms=" + list}); };
  EXPECT_EQ(error("5"), "command line: dataset.train_transforms: expected a list of parts such as [crop], got 5");
  EXPECT_EQ(error("[crap]"), "command line: dataset.train_transforms[0]: \"crap\" is not one of crop, flip; did you mean \"crop\"?");
  EXPECT_EQ(error("[flip, {crop: {size: 0}}]"), "command line: dataset.train_transforms[1].crop.size: expected an integer >= 1, got 0");
  EXPECT_EQ(error("[crop]"), "command line: dataset.train_transforms[0].crop.size: missing; it has no default (integer)");
  EXPECT_NE(error("[{crop: {size: 1}, flip: {}}]").find("expected one part"), std::string::npos);
  EXPECT_NE(error("[[]]").find("expected one part"), std::string::npos);
}

TEST(Load, OverridesSetKeysAndReplaceSections) {
  const auto text = std::string(kMinimal) + "optimizer: {name: sgd, momentum: 0.9}\n";
  const auto momentum = [&](const char* override_text) {
    return options_of<RateOptions>(loaded(text, {override_text}).optimizer.component).momentum;
  };
  EXPECT_EQ(momentum("optimizer.lr=0.5"), 0.9);
  EXPECT_EQ(momentum("optimizer={lr: 0.5}"), 0.0);
  EXPECT_EQ(momentum("optimizer={name: sgd, lr: 0.5}"), 0.0);
  EXPECT_EQ(loaded(text, {"logging.every_steps=3", "logging.every_steps=4"}).logging.every_steps, 4);
  EXPECT_EQ(loaded(text, {"dataset.train_transforms=[flip]", "dataset.train_transforms=[]"}).dataset.train_transforms.size(), 0U);
  EXPECT_EQ(loaded(text, {"experiment=a=b"}).experiment, "a=b");
}

TEST(Load, AnEmptySectionHasItsDefaults) {
  const std::string text = "experiment: a\nlogging:\n#  every_steps: 5\nmodel: {name: net}\ndataset: {name: data}\ntraining: {epochs: 2}\n";
  EXPECT_EQ(loaded(text).logging.every_steps, 50);
  EXPECT_EQ(loaded(text + "optimizer:\n").optimizer.component.name, "sgd");
  EXPECT_EQ(load_error("experiment: a\nmodel:\n  num_classes:\ndataset: {name: data}\ntraining: {epochs: 2}\n"),
            "x.yaml:3:3: model.name: missing; it has no default (net | bare)");
}

TEST(Load, AKeyOfAnotherComponentIsNamedAsSuch) {
  EXPECT_EQ(load_error(std::string(kMinimal) + "optimizer: {name: adamw, betas: 3}\n"), "x.yaml:5:26: optimizer.betas: unknown key");
  EXPECT_EQ(load_error("experiment: a\nmodel: {name: net, stem: x}\ndataset: {name: data}\ntraining: {epochs: 2}\n", {"model.name=bare"}),
            "x.yaml:2:20: model.stem: not a key of bare, but of net; instead of model.name=bare, replace the whole section, as in "
            "\"model={name: bare}\"");
}

TEST(Load, HintsForNumbers) {
  const auto error = [](const std::string& value) { return load_error(kMinimal, {"logging.every_steps=" + value}); };
  const auto lr_error = [](const std::string& value) { return load_error(kMinimal, {"optimizer.lr=" + value}); };
  EXPECT_EQ(
      error("9223372036854775808"),
      "command line: logging.every_steps: expected an integer >= 1, got 9223372036854775808; the largest integer is 9223372036854775807");
  EXPECT_EQ(error("0x10"),
            "command line: logging.every_steps: expected an integer >= 1, got 0x10; write it as a decimal number without leading zeros");
  EXPECT_EQ(error("010"),
            "command line: logging.every_steps: expected an integer >= 1, got 010; write it as a decimal number without leading zeros");
  EXPECT_EQ(lr_error("1e400"), "command line: optimizer.lr: expected a number > 0, got 1e400; no number of this size can be stored");
  EXPECT_EQ(lr_error("nan"), "command line: optimizer.lr: expected a number > 0, got nan; it must be finite");
  EXPECT_EQ(lr_error("-inf"), "command line: optimizer.lr: expected a number > 0, got -inf; it must be finite");
}

TEST(Load, TextsHaveNoControlCharacters) {
  for (const auto& [written, shown] :
       std::map<std::string, std::string>{{"\\0", "\\x00"}, {"\\e", "\\x1b"}, {"\\n", "\\x0a"}, {"\\x9b", "\\x9b"}}) {
    EXPECT_EQ(load_error(kMinimal, {"experiment=\"a" + written + "\""}),
              "command line: experiment: expected text without control characters, got \"a" + shown + "\"");
  }
}

TEST(Load, ASectionMayBeNull) {
  const auto ema = [](const std::string& line, const std::vector<std::string>& overrides) {
    return loaded("experiment: a\nmodel: {name: net}\ndataset: {name: data}\ntraining: {epochs: 2" + line + "}\n", overrides).training.ema;
  };
  EXPECT_FALSE(ema("", {}));
  EXPECT_FALSE(ema(", ema: null", {}));
  EXPECT_FALSE(ema(", ema: {decay: 0.5}", {"training.ema=null"}));
  EXPECT_TRUE(ema(", ema: {}", {}).has_value());
  EXPECT_TRUE(ema(", ema: null", {"training.ema={}"})->warmup);
  EXPECT_EQ(ema("", {"training.ema.decay=0.5"})->decay, 0.5);
  EXPECT_EQ(ema(", ema: {decay: 0.5, warmup: false}", {"training.ema.decay=0.75"})->decay, 0.75);
  EXPECT_FALSE(ema(", ema: {decay: 0.5, warmup: false}", {"training.ema.decay=0.75"})->warmup);
  EXPECT_EQ(load_error(kMinimal, {"training.ema=true"}), "command line: training.ema: expected a section of keys and values, got true");
  EXPECT_EQ(load_error(kMinimal, {"training.ema.decay=1"}),
            "command line: training.ema.decay: expected a number from 0 to 1 (1 excluded), got 1");
}

TEST(Load, BadOverrides) {
  EXPECT_EQ(load_error(kMinimal, {"epochs"}),
            "command line: \"epochs\" is not an override; write key.path=value, such as optimizer.lr=0.05");
  EXPECT_NE(load_error(kMinimal, {"=3"}).find("is not an override"), std::string::npos);
  EXPECT_NE(load_error(kMinimal, {"a..b=3"}).find("is not an override"), std::string::npos);
  EXPECT_NE(load_error(kMinimal, {"seed=[1"}).find("command line: seed: the value is not YAML"), std::string::npos);
  EXPECT_EQ(load_error(kMinimal, {"seed.x=1"}), "command line: seed: expected an integer >= 0, got {x: 1}");
  EXPECT_NE(load_error(kMinimal, {"experiment.x=1"}).find("command line: experiment.x: experiment is not a section"), std::string::npos);
  EXPECT_EQ(load_error(kMinimal, {"traning.epochs=1"}), "command line: traning: unknown key; did you mean \"training\"?");
}

TEST(Load, Contradictions) {
  const auto error = [](const std::string& line) { return load_error(kMinimal + line + "\n"); };
  EXPECT_EQ(error("dataloader: {batch_size: 8, global_batch_size: 8}"),
            "x.yaml:5:48: dataloader.global_batch_size: given together with dataloader.batch_size; keep one of them");
  EXPECT_EQ(load_error(kMinimal, {"dataloader.global_batch_size=10", "training.accumulation_steps=4"}),
            "command line: dataloader.global_batch_size: 10 is not a multiple of training.accumulation_steps = 4");
  EXPECT_NE(error("lr_scheduler: {warmup_steps: 5, warmup_epochs: 1}").find("lr_scheduler.warmup_epochs: given together"),
            std::string::npos);
  EXPECT_NE(error("runtime: {dtype: float64}\namp: {enabled: true}").find("amp.enabled: autocast lowers the precision"), std::string::npos);
  EXPECT_NE(load_error(kMinimal, {"experiment=a/b"}).find("cannot name a folder"), std::string::npos);
  EXPECT_NE(load_error(kMinimal, {"experiment=.."}).find("cannot name a folder"), std::string::npos);
}

TEST(Load, ResolvedFileReadsBackToTheSame) {
  const auto registries = small_registries();
  auto experiment = loaded(kMinimal, {"dataset.train_transforms=[flip, {crop: {size: 8, scale: [0.1, 3]}}]", "experiment=with space",
                                      "runtime.threads=2", "training.max_grad_norm=0.1", "training.ema.decay=0.25"});
  const auto text = to_yaml(experiment, registries);
  auto again = load_text(text, "again.yaml", {}, registries);
  EXPECT_EQ(to_yaml(again, registries), text);
  EXPECT_EQ(again.training.max_grad_norm, 0.1);
  EXPECT_EQ(again.training.ema->decay, 0.25);
  EXPECT_NE(to_yaml(experiment, registries).find("decay: 0.25"), std::string::npos);
  experiment.training.ema.reset();
  EXPECT_FALSE(load_text(to_yaml(experiment, registries), "again.yaml", {}, registries).training.ema);
  EXPECT_EQ(options_of<CropOptions>(again.dataset.train_transforms[1]).scale, (std::vector<double>{0.1, 3}));
}

TEST(Load, PathsMayHaveAHomeFolderAndVariables) {
  setenv("HOME", "/home/ada", /*overwrite=*/1);
  setenv("TRAINER_TEST_DATA", "/data", 1);
  unsetenv("TRAINER_TEST_ABSENT");
  const auto experiment = loaded(kMinimal, {"output_dir=~/runs", "model.init_from=${TRAINER_TEST_DATA}/net.pt"});
  EXPECT_EQ(experiment.output_dir, "/home/ada/runs");
  EXPECT_EQ(experiment.model.init_from, "/data/net.pt");
  EXPECT_EQ(load_error(std::string(kMinimal) + "output_dir: ${TRAINER_TEST_ABSENT}/runs\n"),
            "x.yaml:5:13: output_dir: expected a path (the environment has no variable TRAINER_TEST_ABSENT), got "
            "\"${TRAINER_TEST_ABSENT}/runs\"");
  EXPECT_EQ(load_error(kMinimal, {"output_dir="}), "command line: output_dir: expected a path, got null");
  EXPECT_EQ(load_error(kMinimal, {"output_dir=''"}), "command line: output_dir: expected a path, got \"\"");
}

TEST(Load, FilesThatCannotBeUsed) {
  const testing::TemporaryFolder folder;
  const auto registries = small_registries();
  const auto error = [&](const std::filesystem::path& path) {
    try {
      load(path, {}, registries);
    } catch (const UsageError& usage) {
      return std::string(usage.what());
    }
    return std::string("no error");
  };
  EXPECT_NE(error(folder.path()).find("it is a folder"), std::string::npos);
  EXPECT_EQ(error("/dev/zero"), "cannot read /dev/zero: it is a device, not a regular file or a pipe");
  write_file_atomically(folder.path() / "large.yaml", std::string(2 << 20, '#'));
  EXPECT_EQ(error(folder.path() / "large.yaml"), "cannot read " + (folder.path() / "large.yaml").string() + ": it has more than 1.0 MiB");
  EXPECT_NE(error(folder.path() / "absent.yaml").find("No such file"), std::string::npos);
  write_file_atomically(folder.path() / "empty.yaml", "");
  EXPECT_NE(error(folder.path() / "empty.yaml").find("the file is empty"), std::string::npos);
}

TEST(Reference, NamesEveryKeyWithItsDefault) {
  const auto registries = small_registries();
  const auto text = reference_text(registries);
  EXPECT_NE(text.find("every_steps            integer, >= 1, steps; default 50"), std::string::npos) << text;
  EXPECT_NE(text.find("optimizer, name: adamw"), std::string::npos);
  EXPECT_NE(text.find("transform crop"), std::string::npos);
  EXPECT_NE(text.find("ema                    section or null; default null"), std::string::npos);
  EXPECT_NE(text.find("training.ema: An exponential moving average"), std::string::npos);
  const auto markdown = reference_markdown(registries);
  EXPECT_NE(markdown.find("| `device` | auto \\| cpu \\| cuda | `auto` |"), std::string::npos) << markdown;
}

}  // namespace
}  // namespace trainer::config
