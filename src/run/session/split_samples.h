#pragma once
// Which of the training samples are held out for validation and for a test. All of it is a function of the arguments alone.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "config/experiment.h"
#include "data/dataset.h"

namespace trainer::session {

// Two ascending lists of the elements of `all`: `count` of them, chosen by the seed, and the others.
using SampleSplit = std::pair<std::vector<int64_t>, std::vector<int64_t>>;
SampleSplit split_samples(std::vector<int64_t> all, int64_t count, uint64_t seed);

// The same of the indices of `labels`, of which each is at least 0: each class gives its part of `count`, rounded so that the sum is
// `count`. A class keeps at least one sample, so that fewer than `count` are chosen if most classes have only one.
SampleSplit split_by_class(const std::vector<int64_t>& labels, int64_t count, uint64_t seed);

std::vector<int64_t> indices_up_to(int64_t size);

// The part of each sample by dataset.split. `groups`: of each sample; all of a group are in one part. `labels`: of each sample, or none
// where the classes do not count. A group has the class that most of its samples have.
std::vector<data::Split> divide(const std::vector<std::string>& groups, const std::vector<int64_t>& labels,
                                const config::SplitSection& options);

// Of each training file its key, its group and its part, as comma-separated values. The experiment has dataset.split. Throws UsageError.
std::string split_table(const config::Experiment& experiment, const data::Dataset& files);
// Of such a table: another text for another one.
std::string digest_of(const std::string& table);

// The group of each sample. Throws UsageError for a regular expression that is none, or that finds nothing in the path of a sample.
std::vector<std::string> groups_of(const data::Dataset& files, const config::SplitSection& options);

}  // namespace trainer::session
