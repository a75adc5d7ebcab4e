#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/testing/temporary_folder.h"
#include "tests/unit/datasets/small_files.h"

namespace trainer::testing {

// Small files for the data sets that are not in the repository, in a folder that exists as long as the object. Each data set has two
// classes in use, and images for training and for validation.
class SmallDatasets {
 public:
  static constexpr int kTrainImagesPerClass = 8;

  SmallDatasets() {
    write_image_folder(folder_.path() / "imagefolder");
    write_tiny_imagenet(folder_.path() / "tiny-imagenet-200");
    write_cifar100(folder_.path() / "cifar-100-binary");
    write_mnist(folder_.path() / "MNIST/raw");
  }

  // The folder that contains the folders of the data sets, and imagefolder/ with train/ and val/.
  const std::filesystem::path& root() const { return folder_.path(); }

  // Returns overrides with which an experiment of configs/ can be loaded without its data. If its number of classes comes from the files,
  // the files must exist when it is loaded.
  std::vector<std::string> overrides_for(const std::filesystem::path& config) const {
    const auto name = config.stem().string();
    if (name == "imagefolder") return {"dataset.root=" + (folder_.path() / "imagefolder").string()};
    if (name == "finetune") {
      // Without the pretrained network, which would have to be downloaded.
      const std::string resize = "[resize: {size: [32, 32]}]";
      return {"dataset.root=" + (folder_.path() / "imagefolder").string(), "model.weights=''", "dataset.train_transforms=" + resize,
              "dataset.validation_transforms=" + resize, "dataset.size_schedule=[{size: 24, until: 0.4}]"};
    }
    if (name == "tiny_imagenet" || name == "cifar100_wrn" || name == "mnist" || name == "digits" || name == "layers_lenet5")
      return {"dataset.root=" + folder_.path().string()};
    if (name == "quickstart" || name.starts_with("cifar10_") || name.starts_with("layers_"))
      return {"dataset.root=" TRAINER_SOURCE_DIR "/datasets/cifar10_sample"};
    return {};
  }

 private:
  static constexpr int kNumTrain = 2 * kTrainImagesPerClass;
  static constexpr int kNumValidation = 2;

  // A grey image in the PPM format.
  static void write_image(const std::filesystem::path& file, int height, int width, int shade) {
    datasets::test::write_bytes(file, "P6\n" + std::to_string(width) + " " + std::to_string(height) + "\n255\n" +
                                          std::string(static_cast<size_t>(3 * height * width), static_cast<char>(shade)));
  }

  static void write_image_folder(const std::filesystem::path& folder) {
    for (const char* name : {"cat", "dog"}) {
      for (int i = 0; i < kTrainImagesPerClass; ++i) {
        write_image(folder / "train" / name / (std::to_string(i) + ".ppm"), 20 + i, 30 - i, 10 + i);
      }
      write_image(folder / "val" / name / "0.ppm", 20, 30, 10);
    }
  }

  static void write_tiny_imagenet(const std::filesystem::path& folder) {
    std::string annotations;
    for (const std::string id : {"n1", "n2"}) {
      for (int i = 0; i < kTrainImagesPerClass; ++i) {
        write_image(folder / "train" / id / "images" / (std::to_string(i) + ".JPEG"), 64, 64, 10 + i);
      }
      write_image(folder / "val/images" / (id + ".JPEG"), 64, 64, 10);
      annotations += id + ".JPEG\t" + id + "\n";
    }
    datasets::test::write_bytes(folder / "wnids.txt", "n1\nn2\n");
    datasets::test::write_bytes(folder / "val/val_annotations.txt", annotations);
  }

  static void write_cifar100(const std::filesystem::path& folder) {
    const auto records = [](int count) {
      std::string bytes;
      for (int i = 0; i < count; ++i) {
        bytes += '\0';
        bytes += static_cast<char>(i % 2);
        bytes.append(3072, static_cast<char>(i));
      }
      return bytes;
    };
    datasets::test::write_bytes(folder / "train.bin", records(kNumTrain));
    datasets::test::write_bytes(folder / "test.bin", records(kNumValidation));
  }

  static void write_mnist(const std::filesystem::path& folder) {
    const auto write = [&](const std::string& split, int count) {
      std::vector<int> labels;
      for (int i = 0; i < count; ++i) labels.push_back(i % 2);
      datasets::test::write_bytes(folder / (split + "-images-idx3-ubyte"), datasets::test::idx_images(static_cast<uint32_t>(count)));
      datasets::test::write_bytes(folder / (split + "-labels-idx1-ubyte"), datasets::test::idx_labels(labels));
    };
    write("train", kNumTrain);
    write("t10k", kNumValidation);
  }

  TemporaryFolder folder_;
};

}  // namespace trainer::testing
