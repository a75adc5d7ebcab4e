#pragma once

#include "config/catalog.h"

namespace trainer::session {

// Every component that a configuration can name.
config::Catalog make_catalog();

}  // namespace trainer::session
