#pragma once

#include <string>
#include <vector>

#include "data/pipeline.h"
#include "tests/testing/read_component.h"

namespace trainer::data {

// The transforms of a list written in YAML.
inline std::vector<ComponentConfig> transform_list(const std::string& yaml) {
  return trainer::testing::read_components(transform_registry(), yaml);
}

inline DatasetInfo image_info(int64_t channels, int64_t height, int64_t width) {
  return {.shape = {channels, height, width}, .num_classes = 10};
}

inline Pipeline make_pipeline(const std::string& yaml, const DatasetInfo& info, BatchLayout layout = {torch::kFloat64}) {
  return {transform_list(yaml), info, layout};
}

}  // namespace trainer::data
