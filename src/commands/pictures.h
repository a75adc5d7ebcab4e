#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/experiment.h"
#include "data/dataset.h"
#include "data/image_file.h"
#include "report/report_data.h"
#include "trainer/keys.h"
#include "trainer/transform.h"

namespace trainer::commands {

// One picture of `count` images of that shape, [channels, height, width], with their captions, in rows and columns. Small images are
// enlarged. `read` writes image number i, [height][width][channels] with values from 0 to 1, and returns its caption in ASCII.
data::RgbImage draw_image_grid(const std::vector<int64_t>& shape, int64_t count,
                               const std::function<std::string(int64_t i, float* out)>& read);

// The image, [height][width][channels] with values from 0 to 1, under its heat map, [height][width] with values from 0 (blue) to 1 (red).
// A small image is enlarged.
data::RgbImage draw_heatmap(const std::vector<int64_t>& shape, std::span<const float> image, std::span<const float> heatmap);

// Scales values that are not colours so that the smallest becomes 0 and the largest 1, because many cameras use only a few of their 16
// bits.
void stretch(std::span<float> values);

// Whether a picture can show the text: whether it is printable ASCII.
bool is_drawable(std::string_view text);

// The name of a class for captions, or the number of the class if its name cannot be drawn.
std::string drawable_class_name(const std::vector<std::string>& class_names, int64_t label);

// The transforms without `normalize`, because normalised values are not colours.
std::vector<ComponentConfig> without_normalize(std::vector<ComponentConfig> transforms);

// Training images of an epoch, transformed and with their classes, in rows and columns; without `normalize`, because normalised values are
// not colours. Small images are enlarged. Throws DataError naming a sample that cannot be read.
data::RgbImage draw_sample_grid(const config::Experiment& experiment, const data::Dataset& dataset, const data::SampleList& samples,
                                int64_t epoch);

// The pixels of an 8-bit image; grey values become all three colours. Throws like decode_image().
data::RgbImage rgb_of(data::Picture picture);

// A JPEG picture of a sample as it is stored, made smaller if an edge is longer than `longest_edge`: "data:image/jpeg;base64,…". Throws
// like decode_image().
std::string to_data_url(const data::Sample& sample, const data::ImageDecoding& decoding, int longest_edge);

// HTML pages that show images.

// The text without control characters, escaped.
std::string to_html(std::string_view text);
// The sample that `read` returns, made small, with a caption; a sample that cannot be read is not shown.
std::string to_figure(const std::function<data::Sample(data::Scratch& scratch)>& read, const data::ImageDecoding& decoding,
                      std::string_view title, std::string_view text);
// `rows`: of a table with the columns "what", "number" and one without a name. `rows` and `sections` are HTML.
std::string make_image_page(std::string_view heading, std::string_view summary, std::string_view rows, std::string_view sections);

// Throws UsageError if `output`, the value of `option`, is the file of a sample, because it would be overwritten.
void refuse_picture_over(const data::Dataset& dataset, const std::filesystem::path& output, std::string_view option = "--output");

// A report::PictureReader: small JPEG pictures of validation samples as they are stored, without transforms. The data set comes from the
// run's configuration; nothing is downloaded. `with_heatmaps`: also heat maps of the predicted classes, if the checkpoint of the evaluation
// still exists. The result's note gives the reason if there are no pictures or heat maps.
report::Pictures read_mistakes(const history::RunRecord& run, const history::Json& evaluation, bool with_heatmaps);

}  // namespace trainer::commands
