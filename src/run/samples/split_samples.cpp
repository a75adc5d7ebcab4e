#include "run/samples/split_samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <regex>

#include "base/random.h"
#include "base/text.h"
#include "reporting/evaluation.h"
#include "run/samples/open_samples.h"
#include "train/engine/parts.h"
#include "trainer/error.h"
#include "trainer/random.h"

namespace trainer::samples {
namespace {

struct ClassShare {
  int64_t size = 0;
  int64_t count = 0;      // number of its samples that are chosen
  int64_t remainder = 0;  // the remainder of rounding down, times the number of all samples
};

std::vector<int64_t> shuffled(std::vector<int64_t> all, uint64_t seed) {
  CounterRandom random(seed, engine::kSplitStream);
  for (size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[random.next_below(static_cast<uint32_t>(i))]);
  return all;
}

// The share of each class. Classes with equal remainders are preferred in the order of their first samples in `order`, which depends on the
// seed.
std::vector<ClassShare> class_shares(const std::vector<int64_t>& labels, const std::vector<int64_t>& order, int64_t count) {
  std::vector<ClassShare> shares(labels.empty() ? 0 : static_cast<size_t>(std::ranges::max(labels)) + 1);
  std::vector<ClassShare*> classes;
  for (const auto index : order) {
    auto& share = shares[static_cast<size_t>(labels[static_cast<size_t>(index)])];
    if (share.size++ == 0) classes.push_back(&share);
  }
  int64_t num_missing = count;
  for (auto* share : classes) {
    const auto size = static_cast<int64_t>(labels.size());
    share->count = std::min(share->size * count / size, share->size - 1);
    share->remainder = share->size * count % size;
    num_missing -= share->count;
  }
  std::ranges::stable_sort(classes, std::greater(), &ClassShare::remainder);
  std::erase_if(classes, [](const auto* share) { return share->count == share->size - 1; });
  while (num_missing > 0 && !classes.empty()) {
    for (auto* share : classes) share->count += num_missing-- > 0 ? 1 : 0;
    std::erase_if(classes, [](const auto* share) { return share->count == share->size - 1; });
  }
  return shares;
}

}  // namespace

std::vector<int64_t> indices_up_to(int64_t size) {
  std::vector<int64_t> indices(static_cast<size_t>(size));
  std::iota(indices.begin(), indices.end(), int64_t{0});
  return indices;
}

SampleSplit split_samples(std::vector<int64_t> all, int64_t count, uint64_t seed) {
  all = shuffled(std::move(all), seed);
  const auto middle = all.begin() + count;
  std::sort(all.begin(), middle);
  std::sort(middle, all.end());
  return {{all.begin(), middle}, {middle, all.end()}};
}

SampleSplit split_by_class(const std::vector<int64_t>& labels, int64_t count, uint64_t seed) {
  const auto order = shuffled(indices_up_to(static_cast<int64_t>(labels.size())), seed);
  auto shares = class_shares(labels, order, count);
  SampleSplit result;
  for (const auto index : order) {
    auto& num_missing = shares[static_cast<size_t>(labels[static_cast<size_t>(index)])].count;
    (num_missing > 0 ? result.first : result.second).push_back(index);
    if (num_missing > 0) --num_missing;
  }
  std::ranges::sort(result.first);
  std::ranges::sort(result.second);
  return result;
}

namespace {

// The streams are independent of each other, so that another fraction for the test does not change the folds.
enum HashStream : uint64_t { kTestStream = 1, kValidationStream };

// Maps a name to [0, 1).
double place_of(std::string_view name, uint64_t seed, HashStream stream) {
  return static_cast<double>(mix_seed(mix_seed(seed, stream), fnv1a(name)) >> 11) * 0x1.0p-53;
}

struct Group {
  Group(std::string_view of, uint64_t seed)
      : name(of), in_test(place_of(of, seed, kTestStream)), in_validation(place_of(of, seed, kValidationStream)) {}

  std::string_view name;
  double in_test;        // hash of the name in [0, 1), which decides about the test part
  double in_validation;  // the same for the validation part
  std::map<int64_t, int64_t> num_of_class = {};
  data::Split part = data::Split::kTrain;

