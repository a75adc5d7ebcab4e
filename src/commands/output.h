#pragma once
// The results that commands print to stdout.

#include <fmt/format.h>

#include <cstdio>
#include <utility>

#include "base/printable.h"

namespace trainer::commands {

// As fmt::print, with what a terminal would execute shown instead (base/printable.h), because results quote files and their names.
template <class... Args>
void print(fmt::format_string<Args...> format, Args&&... args) {
  const auto text = printable(fmt::format(format, std::forward<Args>(args)...));
  std::fwrite(text.data(), 1, text.size(), stdout);
}

}  // namespace trainer::commands
