#include "datasets/installation.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "datasets/new_folder.h"
#include "trainer/error.h"

namespace trainer::datasets {

namespace fs = std::filesystem;

void install(const Installation& installation, Logger& logger,
             const std::function<std::filesystem::path(const std::filesystem::path& partial)>& make) {
  const auto& [root, folder, url, by_hand] = installation;
  const auto target = root / folder;
  auto name = folder;
  std::ranges::replace(name, '/', '-');
  try {
    create_folders(root);
    const FolderLock lock(root / fmt::format(".{}.lock", name), "downloads " + url, logger);
    if (fs::exists(target)) return;
    const PartialFolder partial(root / fmt::format(".{}.partial", name));
    logger.info("downloading {} into {}", url, root.string());
    put_into_place(make(partial.path()), target);
    logger.info("installed in {}", target.string());
  } catch (const Error&) {
    throw;
  } catch (const std::runtime_error& reason) {
    throw DataError(
        fmt::format("cannot get {}: {}; try again, or {}, so that {} holds its files", url, reason.what(), by_hand, target.string()));
  }
}

}  // namespace trainer::datasets
