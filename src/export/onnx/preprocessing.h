#pragma once
// Converts the preprocessing of images to operators of ONNX.

#include <string>

#include "export/interface.h"
#include "export/onnx/operators.h"

namespace trainer::onnx {

// `images`: uint8 [batch, height, width, channels]. Returns the name of the network's input, float32 [batch, channels, height, width]. Does
// not use the operator Resize, because runtimes that support it with antialiasing compute different values from Pillow. Instead, the pixels
// are multiplied by matrices that are computed from the size of the image; for images of one size, they are constants. `interface`: with
// preprocessing.
std::string add_preprocessing(const exported::Interface& interface, const std::string& images, Graph& graph);

}  // namespace trainer::onnx
