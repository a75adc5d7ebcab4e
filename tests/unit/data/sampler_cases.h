#pragma once
// Shared code of the sampler tests.

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "config/problems.h"
#include "config/reader.h"
#include "data/samplers/sampler.h"
#include "trainer/error.h"

namespace trainer::data {

// Samples of which only the labels are used.
class LabelledSamples : public Dataset {
 public:
  explicit LabelledSamples(std::vector<int64_t> labels, int64_t num_classes = 3)
      : labels_(std::move(labels)), info_{.shape = {1}, .is_image = false, .num_classes = num_classes} {}
  explicit LabelledSamples(int64_t size) : LabelledSamples(std::vector<int64_t>(static_cast<size_t>(size))) {}

  const DatasetInfo& info() const override { return info_; }
  int64_t size() const override { return static_cast<int64_t>(labels_.size()); }
  Sample read(int64_t, Scratch&) const override { throw std::runtime_error("a sampler must not read samples"); }
  Target target(int64_t index, Scratch&) const override { return {.label = labels_[static_cast<size_t>(index)]}; }

 private:
  std::vector<int64_t> labels_;
  DatasetInfo info_;
};

// The sampler of a section dataloader.sampler in YAML. `part`: the samples of `files` that are trained on; null: all.
inline Sampler make_sampler(const std::string& yaml, const Dataset& files, uint64_t seed = 0, const Dataset* part = nullptr) {
  ComponentConfig component;
  config::Problems problems;
  config::read_section(
      config::parse_yaml(yaml, "test"), [&](KeyTable& keys) { keys.add_component("name", component, sampler_registry(), "", ""); }, "",
      problems);
  problems.throw_if_any();
  return sampler_registry().make(component, {.dataset = part == nullptr ? files : *part, .files = files, .seed = seed});
}

// A list of cases in tests/golden/sampler_orders.json.
inline nlohmann::json golden_orders(const char* name) {
  return nlohmann::json::parse(std::ifstream(TRAINER_SOURCE_DIR "/tests/golden/sampler_orders.json")).at(name);
}

inline void expect_golden(const std::vector<int64_t>& indices, const nlohmann::json& each, int rank) {
  SCOPED_TRACE(each.dump().substr(0, 200) + ", rank " + std::to_string(rank));
  const auto& expected = each.at("orders").at(static_cast<size_t>(rank));
  ASSERT_EQ(indices.size(), expected.at("length").get<size_t>());
  const auto head = expected.at("head").get<std::vector<int64_t>>();
  EXPECT_TRUE(std::equal(head.begin(), head.end(), indices.begin()));
  int64_t weighted_sum = 0;
  for (size_t i = 0; i < indices.size(); ++i) weighted_sum += static_cast<int64_t>(i + 1) * indices[i];
  EXPECT_EQ(weighted_sum, expected.at("weighted_sum").get<int64_t>());
}

}  // namespace trainer::data
