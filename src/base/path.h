#pragma once

#include <string>

namespace trainer {

// Replaces `~` at the beginning of a path by the user's home folder, and each ${NAME} by that environment variable. Throws Error with only
// the reason.
std::string expand_path(const std::string& path);

// The folder for files that several runs share: ${TRAINER_HOME}, ${XDG_CACHE_HOME}/trainer or ~/.cache/trainer. Throws Error.
std::string home_folder();

}  // namespace trainer
