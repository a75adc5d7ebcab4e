#include "config/load.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/file.h"
#include "config/problems.h"
#include "tests/testing/temporary_folder.h"
#include "tests/unit/config/small_registries.h"
#include "trainer/error.h"

namespace trainer::config {
namespace {

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
  EXPECT_EQ(experiment.runtime.device, device::DeviceChoice::kCpu);
  EXPECT_EQ(experiment.runtime.threads.value, 3);
  EXPECT_EQ(experiment.training.max_grad_norm, 1.5);
}

TEST(Load, StoredKeysOfAnotherVersionAreIgnoredUnlessPredictionsNeedThem) {
  const auto registries = small_registries();
  const auto stored = [&](const std::string& text, const std::vector<std::string>& overrides = {}) {
    return load_text(text, "a.pt: config", overrides, registries, UnknownKeys::kIgnoreUnlessNeeded);
  };
  const auto experiment = stored(std::string(kMinimal) + "logging: {every_steps: 7, colour: red}\nlater: {a: 1}\n");
  EXPECT_EQ(experiment.logging.every_steps, 7);
  ASSERT_EQ(experiment.ignored_keys.size(), 2);
  EXPECT_NE(experiment.ignored_keys[0].find("logging.colour: unknown key (ignored, because predictions do not need it)"),
            std::string::npos);
  EXPECT_NE(experiment.ignored_keys[1].find("later: unknown key (ignored"), std::string::npos);
  const std::string with_new_key = "experiment: small\nmodel: {name: net, depth: 3}\ndataset: {name: data}\ntraining: {epochs: 2}\n";
  EXPECT_THROW(stored(with_new_key), UsageError);
  EXPECT_THROW(stored(kMinimal, {"logging.colour=red"}), UsageError);
}

TEST(Load, SecretsOfUrlsAreNotShown) {
  const std::string secret = "http://bob:pass@host/w.pth?token=1";
  const auto registries = small_registries();
  auto experiment = loaded(kMinimal, {"model.weights=" + secret, "logging.command=[log, '" + secret + "']"});
  EXPECT_EQ(experiment.model.weights, secret);
  const auto text = to_yaml(experiment, registries);
  EXPECT_EQ(text.find("pass"), text.npos) << text;
  EXPECT_EQ(text.find("token"), text.npos) << text;
  EXPECT_NE(text.find("http://***@host/w.pth?***"), text.npos) << text;
  const auto error = load_error(kMinimal, {"training.epochs=http://bob:" + std::string(60, 'x') + "@host/w.pth"});
  EXPECT_NE(error.find("got http://***@host/w.pth"), error.npos) << error;
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
            "x.yaml:7:20: training.epochs: expected an integer >= 1 or null, got two\n"
            "command line: logging.every_steps: expected an integer >= 1, got 0");
}

TEST(Load, MissingRequiredKeys) {
  const auto error = load_error("seed: 1\n");
  EXPECT_NE(error.find("x.yaml:1:1: experiment: missing, and has no default; expected text"), std::string::npos) << error;
  EXPECT_NE(error.find("model.name: missing, and has no default; expected net | bare"), std::string::npos) << error;
  EXPECT_NE(error.find("dataset.name: missing"), std::string::npos) << error;
  EXPECT_NE(error.find("x.yaml:1:1: training.epochs: missing; set training.epochs or training.steps"), std::string::npos) << error;
}

TEST(Load, UnknownKindGetsASuggestionAndItsKeysAreNotChecked) {
  EXPECT_EQ(load_error("experiment: s\nmodel: {name: nett, deep: 3}\ndataset: {name: data}\ntraining: {epochs: 1}\n"),
            "x.yaml:2:15: model.name: \"nett\" is not one of net, bare; did you mean \"net\"?");
}

