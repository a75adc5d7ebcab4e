#pragma once

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/testing/temporary_folder.h"

namespace trainer::testing {

// A small data set for dataset.name: image_folder, while this object exists: two classes, with images for training and for validation.
class SmallImageFolder {
 public:
  static constexpr int kTrainImagesPerClass = 8;
  static constexpr int kValidationImagesPerClass = 1;

  SmallImageFolder() {
    for (const char* name : {"cat", "dog"}) {
      write_class(folder_.path() / "train" / name, kTrainImagesPerClass);
      write_class(folder_.path() / "val" / name, kValidationImagesPerClass);
    }
  }

  // The override that makes an experiment use this data set in the place of its own.
  std::string as_override() const { return "dataset.root=" + folder_.path().string(); }

  // Overrides for loading one of configs/ without its data: those whose data set is a folder of images get this one, because the number of
  // classes comes from the folder.
  std::vector<std::string> overrides_for(const std::filesystem::path& config) const {
    if (config.stem() == "imagefolder") return {as_override()};
    return {};
  }

 private:
  // Grey images in the PPM format, each of another shade and size.
  static void write_class(const std::filesystem::path& folder, int num_images) {
    std::filesystem::create_directories(folder);
    for (int i = 0; i < num_images; ++i) {
      const int height = 20 + i;
      const int width = 30 - i;
      std::ofstream file(folder / (std::to_string(i) + ".ppm"), std::ios::binary);
      file << "P6\n"
           << width << " " << height << "\n255\n"
           << std::string(static_cast<size_t>(3 * height * width), static_cast<char>(10 + i));
      if (!file.flush()) throw std::runtime_error("cannot write an image into " + folder.string());
    }
  }

  TemporaryFolder folder_;
};

}  // namespace trainer::testing
