#pragma once
// Opens the samples of an experiment, and divides its training files.

#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "config/experiment.h"
#include "datasets/dataset_registry.h"
#include "train/engine/parts.h"

namespace trainer::samples {

// The data set of an experiment whose section `dataset` is consistent.
data::DatasetFactory dataset_of(const config::Experiment& experiment);

// The group and the part of each training file by dataset.split, which must be set. Throws UsageError.
struct Division {
  std::vector<std::string> groups;
  std::vector<data::Split> parts;
};
Division divide_files(const config::Experiment& experiment, const data::Dataset& files);

// Opens the training and validation samples. Not collective. Throws UsageError, and DataError with the file and what to do. `logger` must
// outlive the samples.
engine::OpenedSamples open_samples(const config::Experiment& experiment, Logger& logger);
// The same with `dataset`, the experiment's data set, whose files may be in another folder. `num_overfit`: from num_overfit_samples().
engine::OpenedSamples open_samples(const config::Experiment& experiment, const data::DatasetFactory& dataset, Logger& logger,
                                   const std::optional<int64_t>& num_overfit = {});

// Opens only one split; if it is held out from the training files, opens these. Not collective. Throws like open_samples().
engine::Samples open_split(const config::Experiment& experiment, const data::DatasetFactory& dataset, data::Split split, Logger& logger);

}  // namespace trainer::samples