TEST(Load, ASectionThatIsOnlyANameIsWrittenOut) {
  EXPECT_EQ(load_error("experiment: s\nmodel: net\ndataset: {name: data}\ntraining: {epochs: 1}\n"),
            "x.yaml:2:8: model: expected a section of keys and values, got net; write {name: net}");
  EXPECT_EQ(load_error(kMinimal, {"optimizer=sgd"}),
            "command line: optimizer: expected a section of keys and values, got sgd; write {name: sgd}");
  EXPECT_EQ(load_error(kMinimal, {"model=[net]"}), "command line: model: expected a section of keys and values, got [net]");
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
  EXPECT_EQ(error("5"), "command line: dataset.train_transforms: expected a list of components such as [crop], got 5");
  EXPECT_EQ(error("[crap]"), "command line: dataset.train_transforms[0]: \"crap\" is not one of crop, flip; did you mean \"crop\"?");
  EXPECT_EQ(error("[flip, {crop: {size: 0}}]"), "command line: dataset.train_transforms[1].crop.size: expected an integer >= 1, got 0");
  EXPECT_EQ(error("[crop]"), "command line: dataset.train_transforms[0].crop.size: missing, and has no default; expected integer");
  EXPECT_NE(error("[{crop: {size: 1}, flip: {}}]").find("expected one component"), std::string::npos);
  EXPECT_NE(error("[[]]").find("expected one component"), std::string::npos);
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
  const std::string before = "experiment: a\nlogging:\n#  every_steps: 5\n";
  const std::string after = "model: {name: net}\ndataset: {name: data}\ntraining: {epochs: 2}\n";
  for (const auto& text : {before + after, after + before, after + "experiment: a\nlogging:", before + "\n  # nothing\n" + after}) {
    EXPECT_EQ(loaded(text).logging.every_steps, 50) << text;
    EXPECT_EQ(loaded(text, {"logging.every_steps=3"}).logging.every_steps, 3) << text;
  }
  EXPECT_EQ(loaded(before + after + "optimizer:\nruntime: null\n").optimizer.component.name, "sgd");
  EXPECT_EQ(loaded(before + after, {"logging="}).logging.every_steps, 50);
}

TEST(Load, AMissingValueIsReportedAtItsKey) {
  const auto error = [](const std::string& model, const std::string& end) {
    return load_error("experiment: a\n" + model + "dataset: {name: data}\ntraining: {epochs: 2}\n" + end);
  };
  EXPECT_EQ(error("model:\n", ""), "x.yaml:2:1: model.name: missing, and has no default; expected net | bare");
  EXPECT_EQ(error("model:\n  # name: net\n", ""), "x.yaml:2:1: model.name: missing, and has no default; expected net | bare");
  EXPECT_EQ(error("model:\n  num_classes:\n", ""), "x.yaml:3:3: model.name: missing, and has no default; expected net | bare");
  EXPECT_EQ(error("model: {name: net}\n", "seed:\n\n"), "x.yaml:5:1: seed: expected an integer >= 0, got null");
  EXPECT_EQ(error("model:\n  name: net\n  num_classes:\n", ""), "x.yaml:4:3: model.num_classes: expected an integer >= 1, got null");
  EXPECT_EQ(error("model: {name: net, weights: null}\n", ""), "x.yaml:2:20: model.weights: expected text, got null; write \"\" for none");
}

TEST(Load, AKeyOfAnotherComponentIsNamedAsSuch) {
  const auto error = [](const std::string& model, const std::vector<std::string>& overrides = {}) {
    return load_error("experiment: a\nmodel: " + model + "\ndataset: {name: data}\ntraining: {epochs: 2}\n", overrides);
  };
  EXPECT_EQ(error("{name: bare, stem: x}"), "x.yaml:2:21: model.stem: not a key of bare, but of net");
  EXPECT_EQ(error("{name: bare, stemm: x}"), "x.yaml:2:21: model.stemm: unknown key");
  EXPECT_EQ(error("{name: bare}", {"model.stem=x"}), "command line: model.stem: not a key of bare, but of net");
  EXPECT_EQ(error("{name: bare}", {"model={name: bare, stem: x}"}), "command line: model.stem: not a key of bare, but of net");
  EXPECT_EQ(error("{name: net, stem: x}", {"model.name=bare"}),
            "x.yaml:2:20: model.stem: not a key of bare, but of net; instead of model.name=bare, replace the whole section, as in "
            "\"model={name: bare}\"");
  EXPECT_EQ(error("{name: net, stem: x}", {"model={name: bare}"}), "no error");
}

