#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/file.h"
#include "config/load.h"
#include "config/yaml.h"
#include "tests/testing/temporary_folder.h"
#include "tests/unit/config/small_registries.h"

namespace trainer::config {
namespace {

class BaseFiles : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((folder_.path() / name).parent_path());
    write_file_atomically(folder_.path() / name, text);
  }

  // The tree of a file, or the error; the folder is removed from paths.
  std::string read(const std::string& name) const {
    return shortened([&] { return to_inline_yaml(read_with_bases(folder_.path() / name)); });
  }

  std::string merged(const std::string& base, const std::string& derived) const {
    write("base.yaml", base);
    write("x.yaml", "base: base.yaml\n" + derived);
    return read("x.yaml");
  }

  std::string error_of(const std::string& name, const std::vector<std::string>& overrides = {}) const {
    return shortened([&] {
      load(folder_.path() / name, overrides, small_registries());
      return std::string("no error");
    });
  }

  testing::TemporaryFolder folder_;

 private:
  std::string shortened(const std::function<std::string()>& text_of) const {
    std::string text;
    try {
      text = text_of();
    } catch (const UsageError& error) {
      text = error.what();
    }
    const auto prefix = folder_.path().string() + '/';
    for (auto at = text.find(prefix); at != text.npos; at = text.find(prefix)) text.erase(at, prefix.size());
    return text;
  }
};

TEST_F(BaseFiles, SectionsAreMergedAndOtherValuesReplaced) {
  EXPECT_EQ(merged("a: 1\nb: 2\n", "b: 3\nc: 4\n"), "{a: 1, b: 3, c: 4}");
  EXPECT_EQ(merged("m: {n: {p: 1, q: 2}}\n", "m: {n: {q: 3}}\n"), "{m: {n: {p: 1, q: 3}}}");
  EXPECT_EQ(merged("m: {l: [1, 2], k: 1}\n", "m: {l: [3]}\n"), "{m: {l: [3], k: 1}}");
  EXPECT_EQ(merged("m: {p: 1}\nk: 2\n", "m: null\nk: null\n"), "{m: null, k: null}");
  EXPECT_EQ(merged("m:\nk: 1\n", "m: {p: 1}\nk: {q: 1}\n"), "{m: {p: 1}, k: {q: 1}}");
  EXPECT_EQ(merged("m: {p: 1}\n", ""), "{m: {p: 1}}");
}

TEST_F(BaseFiles, ASectionWithAnotherNameReplacesTheSection) {
  EXPECT_EQ(merged("o: {name: sgd, momentum: 0.9}\n", "o: {name: adamw}\n"), "{o: {name: adamw}}");
  EXPECT_EQ(merged("o: {name: sgd, momentum: 0.9}\n", "o: {name: sgd, lr: 1}\n"), "{o: {name: sgd, momentum: 0.9, lr: 1}}");
  EXPECT_EQ(merged("o: {name: sgd, momentum: 0.9}\n", "o: {lr: 1}\n"), "{o: {name: sgd, momentum: 0.9, lr: 1}}");
  EXPECT_EQ(merged("d: {root: r}\n", "d: {name: cifar10}\n"), "{d: {root: r, name: cifar10}}");
  EXPECT_EQ(merged("d: {s: {name: a, p: 1}, k: 1}\n", "d: {s: {name: b}}\n"), "{d: {s: {name: b}, k: 1}}");
}

TEST_F(BaseFiles, PathsBeginAtTheFileThatNamesThem) {
  write("shared/all.yaml", "a: 1\nb: 1\nc: 1\n");
  write("shared/nets/net.yaml", "base: ../all.yaml\nb: 2\nc: 2\n");
  write("mine/x.yaml", "c: 3\nbase: ../shared/nets/net.yaml\n");
  EXPECT_EQ(read("mine/x.yaml"), "{a: 1, b: 2, c: 3}");
  write("absolute.yaml", "base: " + (folder_.path() / "shared/all.yaml").string() + "\n");
  EXPECT_EQ(read("absolute.yaml"), "{a: 1, b: 1, c: 1}");
}

TEST_F(BaseFiles, OfSeveralTheLaterOneWins) {
  write("a.yaml", "k: 1\nl: 1\nm: 1\n");
  write("b.yaml", "l: 2\nm: 2\n");
  write("x.yaml", "base: [a.yaml, b.yaml]\nm: 3\n");
  EXPECT_EQ(read("x.yaml"), "{k: 1, l: 2, m: 3}");
}

