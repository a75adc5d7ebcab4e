#include "cli/training_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "base/program.h"
#include "launch/world/host_resources.h"
#include "trainer/error.h"

namespace trainer::cli {

TrainingLibraryEntry load_training_library() {
  world::check_address_space();
  // RTLD_GLOBAL makes the symbols global, as linking would; LibTorch's libraries need global symbols.
  void* library = dlopen(TRAINER_LIBRARY, RTLD_LAZY | RTLD_GLOBAL);
  const auto entry = library == nullptr ? nullptr : reinterpret_cast<TrainingLibraryEntry>(dlsym(library, kTrainingLibraryEntry));
  if (entry != nullptr) return entry;
  const std::string reason = dlerror();
  // Without /proc, the libraries beside the program are not found.
  own_program();
  throw Error(fmt::format("the training library of this program cannot be loaded: {}; build or install it again", reason));
}

}  // namespace trainer::cli
