#include "commands/plugin_option.h"

#include <string>
#include <vector>

#include "session/plugins.h"

namespace trainer::commands {

void add_plugin_option(CLI::App& app) {
  app.add_option_function<std::vector<std::string>>(
         "--plugin",
         [](const std::vector<std::string>& files) {
           for (const auto& file : files) session::load_plugin(file);
         },
         "a shared library with components of your own, as in the key `plugins`; may be given several times")
      ->type_name("FILE")
      ->allow_extra_args(false);
}

}  // namespace trainer::commands
