#include "commands/pictures.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "base/text.h"
#include "checkpoint/store.h"
#include "commands/command.h"
#include "commands/run_end.h"
#include "data/picture.h"
#include "data/pipeline.h"
#include "datasets/archive.h"
#include "inference/description.h"
#include "inference/predictor.h"
#include "report/page.h"
#include "reporting/evaluation.h"
#include "reporting/values.h"
#include "run/recipe/registries.h"
#include "run/samples/open_samples.h"
#include "trainer/checkpoint.h"
#include "trainer/error.h"

namespace trainer::commands {
namespace {

constexpr int kMargin = 4;
// Smaller images are enlarged to at least this width, which two lines of text need.
constexpr int kLeastWidth = 144;
constexpr int kNumLines = 2;
constexpr int kLineHeight = 24;
constexpr int kCharacterWidth = 12;

// Draws the caption in the available lines; dots mark omitted text.
void draw_caption(data::RgbImage& grid, int top, int left, std::string caption, int width) {
  const auto length = static_cast<size_t>(std::max(1, width / kCharacterWidth));
  const size_t most = length * kNumLines;
  if (caption.size() > most) caption.replace(most - std::min<size_t>(most, 2), std::string::npos, "..");
  for (size_t line = 0; line < kNumLines && line * length < caption.size(); ++line) {
    data::draw_text(grid, {.top = top + static_cast<int>(line) * kLineHeight, .left = left, .height = kLineHeight, .width = width},
                    caption.substr(line * length, length));
  }
}

// The names of the classes, or the numbers; empty for masks.
std::string caption_of(const data::Target& target, const data::DatasetInfo& info) {
  if (info.has_labels()) return drawable_class_name(info.class_names, target.label);
  std::string caption;
  for (size_t i = 0; i < target.values.size(); ++i) {
    if (info.is_multi_label && target.values[i] < 0.5F) continue;
    const auto text =
        info.is_multi_label ? drawable_class_name(info.class_names, static_cast<int64_t>(i)) : reporting::format_target(target.values[i]);
    caption += (caption.empty() ? "" : ", ") + text;
  }
  return caption;
}

constexpr int kLongestEdge = 96;  // of a picture in a report
constexpr int kPreviewQuality = 88;

std::string to_base64(const std::vector<uint8_t>& bytes) {
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');
  text.resize(static_cast<size_t>(EVP_EncodeBlock(reinterpret_cast<uint8_t*>(text.data()), bytes.data(), static_cast<int>(bytes.size()))));
  return text;
}

std::string to_data_url(const data::RgbImage& picture) {
  return "data:image/jpeg;base64," + to_base64(data::encode_jpeg(picture.pixels.data(), picture.height, picture.width, kPreviewQuality));
}

// The samples, as the network of the checkpoint receives them, under their heat maps for these classes; empty for samples and classes that
// do not exist. Throws Error if the checkpoint or a sample cannot be read, or the network has no maps.
std::vector<std::string> draw_heatmaps(const config::Experiment& experiment, const std::filesystem::path& checkpoint,
                                       const data::Dataset& dataset, const std::vector<int64_t>& samples,
                                       const std::vector<int64_t>& labels) {
  const auto file = checkpoint::load(checkpoint);
  const auto description = inference::read_description(file, checkpoint.string());
  auto on_cpu = description.placement;
  on_cpu.device = device::DeviceChoice::kCpu;
  inference::Predictor predictor(description, file, /*averaged=*/false,
                                 device::choose_placement(on_cpu, {.num_threads = at::get_num_threads()}, {}));
  const auto& transforms = experiment.dataset.validation_transforms;
  const data::Pipeline to_input(transforms, dataset.info(), predictor.reader().layout());
  const data::Pipeline to_picture(without_normalize(transforms), dataset.info(), {torch::kFloat32, /*channels_last=*/true});
  const auto image = predictor.make_batch(1);
  const auto& shape = to_picture.output_shape();
  std::vector<float> picture(static_cast<size_t>(c10::multiply_integers(shape)));
  data::Scratch scratch;
  data::PictureMemory memory;
  std::vector<std::string> result(samples.size());
  for (size_t i = 0; i < samples.size(); ++i) {
    const auto index = samples[i];
    if (index < 0 || index >= dataset.size() || labels[i] < 0 || labels[i] >= predictor.num_outputs()) continue;
    const auto sample = dataset.read(index, scratch);
    to_input.write(sample, {/*seed=*/0, /*number=*/0}, {index}, memory, image.data_ptr());
    to_picture.write(sample, {/*seed=*/0, /*number=*/0}, {index}, memory, picture.data());
    if (dataset.info().decoding.has_float_pixels()) stretch(picture);
    const auto heat = predictor.heatmaps(image, {&labels[i], 1});
    result[i] = to_data_url(draw_heatmap(shape, picture, {heat.const_data_ptr<float>(), static_cast<size_t>(heat.numel())}));
  }
  return result;
}

config::Experiment load_experiment(const history::RunRecord& run) {
  auto experiment = recipe::load_without_plugins(run.config, (run.folder / "config.yaml").string(), {}, recipe::all_registries());
  auto* published = dynamic_cast<datasets::PublishedOptions*>(experiment.dataset.component.options.get());
  if (published != nullptr) published->download = false;
  return experiment;
}

}  // namespace

void refuse_picture_over(const data::Dataset& dataset, const std::filesystem::path& output, std::string_view option) {
  std::error_code none;
  const auto file = std::filesystem::canonical(output, none);
  if (none) return;
  // The name of a sample that is a file is its path. Names are compared first, because accessing millions of files would take minutes.
  const auto given_name = output.filename().string();
  const auto name = file.filename().string();
  for (int64_t i = 0; i < dataset.size(); ++i) {
    const auto sample = dataset.origin(i).name;
    if (sample.ends_with(given_name) || sample.ends_with(name)) refuse_to_overwrite(output, {sample}, option);
  }
}

data::RgbImage draw_image_grid(const std::vector<int64_t>& shape, int64_t count,
                               const std::function<std::string(int64_t i, float* out)>& read) {
  const auto channels = static_cast<int>(shape[0]);
  const auto height = static_cast<int>(shape[1]);
  const auto width = static_cast<int>(shape[2]);
  std::vector<float> values(static_cast<size_t>(channels * height * width));
  // Grey images use their one channel for all three colours.
  const auto pixel = [&](int y, int x, int c) {
    const int at = (y * width + x) * channels + std::min(c, channels - 1);
    return static_cast<uint8_t>(std::lround(std::clamp(values[static_cast<size_t>(at)], 0.0F, 1.0F) * 255.0F));
  };
  const int zoom = (kLeastWidth + width - 1) / width;
  const int cell_height = height * zoom + kNumLines * kLineHeight + kMargin;
  const int cell_width = width * zoom + kMargin;
  const auto columns = static_cast<int>(std::ceil(std::sqrt(static_cast<double>(count))));
  const auto rows = static_cast<int>((count + columns - 1) / columns);
  data::RgbImage grid{.height = rows * cell_height + kMargin, .width = columns * cell_width + kMargin};
  grid.pixels.assign(static_cast<size_t>(grid.height) * static_cast<size_t>(grid.width) * 3, 255);
  for (int64_t i = 0; i < count; ++i) {
    const int top = kMargin + static_cast<int>(i) / columns * cell_height;
    const int left = kMargin + static_cast<int>(i) % columns * cell_width;
    const auto caption = read(i, values.data());
    for (int y = 0; y < height * zoom; ++y) {
      for (int x = 0; x < width * zoom; ++x) {
        auto* out = &grid.pixels[static_cast<size_t>(((top + y) * grid.width + left + x) * 3)];
        for (int c = 0; c < 3; ++c) out[c] = pixel(y / zoom, x / zoom, c);
      }
    }
    draw_caption(grid, top + height * zoom, left, caption, cell_width - kMargin);
  }
  return grid;
}

data::RgbImage draw_heatmap(const std::vector<int64_t>& shape, std::span<const float> image, std::span<const float> heatmap) {
  const auto channels = static_cast<size_t>(shape[0]);
  const auto width = static_cast<int>(shape[2]);
  const int zoom = (kLeastWidth + width - 1) / width;
  data::RgbImage picture{.height = static_cast<int>(shape[1]) * zoom, .width = width * zoom};
  for (int y = 0; y < picture.height; ++y) {
    for (int x = 0; x < picture.width; ++x) {
      const auto pixel = static_cast<size_t>(y / zoom * width + x / zoom);
      for (size_t c = 0; c < 3; ++c) {
        // Red, green and blue are brightest at 3/4, 1/2 and 1/4, as in the colour map "jet".
        const float heat = std::clamp(1.5F - std::abs(4 * heatmap[pixel] - 3 + static_cast<float>(c)), 0.0F, 1.0F);
        const float value = std::clamp(image[pixel * channels + std::min(c, channels - 1)], 0.0F, 1.0F);
        picture.pixels.push_back(static_cast<uint8_t>(std::lround(255 * (value + heat) / 2)));
      }
    }
  }
  return picture;
}

bool is_drawable(std::string_view text) {
  return std::ranges::all_of(text, [](char character) { return character >= ' ' && character <= '~'; });
}

std::string drawable_class_name(const std::vector<std::string>& class_names, int64_t label) {
  const auto name = reporting::name_of_class(class_names, label);
  return is_drawable(name) ? name : fmt::format("class {}", label);
}

std::vector<ComponentConfig> without_normalize(std::vector<ComponentConfig> transforms) {
  std::erase_if(transforms, [](const auto& transform) { return transform.name == "normalize"; });
  return transforms;
}

void stretch(std::span<float> values) {
  const auto [least, greatest] = std::ranges::minmax(values);
  const float range = greatest > least ? greatest - least : 1;
  for (float& value : values) value = (value - least) / range;
}

data::RgbImage draw_sample_grid(const config::Experiment& experiment, const data::Dataset& dataset, const data::SampleList& samples,
                                int64_t epoch) {
  const data::Pipeline pipeline(without_normalize(experiment.dataset.train_transforms), dataset.info(),
                                {torch::kFloat32, /*channels_last=*/true});
  const data::EpochSeeds seeds(engine::augmentation_seed(static_cast<uint64_t>(experiment.seed)), epoch);
  data::Scratch scratch;
  data::PictureMemory memory;
  const auto num_values = static_cast<size_t>(c10::multiply_integers(pipeline.output_shape()));
  return draw_image_grid(pipeline.output_shape(), static_cast<int64_t>(samples.size()), [&](int64_t i, float* out) {
    const auto which = samples[static_cast<size_t>(i)];
    try {
      const auto sample = dataset.read(which.index, scratch);
      pipeline.write(sample, seeds, which, memory, out);
      if (dataset.info().decoding.has_float_pixels()) stretch({out, num_values});
      return caption_of(sample.target, dataset.info());
    } catch (const std::runtime_error& error) {
      throw DataError(fmt::format("{}: {}", dataset.describe(which.index), error.what()));
    }
  });
}

data::RgbImage rgb_of(data::Picture picture) {
  const auto array = picture.pixels();
  const auto channels = static_cast<size_t>(array.channels);
  data::RgbImage rgb{.height = array.height, .width = array.width};
  rgb.pixels.reserve(3 * array.num_pixels());
  for (size_t i = 0; i < array.num_bytes(); i += channels) {
    for (size_t c = 0; c < 3; ++c) rgb.pixels.push_back(array.data[i + std::min(c, channels - 1)]);
  }
  return rgb;
}

std::string to_data_url(const data::Sample& sample, const data::ImageDecoding& decoding, int longest_edge) {
  data::PictureMemory memory;
  auto picture = sample.encoded.empty() ? data::Picture(sample.image, memory) : data::Picture(sample.encoded, memory, decoding);
  const int longest = std::max(picture.height(), picture.width());
  if (longest > longest_edge) {
    const auto scaled = [&](int edge) { return std::max(1, edge * longest_edge / longest); };
    picture.resize(scaled(picture.height()), scaled(picture.width()));
  }
  picture.make_visible();
  return to_data_url(rgb_of(picture));
}

std::string to_html(std::string_view text) { return report::escaped(printable_line(text)); }

std::string to_figure(const std::function<data::Sample(data::Scratch& scratch)>& read, const data::ImageDecoding& decoding,
                      std::string_view title, std::string_view text) {
  constexpr int kLongestEdge = 240;
  std::string image = R"(<div class="none">cannot be shown</div>)";
  try {
    data::Scratch scratch;
    image = fmt::format(R"(<img alt="" src="{}">)", to_data_url(read(scratch), decoding, kLongestEdge));
  } catch (const std::exception&) {
    // The file was readable before, and may have changed since then; the page says that the image cannot be shown.
  }
  return fmt::format("<figure>{}<b>{}</b> {}</figure>", image, to_html(title), to_html(text));
}

std::string make_image_page(std::string_view heading, std::string_view summary, std::string_view rows, std::string_view sections) {
  return fmt::format(fmt::runtime(kImagePage), fmt::arg("heading", to_html(heading)), fmt::arg("css", report::kPageCss),
                     fmt::arg("summary", to_html(summary)), fmt::arg("rows", rows), fmt::arg("sections", sections));
}

report::Pictures read_mistakes(const history::RunRecord& run, const history::Json& evaluation, bool with_heatmaps) {
  report::Pictures pictures;
  std::vector<int64_t> samples;
  std::vector<int64_t> predicted;
  for (const auto& mistake : evaluation["mistakes"]) {
    samples.push_back(mistake["index"].get<int64_t>());
    predicted.push_back(mistake["predicted"].get<int64_t>());
  }
  try {
    const auto logger = make_quiet_logger();
    const auto experiment = load_experiment(run);
    if (experiment.training.overfit_batches)
      return {.note = "With training.overfit_batches, validation uses training images, so no wrongly classified images are shown."};
    const auto opened = samples::open_samples(experiment, *logger);
    if (!opened.validation) return {.note = "This experiment has no validation set, so no images can be shown."};
    const auto& dataset = opened.validation->dataset();
    if (!dataset.info().is_image) return {.note = "The samples of this data set are not images."};
    data::Scratch scratch;
    for (const auto index : samples) {
      const bool is_there = index >= 0 && index < dataset.size();
      pictures.names.push_back(is_there ? dataset.origin(index).name : "");
      pictures.data_urls.push_back(is_there ? to_data_url(dataset.read(index, scratch), dataset.info().decoding, kLongestEdge) : "");
    }
    if (with_heatmaps) {
      const auto file = checkpoint::folder_of_run(run.folder) / checkpoint::checkpoint_name(evaluation["step"].get<int64_t>());
      if (!std::filesystem::exists(file))
        throw DataError(
            fmt::format("the checkpoint of this validation, {}, is not there any more; see checkpoint.keep_last", file.string()));
      pictures.heatmaps = draw_heatmaps(experiment, file, dataset, samples, predicted);
    }
  } catch (const std::exception& error) {
    const bool has_images = pictures.data_urls.size() == samples.size();
    pictures.note = has_images ? fmt::format("There are no heat maps: {}", error.what())
                               : fmt::format("The images are not shown, because they cannot be read here: {}", error.what());
  }
  return pictures;
}

}  // namespace trainer::commands
