#pragma once
// The reference of every key, generated from the tables.

#include <string>

#include "config/catalog.h"

namespace trainer::config {

std::string reference_text(const Catalog& catalog);
std::string reference_markdown(const Catalog& catalog);

}  // namespace trainer::config
