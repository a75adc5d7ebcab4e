#include "run/weights.h"

#include <fmt/format.h>

#include <regex>
#include <stdexcept>

#include "base/file.h"
#include "base/path.h"
#include "base/random.h"
#include "base/text.h"
#include "base/url.h"
#include "checkpoint/read_file.h"
#include "datasets/files.h"
#include "models/published_weights.h"
#include "trainer/checkpoint.h"
#include "trainer/error.h"
#include "trainer/state.h"

namespace trainer::run {

namespace fs = std::filesystem;

namespace {

// The last part of a URL, without query and fragment.
std::string file_of(const std::string& address) {
  const auto path = address.substr(0, address.find_first_of("?#"));
  return path.substr(path.rfind('/') + 1);
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
  return file_of(address).empty()
             ? fmt::format("the URL \"{}\" does not end with the name of a file; add the name", without_secrets(address))
             : "";
}

WeightsSource weights_source(const std::string& model, const std::string& weights, const std::string& mirror) {
  WeightsSource source;
  if (is_address(weights)) {
    source.url = weights;
    source.file = file_of(weights);
    source.checksum = checksum_in_name(source.file);
    // Files of different URLs may have the same name, such as model.safetensors.
    if (source.checksum.digits.empty()) source.file = fmt::format("{:016x}-{}", fnv1a(without_user_info(weights)), source.file);
    return source;
  }
  const auto& published = *models::find_published_weights(model, weights);
  // Its size is rounded.
  source.most_bytes = static_cast<uint64_t>((published.size + 1) * (1 << 20));
  source.file = published.file;
  source.url = mirror.empty() ? models::kPublishedWeightsUrl : mirror;
  if (!source.url.ends_with('/')) source.url += '/';
  source.url += source.file;
  source.checksum = checksum_in_name(source.file);
  return source;
}

fs::path weights_folder() { return fs::path(home_folder()) / "weights"; }

std::string damage_of(const fs::path& file, const datasets::Checksum& checksum) {
  if (!checksum.digits.empty()) {
    return datasets::has_checksum(file, checksum) ? "" : "its SHA-256 checksum does not begin with " + checksum.digits;
  }
  try {
    checkpoint::load(MappedFile(file).bytes(), "its content");
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

std::string missing_secret(const WeightsSource& source) {
  if (!lacks_secrets(source.url)) return "";
  return fmt::format("{}: in this URL, *** stands for a user name, password or query, which files of runs do not contain; write them again",
                     source.url);
}

fs::path fetch_weights(const WeightsSource& source, Logger& logger) {
  const auto folder = weights_folder();
  const auto target = folder / source.file;
  const auto url = without_secrets(source.url);
  if (fs::exists(target)) {
    const auto damage = damage_of(target, source.checksum);
    if (damage.empty()) return target;
    throw DataError(fmt::format("{}: {}; remove the file, so that it is downloaded again from {}", target.string(), damage, url));
  }
  if (const auto problem = missing_secret(source); !problem.empty()) throw UsageError(problem);
  try {
    datasets::create_folders(folder);
    const datasets::FolderLock lock(folder / fmt::format(".{}.lock", source.file), "downloads " + url, logger);
    if (fs::exists(target)) return target;
    const auto partial = folder / fmt::format(".{}.partial", source.file);
    logger.info("downloading {} to {}", url, target.string());
    datasets::download(source.url, source.checksum, partial, {.num_bytes = source.most_bytes}, logger);
    const auto damage = source.checksum.digits.empty() ? damage_of(partial, source.checksum) : "";
    if (!damage.empty()) {
      const auto size = format_bytes(fs::file_size(partial));
      fs::remove(partial);
      throw std::runtime_error(fmt::format("the server sent {} that cannot be used: {}", size, damage));
    }
    datasets::flush_file_system(folder);
    fs::rename(partial, target);
  } catch (const Error&) {
    throw;
  } catch (const std::runtime_error& reason) {
    throw DataError(
        fmt::format("cannot download {}: {}; try again, or download it on another host and copy it to {}; `trainer init "
                    "--no-weights` writes an experiment file without weights",
                    url, reason.what(), target.string()));
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

}  // namespace trainer::run
