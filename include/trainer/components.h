#pragma once
// Options of components, as plain structs with the names, defaults and ranges of their keys in an experiment file, which
// `trainer config reference` describes. RegistryBase::configure() checks the values:
//   optim::lr_scheduler_registry().configure(optim::CosineOptions{.final_factor = 0.01})
// Other components are made by name, RegistryBase::configure("l1"), or from text (read_component() in trainer/trainer.h).

#include <cstdint>
#include <optional>
#include <vector>

#include "trainer/keys.h"
#include "trainer/transform.h"

namespace trainer::optim {

struct SgdOptions {
  static constexpr const char* kName = "sgd";
  double lr = 0.1;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;

  void describe(KeyTable& keys);
};

struct AdamOptions {
  static constexpr const char* kName = "adam";
  double lr = 0.001;
  std::vector<double> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;  // added to the gradient

  void describe(KeyTable& keys);
};

struct AdamWOptions {
  static constexpr const char* kName = "adamw";
  double lr = 0.001;
  std::vector<double> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0.01;  // lr times this fraction of the parameter is subtracted

  void describe(KeyTable& keys);
};

struct StepOptions {
  static constexpr const char* kName = "step";
  int64_t step_epochs = 1;
  double gamma = 0.1;

  void describe(KeyTable& keys);
};

struct MultistepOptions {
  static constexpr const char* kName = "multistep";
  std::vector<double> milestones;  // epochs
  double gamma = 0.1;

  void describe(KeyTable& keys);
};

struct CosineOptions {
  static constexpr const char* kName = "cosine";
  double final_factor = 0;

  void describe(KeyTable& keys);
};

struct OneCycleOptions {
  static constexpr const char* kName = "onecycle";
  double pct_start = 0.3;
  double div_factor = 25;
  double final_div_factor = 1e4;

  void describe(KeyTable& keys);
};

}  // namespace trainer::optim

namespace trainer::nn {

struct CrossEntropyOptions {
  static constexpr const char* kName = "cross_entropy";
  double label_smoothing = 0;
  Auto<std::vector<double>> class_weights = {std::vector<double>()};  // empty: equal weights

  void describe(KeyTable& keys);
};

struct BinaryCrossEntropyOptions {
  static constexpr const char* kName = "bce";
  double label_smoothing = 0;
  Auto<std::vector<double>> pos_weight = {std::vector<double>()};  // empty: 1

  void describe(KeyTable& keys);
};

}  // namespace trainer::nn

namespace trainer::data {

// One number, or a height and a width.
struct Size {
  Size() = default;                     // not given
  Size(int64_t edge) : values{edge} {}  // NOLINT(google-explicit-constructor)
  Size(int64_t height, int64_t width) : values{height, width} {}

  bool is_given() const { return !values.empty(); }
  bool is_one_number() const { return values.size() == 1; }
  int height() const { return static_cast<int>(values.front()); }
  int width() const { return static_cast<int>(values.back()); }

  std::vector<int64_t> values;
};

struct RandomCropOptions {
  static constexpr const char* kName = "random_crop";
  Size size;
  int64_t padding = 0;
  Padding padding_mode = Padding::kZero;
};

struct RandomResizedCropOptions {
  static constexpr const char* kName = "random_resized_crop";
  Size size;
  std::vector<double> scale = {0.08, 1.0};
  std::vector<double> ratio = {3.0 / 4, 4.0 / 3};
  Interpolation interpolation = Interpolation::kBilinear;
};

struct RandomHorizontalFlipOptions {
  static constexpr const char* kName = "random_horizontal_flip";
  double p = 0.5;
  bool alternate = false;
};

struct RandomVerticalFlipOptions {
  static constexpr const char* kName = "random_vertical_flip";
  double p = 0.5;
};

struct ResizeOptions {
  static constexpr const char* kName = "resize";
  Size size;                            // one number: of the shorter edge
  std::optional<int64_t> longest = {};  // instead of size
  Interpolation interpolation = Interpolation::kBilinear;
};

struct CenterCropOptions {
  static constexpr const char* kName = "center_crop";
  Size size;
};

}  // namespace trainer::data
