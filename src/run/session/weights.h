#pragma once
// Weights that an experiment names (model.weights): where they are, and fetching them once to a folder that all runs of a user share.

#include <filesystem>
#include <string>
#include <vector>

#include "base/log.h"
#include "datasets/download.h"
#include "inference/weights_by_name.h"
#include "trainer/model.h"

namespace trainer::session {

struct WeightsSource {
  std::string url;
  std::string file;  // its name
  datasets::Checksum checksum;
};

// The first digits of the SHA-256 sum with which a file's name ends, as in resnet18-f37072fd.pth; none: nothing is compared.
datasets::Checksum checksum_in_name(const std::string& file);
// Whether the text is an address instead of a name.
bool is_address(const std::string& text);
// Why the address cannot be that of a file; empty: it can.
std::string problem_of_address(const std::string& address);
// `weights`: a name that models::find_published_weights() knows, or an address, whose file's name may end with the first digits of its
// SHA-256 sum, as torch.hub's do; without, the name in the cache begins with a hash of the address. `mirror`: the address of a folder to
// use instead of torchvision's; empty: none.
WeightsSource weights_source(const std::string& model, const std::string& weights, const std::string& mirror);

// ${TRAINER_HOME}/weights, or ~/.cache/trainer/weights.
std::filesystem::path weights_folder();

// The file in that folder, which is downloaded if it is not there; other processes that want it wait. What a failed download has received
// is kept and continued by the next one. Throws DataError with what to do, and Error with ExitCode::kStopped after a stop request.
std::filesystem::path fetch_weights(const WeightsSource& source, Logger& logger);

// Fills the network. Its last layer keeps its initial values if the file's is of another number of classes, except for classes that have
// their names in the file, if it tells names.
inference::InitReport load_published_weights(const std::filesystem::path& file, const std::string& model_name, models::Model& model,
                                             const std::vector<std::string>& class_names);

}  // namespace trainer::session
