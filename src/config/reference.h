#pragma once
// The reference of every key, generated from the tables.

#include <string>

#include "config/registry.h"

namespace trainer::config {

std::string reference_text(const Registries& registries);
std::string reference_markdown(const Registries& registries);

}  // namespace trainer::config