  int64_t label() const {
    const auto most = std::ranges::max_element(num_of_class, {}, [](const auto& entry) { return entry.second; });
    return most == num_of_class.end() ? 0 : most->first;
  }
};

// The fraction for validation, relative to the samples that are not in the test part.
double validation_share(const config::SplitSection& options) { return options.validation / (1 - options.test); }

void divide_by_hash(const std::vector<Group*>& groups, const config::SplitSection& options) {
  for (auto* group : groups) {
    const bool is_held_out = options.folds
                                 ? static_cast<int64_t>(group->in_validation * static_cast<double>(*options.folds)) == options.fold
                                 : group->in_validation < validation_share(options);
    if (group->in_test < options.test) {
      group->part = data::Split::kTest;
    } else if (is_held_out) {
      group->part = data::Split::kValidation;
    }
  }
}

// `groups`: the groups of one class; at least one stays in training. `next_fold`: the fold of the first group, continued from class to
// class so that folds have about equal sizes.
void divide_exactly(std::vector<Group*> groups, const config::SplitSection& options, int64_t& next_fold) {
  const auto sort = [&](double Group::*place) {
    std::ranges::sort(groups, {}, [&](const Group* group) { return std::pair(group->*place, group->name); });
  };
  const auto count_of = [](double part, size_t whole) { return static_cast<size_t>(part * static_cast<double>(whole) + 0.5); };
  sort(&Group::in_test);
  const auto num_test = std::min(count_of(options.test, groups.size()), groups.size() - 1);
  for (size_t i = 0; i < num_test; ++i) groups[i]->part = data::Split::kTest;
  groups.erase(groups.begin(), groups.begin() + static_cast<std::ptrdiff_t>(num_test));
  if (groups.size() == 1) return;
  sort(&Group::in_validation);
  const auto num_validation = std::min(count_of(validation_share(options), groups.size()), groups.size() - 1);
  for (size_t i = 0; i < groups.size(); ++i) {
    const bool is_held_out = options.folds ? next_fold++ % *options.folds == options.fold : i < num_validation;
    if (is_held_out) groups[i]->part = data::Split::kValidation;
  }
}

}  // namespace

std::vector<data::Split> divide(const std::vector<std::string>& groups, const std::vector<int64_t>& labels,
                                const config::SplitSection& options) {
  std::map<std::string_view, Group> by_name;
  for (size_t i = 0; i < groups.size(); ++i) {
    auto& group = by_name.try_emplace(groups[i], groups[i], static_cast<uint64_t>(options.seed)).first->second;
    if (!labels.empty()) ++group.num_of_class[labels[i]];
  }
  std::map<int64_t, std::vector<Group*>> by_class;
  for (auto& [name, group] : by_name) by_class[group.label()].push_back(&group);
  int64_t next_fold = 0;
  for (const auto& [label, members] : by_class) {
    labels.empty() ? divide_by_hash(members, options) : divide_exactly(members, options, next_fold);
  }
  std::vector<data::Split> parts;
  for (const auto& name : groups) parts.push_back(by_name.at(name).part);
  return parts;
}

std::string split_table(const config::Experiment& experiment, const data::Dataset& files) {
  constexpr std::array kParts = {"train", "validation", "test"};
  const auto [groups, parts] = divide_files(experiment, files);
  std::string table = "sample,group,part\n";
  for (size_t i = 0; i < parts.size(); ++i) {
    table += csv_line({files.origin(static_cast<int64_t>(i)).key, groups[i], kParts.at(static_cast<size_t>(parts[i]))});
  }
  return table;
}

std::string digest_of(const std::string& table) { return fmt::format("{:016x}", fnv1a(table)); }

std::string describe_missing_classes(const data::Dataset& files, const std::vector<data::Split>& parts, data::Split part) {
  if (!files.info().has_labels()) return "";
  std::map<int64_t, bool> is_in_part;  // of each class of the files
  for (size_t i = 0; i < parts.size(); ++i) is_in_part[files.label(static_cast<int64_t>(i))] |= parts[i] == part;
  constexpr size_t kMostNamed = 5;
  std::vector<std::string> names;
  for (const auto& [label, is_there] : is_in_part) {
    if (!is_there) names.push_back(reporting::name_of_class(files.info().class_names, label));
  }
  if (names.empty()) return "";
  const auto count = names.size();
  if (count > kMostNamed) names.resize(kMostNamed);
  return fmt::format("there are no images for {} of {} of {}, which {}: {}{}", part == data::Split::kTrain ? "training" : "validation",
                     count, counted(is_in_part.size(), "class", "classes"),
                     part == data::Split::kTrain ? "the network cannot learn" : "no result measures", join(names, ", "),
                     count > kMostNamed ? ", ..." : "");
}

std::string summary_of(const data::Dataset& samples) {
  uint64_t digest = 0;
  for (int64_t i = 0; i < samples.size(); ++i) digest = mix_seed(digest, fnv1a(samples.origin(i).key));
  return fmt::format("{}, digest {:016x}", counted(samples.size(), "sample"), digest);
}

std::vector<std::string> groups_of(const data::Dataset& files, const config::SplitSection& options) {
  std::vector<std::string> groups;
  if (options.group.empty()) {
    for (int64_t i = 0; i < files.size(); ++i) {
      auto [name, key, group, index] = files.origin(i);
      groups.push_back(std::move(group.empty() ? key : group));
    }
    return groups;
  }
  std::regex pattern;
  try {
    pattern = std::regex(options.group);
  } catch (const std::regex_error& error) {
    throw UsageError(fmt::format("dataset.split.group: \"{}\" is not a regular expression: {}", options.group, error.what()));
  }
  for (int64_t i = 0; i < files.size(); ++i) {
    const auto key = files.origin(i).key;
    std::smatch found;
    if (!std::regex_search(key, found, pattern)) {
      throw UsageError(
          fmt::format("dataset.split.group: \"{}\" does not match \"{}\"; change it so that each image has a group", options.group, key));
    }
    groups.push_back(found.size() > 1 ? found[1].str() : found[0].str());
  }
  return groups;
}

}  // namespace trainer::samples
