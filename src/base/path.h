#pragma once

#include <string>

namespace trainer {

// Replaces `~` at the beginning of a path by the user's home folder, and each ${NAME} by that variable of the environment. Throws Error
// with only the reason: a variable that is not set, a ${ without }, or the home folder of another user (~NAME).
std::string expand_path(const std::string& path);

// Where files are kept that several runs use: ${TRAINER_HOME}, or ~/.cache/trainer. Throws as expand_path().
std::string home_folder();

}  // namespace trainer
