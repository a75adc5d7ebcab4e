#pragma once

#include "config/catalog.h"

namespace trainer::engine {

// Every part that a configuration can name.
config::Catalog make_catalog();

}  // namespace trainer::engine
