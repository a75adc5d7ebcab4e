#include "run/session/weights.h"

#include <fmt/format.h>

#include <regex>
#include <stdexcept>

#include "base/path.h"
#include "datasets/files.h"
#include "models/published_weights.h"
#include "trainer/checkpoint.h"
#include "trainer/error.h"
#include "trainer/state.h"

namespace trainer::session {

namespace fs = std::filesystem;

datasets::Checksum checksum_in_name(const std::string& file) {
  std::smatch found;
  const bool has_sum = std::regex_search(file, found, std::regex("-([0-9a-f]{8,64})\\.[^.]*$"));
  return {"SHA256", has_sum ? found[1].str() : ""};
}

bool is_address(const std::string& weights) {
  return weights.starts_with("http://") || weights.starts_with("https://") || weights.starts_with("file://");
}

WeightsSource weights_source(const std::string& model, const std::string& weights, const std::string& mirror) {
  WeightsSource source;
  if (is_address(weights)) {
    source.url = weights;
    source.file = weights.substr(weights.rfind('/') + 1);
  } else {
    source.file = models::find_published_weights(model, weights)->file;
    source.url = mirror.empty() ? models::kPublishedWeightsUrl : mirror;
    if (!source.url.ends_with('/')) source.url += '/';
    source.url += source.file;
  }
  source.checksum = checksum_in_name(source.file);
  return source;
}

fs::path weights_folder() { return fs::path(home_folder()) / "weights"; }

fs::path fetch_weights(const WeightsSource& source, Logger& logger) {
  const auto folder = weights_folder();
  const auto target = folder / source.file;
  if (fs::exists(target)) return target;
  try {
    datasets::create_folders(folder);
    const datasets::FolderLock lock(folder / fmt::format(".{}.lock", source.file), "downloads " + source.url, logger);
    if (fs::exists(target)) return target;
    const auto partial = folder / fmt::format(".{}.partial", source.file);
    logger.info("downloading {} to {}", source.url, target.string());
    constexpr uint64_t kMostBytes = uint64_t{16} << 30;
    datasets::download(source.url, source.checksum, partial, {.num_bytes = kMostBytes}, logger);
    datasets::flush_file_system(folder);
    fs::rename(partial, target);
  } catch (const Error&) {
    throw;
  } catch (const std::runtime_error& reason) {
    throw DataError(fmt::format("cannot get {}: {}; try again, name another address with model.weights_mirror, or copy the file to {}",
                                source.url, reason.what(), target.string()));
  }
  return target;
}

engine::InitReport load_published_weights(const fs::path& file, const std::string& model_name, models::Model& model) {
  const auto tree = checkpoint::load(file);
  const auto* entries = std::get_if<state::Dict>(&tree.value());
  if (entries == nullptr) return engine::init_all_but_head(tree, file.string(), model);
  state::Dict renamed;
  for (const auto& item : entries->items()) {
    renamed.add(models::current_name_of_entry(model_name, state::to_string(item.key)), item.value);
  }
  return engine::init_all_but_head(renamed, file.string(), model);
}

}  // namespace trainer::session