TEST(Load, HintsForNumbers) {
  const std::string steps = "command line: logging.every_steps: expected an integer >= 1, got ";
  const std::string rate = "command line: optimizer.lr: expected a number > 0, got ";
  const std::string plain = "; write it as a decimal number without leading zeros";
  const std::vector<std::pair<std::string, std::string>> hints = {
      {"logging.every_steps=9223372036854775808", steps + "9223372036854775808"},
      {"logging.every_steps=0x10", steps + "0x10" + plain},
      {"logging.every_steps=-08", steps + "-08" + plain},
      {"logging.every_steps=inf", steps + "inf"},
      {"logging.every_steps=1.5", steps + "1.5"},
      {"logging.every_steps=\"010\"", steps + "\"010\""},
      {"logging.every_steps=[010]", steps + "[010]"},
      {"logging.every_steps=010abc", steps + "010abc"},
      {"optimizer.lr=-1e400", rate + "-1e400"},
      {"optimizer.lr=1e-400", rate + "1e-400"},
      {"optimizer.lr=nan", rate + "nan"},
      {"optimizer.lr=00.5", rate + "00.5" + plain},
      {"optimizer.lr=0X1p-3", rate + "0X1p-3" + plain},
      {"optimizer.lr=0", rate + "0"},
  };
  for (const auto& [override_text, error] : hints) EXPECT_EQ(load_error(kMinimal, {override_text}), error);
  EXPECT_EQ(loaded(kMinimal, {"logging.every_steps=9223372036854775807"}).logging.every_steps, 9223372036854775807);
  EXPECT_EQ(options_of<RateOptions>(loaded(kMinimal, {"optimizer.lr=0.5e-3"}).optimizer.component).lr, 0.5e-3);
}

