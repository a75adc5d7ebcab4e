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

namespace {

// The last part of a URL, without query and fragment.
std::string file_of(const std::string& address) {
  const auto path = address.substr(0, address.find_first_of("?#"));
  return path.substr(path.rfind('/') + 1);
}

uint64_t fnv1a(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return hash;
}

}  // namespace

datasets::Checksum checksum_in_name(const std::string& file) {
  std::smatch found;
  const bool has_sum = std::regex_search(file, found, std::regex("-([0-9a-f]{8,64})\\.[^.]*$"));
  const auto digits = has_sum ? found[1].str() : "";
  // Eight decimal digits may be a date, as in mine-20260117.pth.
  constexpr size_t kDate = 8;
  const bool is_date = digits.size() == kDate && digits.find_first_not_of("0123456789") == std::string::npos;
  return {"SHA256", is_date ? "" : digits};
}

bool is_address(const std::string& text) {
  return text.starts_with("http://") || text.starts_with("https://") || text.starts_with("file://");
}

std::string problem_of_address(const std::string& address) {
  return file_of(address).empty() ? fmt::format("the URL \"{}\" does not end with the name of a file; add the name", address) : "";
}

WeightsSource weights_source(const std::string& model, const std::string& weights, const std::string& mirror) {
  WeightsSource source;
  if (is_address(weights)) {
    source.url = weights;
    source.file = file_of(weights);
    source.checksum = checksum_in_name(source.file);
    // Files of different URLs may have the same name, such as model.safetensors.
    if (source.checksum.digits.empty()) source.file = fmt::format("{:016x}-{}", fnv1a(weights), source.file);
    return source;
  }
  source.file = models::find_published_weights(model, weights)->file;
  source.url = mirror.empty() ? models::kPublishedWeightsUrl : mirror;
  if (!source.url.ends_with('/')) source.url += '/';
  source.url += source.file;
  source.checksum = checksum_in_name(source.file);
  return source;
}

fs::path weights_folder() { return fs::path(home_folder()) / "weights"; }

fs::path fetch_weights(const WeightsSource& source, Logger& logger) {
  const auto folder = weights_folder();
  const auto target = folder / source.file;
  if (fs::exists(target)) {
    if (datasets::has_checksum(target, source.checksum)) return target;
    throw DataError(
        fmt::format("{}: its SHA-256 checksum does not begin with the digits in its name; remove the file, so that it is downloaded again",
                    target.string()));
  }
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
    throw DataError(
        fmt::format("cannot download {}: {}; try again, or download it on another host and copy it to {}; `trainer init "
                    "--no-weights` writes an experiment file without weights",
                    source.url, reason.what(), target.string()));
  }
  return target;
}

inference::InitReport load_published_weights(const fs::path& file, const std::string& model_name, models::Model& model,
                                             const std::vector<std::string>& class_names) {
  const auto tree = checkpoint::load(file);
  const auto* entries = std::get_if<state::Dict>(&tree.value());
  if (entries == nullptr) return inference::init_all_but_head(tree, file.string(), model, class_names);
  state::Dict renamed;
  for (const auto& item : entries->items()) {
    renamed.add(models::current_name_of_entry(model_name, state::to_string(item.key)), item.value);
  }
  return inference::init_all_but_head(renamed, file.string(), model, class_names);
}

}  // namespace trainer::session
