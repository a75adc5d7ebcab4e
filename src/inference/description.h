#pragma once
// The information that is needed to predict with a trained network, besides its weights.

#include <limits>
#include <string>
#include <vector>

#include "config/sections.h"
#include "data/dataset.h"
#include "trainer/component.h"
#include "trainer/options.h"
#include "trainer/state.h"

namespace trainer::inference {

struct Description {
  std::string source;  // the file, for messages
  ComponentConfig model;
  std::string dataset = {};                      // the data set's name
  data::DatasetInfo samples = {};                // the samples on which the network was trained
  std::vector<ComponentConfig> transforms = {};  // dataset.validation_transforms
  task::TestTimeAugmentation tta = task::TestTimeAugmentation::kNone;
  device::PlacementOptions placement = {};
};

// The version of the content of checkpoints.
inline constexpr int64_t kFormatVersion = 1;
// Throws CheckpointError if the file states another version.
void check_format_version(const state::View& file);

// Return the names of the classes or targets, or the shape, of the samples on which a checkpoint's network was trained. The result is empty
// if the checkpoint does not contain them. `key`: "class_names" or "target_names"; `source`: the checkpoint's file, for messages. Throw
// CheckpointError if they are malformed.
std::vector<std::string> read_names(const state::Tree& file, const std::string& source, const char* key);
std::vector<int64_t> read_sample_shape(const state::Tree& file, const std::string& source);
// Returns how the image files of the samples were decoded. Weights without an experiment do not contain it, and neither do checkpoints of
// networks for other samples than images; the result is then the default.
data::ImageDecoding read_decoding(const state::View& file);
state::Dict tree_of(const data::ImageDecoding& decoding);
// Sets the kind of targets from the name of a built-in task and the network's number of outputs.
void set_targets(data::DatasetInfo& samples, const std::string& task, int64_t num_outputs);
// The number at this place. Throws CheckpointError if it is not finite, or not greater than `greater_than`.
inline constexpr double kAnyFinite = -std::numeric_limits<double>::infinity();
double read_finite(const state::View& value, double greater_than = kAnyFinite);
// Returns nullopt if the task does not need a summary.
std::optional<data::TargetSummary> read_target_summary(const state::View& file);
state::Dict tree_of(const data::TargetSummary& summary);

// The options in the sections runtime and amp, and dataloader.pin_memory.
device::PlacementOptions placement_options(const config::RuntimeSection& runtime, const config::AmpSection& amp,
                                           std::optional<bool> pin_memory = {});

// Reads the description from the experiment in a checkpoint that checkpoint::load() returned. Reads only the parts that predictions need,
// so the components of other parts need not be registered. `source`: the checkpoint's file, for messages. Throws CheckpointError if the
// checkpoint does not contain an experiment, or the shape of the samples, or if the experiment uses plug-ins or a task other than
// classification, multi_label and regression; UsageError if the experiment is not valid.
Description read_description(const state::Tree& checkpoint, const std::string& source);

}  // namespace trainer::inference
