#include "commands/sample_pictures.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "config/load.h"
#include "data/image_file.h"
#include "data/picture.h"
#include "datasets/archive.h"
#include "session/build.h"
#include "session/earlier_configuration.h"
#include "session/plugins.h"
#include "session/registries.h"

namespace trainer::commands {
namespace {

constexpr int kLongestEdge = 96;
constexpr int kJpegQuality = 88;

std::string to_base64(const std::vector<uint8_t>& bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const auto byte = [&](size_t at) { return at < bytes.size() ? uint32_t{bytes[at]} : 0U; };
    const auto group = byte(i) << 16U | byte(i + 1) << 8U | byte(i + 2);
    for (size_t digit = 0; digit < 4; ++digit) {
      text += i + digit > bytes.size() ? '=' : kDigits[group >> (18 - 6 * digit) & 63U];
    }
  }
  return text;
}

config::Experiment load_experiment(const history::RunRecord& run) {
  auto experiment = session::load_without_plugins(run.config, (run.folder / "config.yaml").string(), {}, session::all_registries());
  session::adapt_to_earlier_version(experiment);
  auto* published = dynamic_cast<datasets::PublishedOptions*>(experiment.dataset.component.options.get());
  if (published != nullptr) published->download = false;
  return experiment;
}

std::string to_data_url(const data::Sample& sample) {
  data::PictureMemory memory;
  auto picture = sample.encoded.empty() ? data::Picture(sample.image, memory) : data::Picture(sample.encoded, memory);
  const int longest = std::max(picture.height(), picture.width());
  if (longest > kLongestEdge) {
    const auto scaled = [&](int edge) { return std::max(1, edge * kLongestEdge / longest); };
    picture.resize(scaled(picture.height()), scaled(picture.width()));
  }
  const auto array = picture.pixels();
  std::vector<uint8_t> rgb;
  for (size_t pixel = 0; pixel < array.num_pixels(); ++pixel) {
    for (int c = 0; c < 3; ++c)
      rgb.push_back(array.data[pixel * static_cast<size_t>(array.channels) + static_cast<size_t>(std::min(c, array.channels - 1))]);
  }
  return "data:image/jpeg;base64," + to_base64(data::encode_jpeg(rgb.data(), array.height, array.width, kJpegQuality));
}

}  // namespace

report::Pictures read_sample_pictures(const history::RunRecord& run, const std::vector<int64_t>& samples) {
  report::Pictures pictures;
  try {
    const auto logger = make_quiet_logger();
    const auto experiment = load_experiment(run);
    if (experiment.training.overfit_batches) return {.note = "With training.overfit_batches no wrongly classified images are shown."};
    const auto data = session::open_samples(experiment, *logger);
    if (!data.validation.exists()) return {.note = "This experiment does not validate."};
    const auto& dataset = data.validation.dataset();
    if (!dataset.info().is_image) return {.note = "The samples of this data set are not images."};
    data::Scratch scratch;
    for (const auto index : samples) {
      const bool is_there = index >= 0 && index < dataset.size();
      pictures.names.push_back(is_there ? dataset.name(index) : "");
      pictures.data_urls.push_back(is_there ? to_data_url(dataset.read(index, scratch)) : "");
    }
  } catch (const std::exception& error) {
    pictures.note = fmt::format("The images are not shown, because they cannot be read here: {}", error.what());
  }
  return pictures;
}

}  // namespace trainer::commands
