#pragma once
// What a rank that does not read the data knows about them.

#include <string>

#include "engine/parts.h"

namespace trainer::session {

// The number of samples and their properties, as a text; without the names of the classes, which only rank 0 needs.
std::string describe_samples(const engine::Data& data);
// Sets them from the text of another rank.
void set_samples(const std::string& description, engine::Data& data);

}  // namespace trainer::session
