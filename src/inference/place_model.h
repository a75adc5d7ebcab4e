#pragma once
// A network on the device, in the memory format and with the algorithms that were chosen for a run.

#include <cstdint>
#include <string>
#include <vector>

#include "device/placement.h"
#include "trainer/model.h"

namespace trainer::inference {

// `placement`, with the memory format that the network prefers if that is left to it.
device::Placement placement_for(const models::Model& model, device::Placement placement);
// Moves the network there. `placement`: one of placement_for().
void place_model(models::Model& model, const device::Placement& placement);

// Whether a network takes samples of this shape. `wanted`: models::ModelOptions::input_shape().
bool takes_shape(const std::vector<int64_t>& wanted, const std::vector<int64_t>& shape);
// For messages: "3xHxW".
std::string input_shape_text(const std::vector<int64_t>& wanted);

}  // namespace trainer::inference
