#pragma once

#include <string>
#include <vector>

namespace trainer::session {

// Overrides for a configuration that a run has written, so that it means what it meant then: those of the keys that the version of this
// program did not have which has written it, and whose defaults mean something else. `text`: the resolved file; `source`: what messages
// call it. Throws UsageError if it is not YAML.
std::vector<std::string> overrides_of_earlier_version(const std::string& text, const std::string& source);

}  // namespace trainer::session
