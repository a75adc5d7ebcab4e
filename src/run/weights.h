#pragma once
// The weights of model.weights: where they are, and their download to a folder that all runs of a user share.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "datasets/download.h"
#include "inference/weights_by_name.h"
#include "trainer/model.h"

namespace trainer::run {

struct WeightsSource {
  std::string url;   // with its secrets (base/url.h)
  std::string file;  // the file's name in weights_folder()
  datasets::Checksum checksum;
  uint64_t most_bytes = uint64_t{16} << 30;  // of the download
};

// The first digits of the SHA-256 checksum at the end of a file's name, as in resnet18-f37072fd.pth. Without them, nothing is compared.
datasets::Checksum checksum_in_name(const std::string& file);
// Whether the text is a URL and not a name.
bool is_address(const std::string& text);
// The reason why the URL cannot name a file; empty if it can.
std::string problem_of_address(const std::string& address);
// `weights`: a name of models::find_published_weights(), or the URL of a file. The file's name may end with the first digits of its SHA-256
// checksum, as in torch.hub; if not, its name in the cache begins with a hash of the URL without user info. `mirror`: the URL of a folder
// to use instead of torchvision's; empty: none.
WeightsSource weights_source(const std::string& model, const std::string& weights, const std::string& mirror);

// weights/ in home_folder().
std::filesystem::path weights_folder();

// Whether model.weights is the path of a folder, and not a name or a URL.
bool is_folder(const std::string& weights);

// The images with which weights were trained.
struct WeightsImages {
  int64_t resize = 256;  // of the shorter edge, before the centre is cropped
  int64_t crop = 224;
  std::string interpolation = "bilinear";
  std::string mean = "[0.485, 0.456, 0.406]";
  std::string std = "[0.229, 0.224, 0.225]";
};

// A folder in the layout of timm's networks on the Hugging Face Hub: config.json, and model.safetensors or pytorch_model.bin.
struct WeightsFolder {
  std::filesystem::path file;  // of the weights
  std::string license = {};    // as in config.json; empty: there is none
  WeightsImages images = {};
};
// Throws UsageError if there is no such folder, or its weights are not those of the network `model`.
WeightsFolder read_weights_folder(const std::string& folder, const std::string& model);

// The images of model.weights; empty for weights that do not say it: those of a URL, or of a folder that cannot be read.
std::optional<WeightsImages> images_of_weights(const std::string& model, const std::string& weights);

// Why a file of weights_folder() cannot be used: it lacks the digits of its checksum, or, without a checksum, it cannot be read; empty if
// it can.
std::string damage_of(const std::filesystem::path& file, const datasets::Checksum& checksum);

// Why the file cannot be downloaded: the URL is from a file of a run, which does not contain its secrets; empty if it can.
std::string missing_secret(const WeightsSource& source);

// Returns the file in weights_folder(), and downloads it if it is missing; other processes that need it wait. If the name has a checksum,
// an incomplete download is kept and continued by the next attempt. Throws DataError with what to do, UsageError for a missing secret, and
// Error with ExitCode::kStopped after a stop request.
std::filesystem::path fetch_weights(const WeightsSource& source, Logger& logger);

// Loads the weights of torchvision or timm into the network. If the file's last layer has another number of classes, the network's last
// layer keeps its initial values, except for classes whose names are also in the file.
inference::InitReport load_published_weights(const std::filesystem::path& file, const std::string& model_name, models::Model& model,
                                             const std::vector<std::string>& class_names);

}  // namespace trainer::run
