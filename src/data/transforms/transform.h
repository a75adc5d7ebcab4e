#pragma once
// To add a transform, add a file in this folder and its name in src/CMakeLists.txt.

#include <memory>
#include <string>
#include <utility>

#include "data/picture.h"

namespace trainer::data {

// T: an ImageTransform or ErasingTransform.
template <class T>
void add_transform(TransformRegistry& registry, std::string name, std::string doc) {
  registry.add<T>(std::move(name), std::move(doc), [](const T& transform) { return Transform(std::make_shared<const T>(transform)); });
}

}  // namespace trainer::data