TEST(Load, TextsHaveNoControlCharacters) {
  const std::vector<std::pair<std::string, std::string>> characters = {
      {"\\0", "\\x00"}, {"\\e", "\\x1b"}, {"\\n", "\\x0a"}, {"\\t", "\\x09"}, {"\\x7f", "\\x7f"}, {"\\x9b", "\\x9b"}, {"\\u0080", "\\x80"}};
  for (const auto& [written, shown] : characters) {
    EXPECT_EQ(load_error(kMinimal, {"experiment=\"a" + written + "\""}),
              "command line: experiment: expected text without control characters, got \"a" + shown + "\"");
    EXPECT_EQ(load_error(std::string(kMinimal) + "output_dir: \"" + written + "\"\n"),
              "x.yaml:5:13: output_dir: expected a path without control characters, got \"" + shown + "\"");
  }
  EXPECT_EQ(loaded(kMinimal, {"experiment=\"Gr\\u00f6\\u00dfe \\u00a0\""}).experiment, "Gr\u00f6\u00dfe \u00a0");
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

TEST(Load, AllBadOverridesAreReportedWithTheProblemsOfTheFile) {
  EXPECT_EQ(load_error(std::string(kMinimal) + "seed: x\n",
                       {"epochs", "logging.every_steps=[1", "experiment.x=1", "optimizer.lr.x=1", "traning.epochs=1", "model[0]=net"}),
            "x.yaml:5:7: seed: expected an integer >= 0, got x\n"
            "command line: \"epochs\" is not an override; write key.path=value, such as optimizer.lr=0.05\n"
            "command line: logging.every_steps: the value is not valid YAML (command line:1:1: a key must be a name, not null, a list or "
            "a section)\n"
            "command line: experiment.x: experiment is not a section; set the whole value, as in experiment=...\n"
            "command line: model[0]: model is not a list; to set a whole list, write model=[...]\n"
            "command line: optimizer.lr: expected a number > 0, got {x: 1}\n"
            "command line: traning: unknown key; did you mean \"training\"?");
}

TEST(Load, OverridesEnterListsOfParts) {
  const auto text = std::string("experiment: s\nmodel: {name: net}\ntraining: {epochs: 1}\n") +
                    "dataset:\n  name: data\n  train_transforms:\n    - crop: {size: 32, scale: [2]}\n    - flip\n";
  const auto crop = [&](const std::string& override_text) {
    return options_of<CropOptions>(loaded(text, {override_text}).dataset.train_transforms[0]);
  };
  EXPECT_EQ(crop("dataset.train_transforms[0].crop.size=3").size, 3);
  EXPECT_EQ(crop("dataset.train_transforms[0].crop.size=3").scale, std::vector<double>{2});
  EXPECT_EQ(crop("dataset.train_transforms[0].crop={size: 4}").scale, std::vector<double>{1});
  EXPECT_EQ(crop("dataset.train_transforms[1]=flip").size, 32);
  const auto error = [&](const std::string& override_text) { return load_error(text, {override_text}); };
  EXPECT_EQ(error("dataset.train_transforms[0].crop.size=0"),
            "command line: dataset.train_transforms[0].crop.size: expected an integer >= 1, got 0");
  EXPECT_EQ(error("dataset.train_transforms[1].flip.p=0.5"), "command line: dataset.train_transforms[1].flip.p: unknown key");
  EXPECT_EQ(error("dataset.train_transforms[1]=crop"),
            "command line: dataset.train_transforms[1].crop.size: missing, and has no default; expected integer");
}

TEST(Load, ContradictionsOfASectionAreReportedAtTheirKey) {
  const auto error = [](const std::string& dataset, const std::vector<std::string>& overrides = {}) {
    return load_error("experiment: a\nmodel: {name: net}\ntraining: {epochs: 2}\ndataset: {name: span" + dataset + "}\n", overrides);
  };
  EXPECT_EQ(error(", first: 5, last: 4"), "x.yaml:4:39: dataset.last: before dataset.first");
  EXPECT_EQ(error(", first: 11"), "x.yaml:4:10: dataset.last: before dataset.first");
  EXPECT_EQ(error(", first: 11", {"dataset.last=3"}), "command line: dataset.last: before dataset.first");
  // Checks run only for sections whose values are known.
  EXPECT_EQ(error(", first: 11, last: x"), "x.yaml:4:40: dataset.last: expected an integer, got x");
  EXPECT_EQ(error(", first: 11, lasst: 1"), "x.yaml:4:34: dataset.lasst: unknown key; did you mean \"last\"?");
  // Problems in other sections do not prevent the check.
  EXPECT_EQ(error(", first: 11", {"seed=x"}),
            "x.yaml:4:10: dataset.last: before dataset.first\n"
            "command line: seed: expected an integer >= 0, got x");
}

TEST(Load, WarningsAreKeptInTheOrderOfTheFileAndThenOfTheCommandLine) {
  const std::string text = "experiment: a\nmodel: {name: net}\ntraining: {epochs: 2}\ndataset: {name: span, last: -3, first: -3}\n";
  using Lines = std::vector<std::string>;
  EXPECT_EQ(loaded(text).warnings,
            (Lines{"x.yaml:4:29: dataset.last: the same as dataset.first", "x.yaml:4:40: dataset.first: below zero"}));
  EXPECT_EQ(loaded(text, {"dataset.last=-3"}).warnings,
            (Lines{"x.yaml:4:40: dataset.first: below zero", "command line: dataset.last: the same as dataset.first"}));
  EXPECT_EQ(loaded(text, {"dataset={name: span}"}).warnings, Lines{});
  auto experiment = loaded(text);
  EXPECT_EQ(load_text(to_yaml(experiment, small_registries()), "y.yaml", {}, small_registries()).warnings.size(), 2U);
  EXPECT_EQ(load_error(text, {"seed=x"}), "command line: seed: expected an integer >= 0, got x");
}

TEST(Load, TheRegistriesCheckIsMadeWithPositions) {
  auto registries = small_registries();
  registries.check = [](const Experiment& experiment, Findings& findings) {
    if (findings.are_readable({"logging", "training"}) && experiment.logging.every_steps > experiment.training.epochs) {
      findings.refuse("logging.every_steps", "more than training.epochs");
    }
    findings.warn("optimizer", "never read");
  };
  const auto error = [&](const std::vector<std::string>& overrides) -> std::string {
    try {
      return load_text(kMinimal, "x.yaml", overrides, registries).warnings.at(0);
    } catch (const UsageError& usage) {
      return usage.what();
    }
  };
  EXPECT_EQ(error({}), "x.yaml:1:1: logging.every_steps: more than training.epochs");
  EXPECT_EQ(error({"logging.every_steps=7", "seed=x"}),
            "command line: seed: expected an integer >= 0, got x\ncommand line: logging.every_steps: more than training.epochs");
  EXPECT_EQ(error({"logging.every_steps=7", "training.epochs=x"}),
            "command line: training.epochs: expected an integer >= 1 or null, got x");
  EXPECT_EQ(error({"logging.every_steps=1"}), "x.yaml:1:1: optimizer: never read");
}

TEST(Load, ContradictionsBetweenSections) {
  const auto error = [](const std::string& lines) { return load_error(kMinimal + lines + "\n"); };
  const std::vector<std::pair<std::string, std::string>> contradictions = {
      {"dataloader: {batch_size: 8, global_batch_size: 8}",
       "x.yaml:5:48: dataloader.global_batch_size: given together with dataloader.batch_size; keep one of them"},
      {"lr_scheduler: {warmup_steps: 5, warmup_epochs: 1}",
       "x.yaml:5:48: lr_scheduler.warmup_epochs: given together with lr_scheduler.warmup_steps; keep one of them"},
      {"lr_scheduler: {warmup_epochs: 2.5}",
       "x.yaml:5:31: lr_scheduler.warmup_epochs: the warm-up of 2.5 epochs must be shorter than the training run (training.epochs = 2); "
       "shorten "
       "the warm-up "
       "or train longer"},
      {"runtime: {dtype: float64}\namp: {enabled: true}",
       "x.yaml:6:16: amp.enabled: true contradicts runtime.dtype: float64, because autocast computes in 16 bits; remove one of them"},
      {"runtime: {dtype: float64}\namp: {enabled: auto}", "no error"},
      // The check does not run, because one of its two sections has a wrong value.
      {"runtime: {dtype: float64}\namp: {enabled: true, dtype: x}",
       "x.yaml:6:29: amp.dtype: expected one of auto, bfloat16, float16, got x"},
  };
  for (const auto& [lines, text] : contradictions) EXPECT_EQ(error(lines), text);
  EXPECT_EQ(load_error(kMinimal, {"dataloader.global_batch_size=3", "training.accumulation_steps=4"}),
            "command line: dataloader.global_batch_size: 3 images cannot be divided into training.accumulation_steps = 4 "
            "micro-steps; choose at least that many images");
  for (const std::string name : {"a/b", "..", ".", ""}) {
    EXPECT_EQ(load_error(kMinimal, {"experiment=\"" + name + "\""}),
              "command line: experiment: \"" + name + "\" is not a valid folder name; use letters, digits, - and _");
  }
}

TEST(Load, APlaceIsAPositionAndAPath) {
  const auto experiment = loaded(kMinimal, {"logging.every_steps=3"});
  EXPECT_EQ(experiment.place_of("training.epochs"), "x.yaml:4:20: training.epochs");
  EXPECT_EQ(experiment.place_of("training.seed"), "x.yaml:4:11: training.seed");
  EXPECT_EQ(experiment.place_of("dataloader.batch_size"), "x.yaml:1:1: dataloader.batch_size");
  EXPECT_EQ(experiment.place_of("logging.every_steps"), "command line: logging.every_steps");
  EXPECT_EQ(Experiment().place_of("training.epochs"), "training.epochs");
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
            "x.yaml:5:13: output_dir: expected a path (the environment variable TRAINER_TEST_ABSENT is not set; set it), got "
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

TEST(Load, AnExperimentsNameFitsIntoAFolder) {
  const std::string text = "model: {name: net}\ndataset: {name: data}\noptimizer: {name: sgd}\ntraining: {epochs: 1}\n";
  EXPECT_EQ(loaded("experiment: " + std::string(255, 'a') + "\n" + text).experiment.size(), 255U);
  EXPECT_EQ(load_error("experiment: " + std::string(300, 'a') + "\n" + text),
            "x.yaml:1:13: experiment: the name has 300 bytes, but a folder's name can have at most 255; shorten it");
}

TEST(Load, AtMostAHundredProblemsAreReported) {
  std::string text = kMinimal;
  for (int i = 0; i < 50'000; ++i) text += fmt::format("{} {{x: 1}}", i == 0 ? "optimizer: {name: sgd, groups: [" : ",");
  const auto error = load_error(text + "]}\n");
  EXPECT_EQ(std::ranges::count(error, '\n'), 100);
  EXPECT_TRUE(error.ends_with("\nThese are the first 100 problems; correct them to see the others.")) << error;
}

TEST(Load, TheResolvedFileMeansTheSameToEveryReaderOfYaml) {
  auto experiment = loaded(std::string(kMinimal), {"experiment=no", "optimizer={name: adamw, lr: 1e-5}", "output_dir=2026-01-31"});
  const auto text = to_yaml(experiment, small_registries());
  for (const auto* line : {"experiment: \"no\"\n", "lr: 1.0e-05\n", "output_dir: \"2026-01-31\"\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << text;
  }
  EXPECT_EQ(loaded(text).experiment, "no");
}

}  // namespace
}  // namespace trainer::config
