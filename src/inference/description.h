#pragma once
// What a program has to know to predict with a trained network, besides its weights.

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
  std::string dataset = {};                      // its name
  data::DatasetInfo samples = {};                // that the network was trained on
  std::vector<ComponentConfig> transforms = {};  // dataset.validation_transforms
  task::TestTimeAugmentation tta = task::TestTimeAugmentation::kNone;
  device::PlacementOptions placement = {};
};

// What a checkpoint tells about the samples that its network was trained on; empty if it does not tell. `source`: its file, for messages.
// Throw CheckpointError.
std::vector<std::string> read_class_names(const state::Tree& file, const std::string& source);
std::vector<std::string> read_target_names(const state::Tree& file, const std::string& source);
std::vector<int64_t> read_sample_shape(const state::Tree& file, const std::string& source);
// How the files of its samples were read; for a checkpoint of an earlier version that does not tell, as that version did.
data::ImageDecoding read_decoding(const state::View& file);
state::Dict tree_of(const data::ImageDecoding& decoding);
// Sets what the targets of a network's samples are, for that task of the program and so many outputs.
void set_targets(data::DatasetInfo& samples, const std::string& task, int64_t num_outputs);
// Nothing if the task does not need it, or an earlier version wrote the checkpoint.
std::optional<data::TargetSummary> read_target_summary(const state::View& file);
state::Dict tree_of(const data::TargetSummary& summary);

// What the sections runtime and amp ask for, and dataloader.pin_memory.
device::PlacementOptions placement_options(const config::RuntimeSection& runtime, const config::AmpSection& amp,
                                           std::optional<bool> pin_memory = {});

// Of a checkpoint, as checkpoint::load() gives it: from its experiment, of which only the parts are read that matter here, so that no other
// components need to be known. `source`: its file, for messages. Throws CheckpointError if it holds no experiment, or is of a version that
// did not store the shape of its samples.
Description read_description(const state::Tree& checkpoint, const std::string& source);

}  // namespace trainer::inference
