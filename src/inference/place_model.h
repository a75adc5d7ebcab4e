#pragma once
// Moves a network to the device, memory format and dtype that were chosen for its run.

#include <cstdint>
#include <string>
#include <vector>

#include "device/placement.h"
#include "trainer/model.h"

namespace trainer::inference {

// Returns `placement`, changed to the contiguous memory format and direct convolutions if the network may choose the format and does not
// prefer channels_last.
device::Placement placement_for(const models::Model& model, device::Placement placement);
// Applies the device, type, memory format and algorithms of `placement`, a result of placement_for(), to the network.
void place_model(models::Model& model, const device::Placement& placement);

// Whether a network accepts samples of this shape. `wanted`: models::ModelOptions::input_shape().
bool takes_shape(const std::vector<int64_t>& wanted, const std::vector<int64_t>& shape);
// For messages: "3xHxW".
std::string input_shape_text(const std::vector<int64_t>& wanted);

}  // namespace trainer::inference
