#pragma once
// Chooses the training samples that are held out for validation and for a test. All results depend only on the arguments.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "config/experiment.h"
#include "data/dataset.h"

namespace trainer::samples {

// Two ascending lists of the elements of `all`: `count` elements, chosen by the seed, and the others.
using SampleSplit = std::pair<std::vector<int64_t>, std::vector<int64_t>>;
SampleSplit split_samples(std::vector<int64_t> all, int64_t count, uint64_t seed);

// The same for the indices of `labels`, which must not be negative: the chosen samples are divided among the classes in proportion to their
// sizes, rounded so that the sum is `count`. At least one sample of each class is not chosen, so fewer than `count` are chosen if most
// classes have only one.
SampleSplit split_by_class(const std::vector<int64_t>& labels, int64_t count, uint64_t seed);

std::vector<int64_t> indices_up_to(int64_t size);

// The part of each sample by dataset.split. `groups`: the group of each sample; all samples of a group are in the same part. `labels`: the
// class of each sample, or empty without stratification. The class of a group is the class of most of its samples.
std::vector<data::Split> divide(const std::vector<std::string>& groups, const std::vector<int64_t>& labels,
                                const config::SplitSection& options);

// The key, group and part of each training file, as comma-separated values. dataset.split must be set. Throws UsageError.
std::string split_table(const config::Experiment& experiment, const data::Dataset& files);
// The number of samples, and a digest of their keys, which do not depend on the folder of the data set. Reads no sample.
std::string summary_of(const data::Dataset& samples);
// A digest of a split_table().
std::string digest_of(const std::string& table);

// A sentence that names the classes of the files of which `part` has no image; empty if there are none. `parts`: of each file.
std::string describe_missing_classes(const data::Dataset& files, const std::vector<data::Split>& parts, data::Split part);

// The group of each sample. Throws UsageError for an invalid regular expression, and for one that does not match the path of a sample.
std::vector<std::string> groups_of(const data::Dataset& files, const config::SplitSection& options);

}  // namespace trainer::samples