TEST_F(BaseFiles, PositionsNameTheirFile) {
  write("base.yaml", "model: {name: net, deep: 1}\ndataset: {name: data}\nlogging:\n  every_steps: 0\n");
  write("x.yaml", "base: base.yaml\nexperiment: a\nlogging: {tensorbord: true}\n");
  EXPECT_EQ(error_of("x.yaml", {"seed=x"}),
            "base.yaml:1:20: model.deep: unknown key\n"
            "base.yaml:4:16: logging.every_steps: expected an integer >= 1, got 0\n"
            "x.yaml:1:1: training.epochs: missing; set training.epochs or training.steps\n"
            "x.yaml:3:11: logging.tensorbord: unknown key; did you mean \"tensorboard\"?\n"
            "command line: seed: expected an integer >= 0, got x");
  write("good.yaml", "base: base.yaml\nexperiment: a\nmodel: {name: bare}\nlogging: {every_steps: 3}\n");
  auto experiment = load(folder_.path() / "good.yaml", {"training.epochs=1"}, small_registries());
  EXPECT_TRUE(experiment.place_of("logging.every_steps").ends_with("good.yaml:4:24: logging.every_steps"));
  EXPECT_TRUE(experiment.place_of("dataset.name").ends_with("base.yaml:2:17: dataset.name"));
  EXPECT_EQ(to_yaml(experiment, small_registries()).find("base"), std::string::npos);
}

TEST_F(BaseFiles, FilesThatCannotBeABase) {
  const auto error = [&](const std::string& value) {
    write("x.yaml", "experiment: a\nbase: " + value + "\n");
    return error_of("x.yaml");
  };
  EXPECT_EQ(error("absent.yaml"), "x.yaml:2:7: base: cannot read absent.yaml: No such file or directory");
  EXPECT_EQ(error("[]"), "x.yaml:2:7: base: expected the path of an experiment file, or a list of paths, got []");
  EXPECT_EQ(error(""), "x.yaml:2:1: base: expected the path of an experiment file, or a list of paths, got null");
  EXPECT_EQ(error("[{a: 1}]"), "x.yaml:2:8: base: expected the path of an experiment file, or a list of paths, got {a: 1}");
  EXPECT_EQ(error("${TRAINER_TEST_ABSENT}/a.yaml"), "x.yaml:2:7: base: the environment variable TRAINER_TEST_ABSENT is not set; set it");
  write("list.yaml", "- a\n");
  EXPECT_EQ(error("list.yaml"),
            "x.yaml:2:7: base: list.yaml is not an experiment file, because it has no sections of keys and values; correct the path");
  write("empty.yaml", "# nothing\n");
  EXPECT_EQ(error("empty.yaml"), "x.yaml:2:7: base: empty.yaml is empty; remove it from `base`, or write keys into it");
  write("broken.yaml", "a: 1\nb: [\n");
  EXPECT_TRUE(error("broken.yaml").starts_with("broken.yaml:3:1: invalid YAML")) << error("broken.yaml");
  ASSERT_EQ(::mkfifo((folder_.path() / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(error("pipe"), "x.yaml:2:7: base: cannot read pipe: it is a pipe, not a regular file");
  write("middle.yaml", "base: absent.yaml\n");
  EXPECT_EQ(error("middle.yaml"), "middle.yaml:1:7: base: cannot read absent.yaml: No such file or directory");
}

TEST_F(BaseFiles, CyclesEnd) {
  write("a.yaml", "base: b/b.yaml\n");
  write("b/b.yaml", "base: ./../a.yaml\n");
  EXPECT_EQ(read("a.yaml"), "b/b.yaml:1:7: base: more than 100 base files, or a.yaml is based on itself; remove some of the `base` keys");
}

TEST_F(BaseFiles, TheirNumberIsLimited) {
  write("0.yaml", "k: 1\n");
  for (int i = 1; i <= 30; ++i) {
    const auto below = std::to_string(i - 1) + ".yaml";
    write(std::to_string(i) + ".yaml", "base: [" + below + ", " + below + "]\n");
  }
  EXPECT_TRUE(read("30.yaml").ends_with("is based on itself; remove some of the `base` keys")) << read("30.yaml");
}

TEST_F(BaseFiles, OnlyAFileHasABase) {
  const std::string refusal = "base: a base can only be set in an experiment file; write it there";
  write("x.yaml", kMinimal);
  EXPECT_EQ(error_of("x.yaml", {"base=y.yaml"}), "command line: " + refusal);
  EXPECT_EQ(load_error(std::string(kMinimal) + "base: y.yaml\n"), "x.yaml:5:7: " + refusal);
}

}  // namespace
}  // namespace trainer::config
