#pragma once

#include "config/registries.h"

namespace trainer::session {

// The registries of all components that an experiment file can name.
config::Registries all_registries();

}  // namespace trainer::session
