#include "run/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <stdexcept>

#include "base/file.h"
#include "base/path.h"
#include "base/random.h"
#include "base/text.h"
#include "base/url.h"
#include "checkpoint/read_file.h"
#include "datasets/files.h"
#include "models/published_weights.h"
#include "models/timm.h"
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

bool is_folder(const std::string& weights) {
  return !is_address(weights) && (weights.starts_with('.') || weights.starts_with('~') || weights.find('/') != std::string::npos);
}

WeightsFolder read_weights_folder(const std::string& folder, const std::string& model) {
  const fs::path path = expand_path(folder);
  const auto refuse = [&](const std::string& what) { throw UsageError(fmt::format("{}: {}", path.string(), what)); };
  std::error_code none;  // a file that cannot be examined is not there
  if (!fs::is_directory(path, none)) refuse("there is no such folder; check the path");
  const auto config_file = path / "config.json";
  if (!fs::is_regular_file(config_file, none))
    refuse("has no config.json; give the folder of a network of timm, as the Hugging Face Hub has it");
  constexpr size_t kMostBytes = 1 << 20;
  const auto config = nlohmann::json::parse(read_file_or_pipe(config_file, kMostBytes), nullptr, /*allow_exceptions=*/false);
  const auto text_of = [](const nlohmann::json& object, const char* key) {
    return object.is_object() && object.contains(key) && object[key].is_string() ? object[key].get<std::string>() : "";
  };
  const auto architecture = text_of(config, "architecture");
  if (architecture.empty()) refuse("config.json does not name one of timm's networks (\"architecture\"); model.init_from reads a file");
  const auto* expected = models::timm_name_of(model);
  if (expected == nullptr) refuse(fmt::format("timm has no network that computes the same as {}; model.init_from reads a file", model));
  if (architecture != expected)
    refuse(fmt::format("its weights are those of timm's {}, but {} is timm's {}; choose the network of these weights",
                       printable(architecture), model, expected));
  WeightsFolder result{.file = path / "model.safetensors"};
  if (!fs::exists(result.file, none)) result.file = path / "pytorch_model.bin";
  if (!fs::exists(result.file, none)) refuse("has neither model.safetensors nor pytorch_model.bin; download one of them into it");
  auto trained = config.value("pretrained_cfg", nlohmann::json::object());
  if (!trained.is_object()) trained = nlohmann::json::object();
  result.license = text_of(trained, "license");
  auto& images = result.images;
  const auto input = trained.value("input_size", nlohmann::json());
  const auto is_size = [](const nlohmann::json& value) { return value.is_number_integer() && value > 0 && value <= 4096; };
  if (input.is_array() && input.size() == 3 && is_size(input[1]) && input[1] == input[2]) images.crop = input[1].get<int64_t>();
  double part = 0.875;  // timm's default
  if (trained.contains("crop_pct") && trained["crop_pct"].is_number()) part = trained["crop_pct"].get<double>();
  if (!(part >= 0.1 && part <= 1)) refuse(fmt::format("config.json: crop_pct is {}, not a number from 0.1 to 1; correct it", part));
  images.resize = static_cast<int64_t>(static_cast<double>(images.crop) / part);
  if (const auto given = text_of(trained, "interpolation"); given == "bicubic") images.interpolation = given;
  const auto read_numbers = [&](const char* key, std::string& numbers) {
    if (!trained.contains(key)) return;
    const auto& list = trained[key];
    if (!list.is_array() || list.size() != 3 || !std::ranges::all_of(list, [](const auto& value) { return value.is_number(); }))
      refuse(fmt::format("config.json: {} is not a list of three numbers; correct it", key));
    numbers = list.dump();
  };
  read_numbers("mean", images.mean);
  read_numbers("std", images.std);
  return result;
}

std::optional<WeightsImages> images_of_weights(const std::string& model, const std::string& weights) {
  if (const auto* published = models::find_published_weights(model, weights)) {
    return WeightsImages{
        .resize = published->resize, .crop = published->crop, .interpolation = published->is_bicubic ? "bicubic" : "bilinear"};
  }
  if (!is_folder(weights)) return std::nullopt;
  try {
    return read_weights_folder(weights, model).images;
  } catch (const Error&) {
    return std::nullopt;
  }
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

namespace {

// The positions of the patches of a square image, [1, n + h·h, features], resized to `num_tokens` as by timm's resample_abs_pos_embed();
// the positions of the first n tokens stay.
torch::Tensor resize_positions(const torch::Tensor& positions, int64_t num_tokens) {
  const auto side_of = [](int64_t count) { return static_cast<int64_t>(std::sqrt(static_cast<double>(count))); };
  const auto from = side_of(positions.size(1));
  const auto to = side_of(num_tokens);
  const auto num_first = positions.size(1) - from * from;
  const auto patches = positions.slice(1, num_first).to(torch::kFloat32).unflatten(1, {from, from}).permute({0, 3, 1, 2});
  const auto resized = at::_upsample_bicubic2d_aa(patches, {to, to}, /*align_corners=*/false, std::nullopt, std::nullopt);
  return at::cat({positions.slice(1, 0, num_first), resized.flatten(2).transpose(1, 2).to(positions.dtype())}, 1);
}

// An entry of a file, in the shape of the entry of the network. timm has some values in other shapes, and vision transformers may have been
// trained on images of another size.
torch::Tensor in_shape(const torch::Tensor& tensor, const std::string& name, const std::vector<int64_t>& shape) {
  if (tensor.numel() == c10::multiply_integers(shape)) return tensor.reshape(shape);
  const bool has_positions = name.ends_with("pos_embed") || name.ends_with("pos_embedding");
  if (!has_positions || !tensor.is_floating_point() || tensor.dim() != 3 || tensor.size(0) != 1 || tensor.size(1) < 1) return tensor;
  const auto resized = resize_positions(tensor, shape[1]);
  return resized.sizes().equals(shape) ? resized : tensor;
}

}  // namespace

inference::InitReport load_published_weights(const fs::path& file, const std::string& model_name, models::Model& model,
                                             const std::vector<std::string>& class_names) {
  const auto tree = checkpoint::load(file);
  const auto* entries = std::get_if<state::Dict>(&tree.value());
  if (entries == nullptr) return inference::init_all_but_head(tree, file.string(), model, class_names);
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const auto& entry : model.named_parameters()) shapes[entry.key()] = entry.value().sizes().vec();
  state::Dict renamed;
  std::set<std::string> names;
  for (const auto& item : entries->items()) {
    const auto name = state::to_string(item.key);
    const auto current = models::current_name_of_entry(model_name, models::name_of_timm_entry(model_name, name));
    if (!names.insert(current).second)
      throw CheckpointError(fmt::format("{}: two of its entries are {}; give a file of one network", file.string(), printable(current)));
    const auto* tensor = std::get_if<torch::Tensor>(&item.value.value());
    const auto shape = shapes.find(current);
    const bool may_differ = tensor != nullptr && shape != shapes.end() && models::timm_name_of(model_name) != nullptr;
    renamed.add(current, may_differ ? state::Tree(in_shape(*tensor, current, shape->second)) : item.value);
  }
  return inference::init_all_but_head(renamed, file.string(), model, class_names);
}

}  // namespace trainer::run
