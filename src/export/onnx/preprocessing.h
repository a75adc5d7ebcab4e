#pragma once
// The preprocessing of images as operators of ONNX.

#include <string>

#include "export/onnx/operators.h"
#include "export/preprocessing.h"

namespace trainer::onnx {

// `images`: uint8 [batch, height, width, channels]. Returns the name of the network's input, float32 [batch, channels, height, width]. Its
// operators are those that every runtime has: a resize is two products with matrices whose elements are computed from the size of the
// image, because runtimes that have Resize with antialiasing at all compute other values than Pillow.
std::string add_preprocessing(const exported::Preprocessing& preprocessing, const std::string& images, Graph& graph);

}  // namespace trainer::onnx
