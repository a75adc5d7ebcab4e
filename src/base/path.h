#pragma once

#include <string>

namespace trainer {

// Replaces `~` at the beginning of a path by the user's home folder, and each ${NAME} by that environment variable. Throws Error with only
// the reason if a variable is not set, a ${ has no }, or the path begins with the home folder of another user (~NAME).
std::string expand_path(const std::string& path);

// The folder for files that several runs share: ${TRAINER_HOME}, ${XDG_CACHE_HOME}/trainer or ~/.cache/trainer. Throws Error if none of
// these variables is set.
std::string home_folder();

}  // namespace trainer
