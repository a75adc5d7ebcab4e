#include "run/inspection/inspect.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <unordered_map>

#include "base/log.h"
#include "base/text.h"
#include "base/url.h"
#include "data/pipeline.h"
#include "distributed/first_line.h"
#include "distributed/secret.h"
#include "inference/weights_by_name.h"
#include "launch/world/host_resources.h"
#include "nn/layers.h"
#include "run/rank/cached_features.h"
#include "run/recipe/advice.h"
#include "run/recipe/build.h"
#include "run/recipe/check.h"
#include "run/recipe/registries.h"
#include "run/samples/open_samples.h"
#include "run/weights.h"
#include "train/optim/lr_scheduler.h"
#include "trainer/error.h"

namespace trainer::inspection {
namespace {

// Stands for an unknown number of samples when only the batch sizes of a plan are needed; more than any batch has.
constexpr int64_t kManySamples = int64_t{1} << 40;
constexpr int64_t kMostLrPoints = 400;

// A data set that is not opened, because its numbers of samples are known without files (data::DatasetFactory::sizes).
class DescribedDataset : public data::Dataset {
 public:
  DescribedDataset(data::DatasetInfo info, int64_t size) : info_(std::move(info)), size_(size) {}
  const data::DatasetInfo& info() const override { return info_; }
  int64_t size() const override { return size_; }
  data::Sample read(int64_t /*index*/, data::Scratch& /*scratch*/) const override {
    throw DataError("the files of the data set do not exist");
  }
  // All classes are assumed to have the same size.
  data::Target target(int64_t index, data::Scratch& scratch) const override {
    return info_.has_labels() ? data::Target{.label = index % info_.num_classes} : data::Dataset::target(index, scratch);
  }

 private:
  data::DatasetInfo info_;
  int64_t size_;
};

struct Sizes {
  int64_t samples_per_epoch = 0;  // that the sampler draws
  int64_t num_train = 0;
  int64_t num_validation = 0;
  int64_t resident_bytes = 0;  // of samples that stay in memory

  int64_t num_samples() const { return num_train + num_validation; }
};

// Runs the checks that need only sections of the experiment that could be read.
class Inspector {
 public:
  Inspector(Inspection& result, int world_size) : result_(result), world_size_(world_size), logger_(make_quiet_logger()) {}

  config::Experiment complete(config::Experiment experiment, const config::Findings& findings) {
    if (findings.are_consistent({"dataset", "model"})) assume_classes(experiment);
    return recipe::complete(experiment, findings);
  }

  void check(const config::Experiment& experiment, config::Findings& findings) {
    recipe::check_components(experiment, findings);
    const bool has_model = findings.are_consistent({"model"});
    if (findings.are_consistent({"dataset", "dataloader", "training"}) && findings.are_readable({"model", "seed"})) {
      check_batches(experiment, has_model, findings.are_consistent({"optimizer", "lr_scheduler"}));
    }
    const bool has_network = has_model && findings.are_consistent({"dataset", "task", "loss", "optimizer", "training", "runtime", "amp",
                                                                   "distributed", "dataloader", "validation", "seed"});
    if (has_network) check_network(experiment);
    if (has_model && !experiment.model.weights.empty()) find_weights(experiment.model);
    if (findings.are_consistent({"distributed"})) check_secret(experiment);
  }

  // To be called after check() if it has found no problems.
  void measure(const config::Experiment& experiment, const std::function<void()>& before_measuring) {
    if (!network_ || result_.batch_size == 0) return;
    if (before_measuring) before_measuring();
    run_network(experiment, [&] { measure_steps(experiment); });
  }

 private:
  // Runs `work` and reports its error, which training would report too, as a problem.
  template <class Work>
  void attempt(const Work& work) {
    try {
      work();
    } catch (const Error& error) {
      result_.problems.emplace_back(error.what());
    }
  }

  // Assumes a number of classes if that of the data set is unknown.
  void assume_classes(config::Experiment& experiment) {
    const auto dataset = samples::dataset_of(experiment);
    auto& options = experiment.model.component.options;
    options = options->clone();
    auto& model = dynamic_cast<models::ModelOptions&>(*options);
    if (dataset.missing.empty() || !model.takes_num_outputs()) return;
    model.set_num_outputs(model.num_outputs());
    result_.notes.push_back(
        fmt::format("{} classes are assumed, because their number is unknown: {}", model.num_outputs(), dataset.missing));
  }

  // Adds a note if training would have to download the weights.
  void find_weights(const config::ModelSection& section) {
    if (run::is_folder(section.weights)) return;
    const auto source = run::weights_source(section.component.name, section.weights, section.weights_mirror);
    const auto folder = run::weights_folder();
    if (std::filesystem::exists(folder / source.file)) return;
    const auto problem = run::missing_secret(source);
    result_.notes.push_back(fmt::format("model.weights: {}", !problem.empty()
                                                                 ? problem
                                                                 : fmt::format("{} is not in {}; training downloads it from {}",
                                                                               source.file, folder.string(), without_secrets(source.url))));
  }

  // Returns no sizes, and adds a note, if the files that determine them are missing, or if they cannot be used and the model is not valid.
  std::optional<Sizes> find_sizes(const config::Experiment& experiment, bool has_model) {
    const auto dataset = samples::dataset_of(experiment);
    try {
      return read_sizes(experiment, dataset, has_model);
    } catch (const DataError& error) {
      // Files that exist but cannot be used are a problem. Without a valid model, however, the error may only say that the model's outputs
      // do not fit the classes.
      const bool is_there = !dataset.sizes && dataset.missing.empty();
      if (is_there && has_model) throw;
      result_.notes.push_back(fmt::format("steps and learning rates are unknown: {}", error.what()));
      return std::nullopt;
    }
  }

  Sizes read_sizes(config::Experiment experiment, data::DatasetFactory dataset, bool has_model) const {
    if (dataset.sizes) {
      // Without files there are no paths in which a group could be found.
      if (experiment.dataset.split) experiment.dataset.split->group.clear();
      auto info = dataset.info;
      // With 0, open_samples() does not compare the number of classes with the network's outputs.
      if (!has_model || info.num_classes == data::kUnknownClasses) info.num_classes = 0;
      dataset.open = [info, sizes = *dataset.sizes](data::Split split, Logger&) {
        return std::make_unique<DescribedDataset>(info, split == data::Split::kTrain ? sizes.train : sizes.validation);
      };
    }
    const auto [train, validation] =
        samples::open_samples(experiment, dataset, *logger_, recipe::num_overfit_samples(experiment, world_size_));
    Sizes sizes{.samples_per_epoch = recipe::make_sampler(recipe::recipe_of(experiment, *logger_), train).num_samples,
                .num_train = train.size(),
                .num_validation = validation ? validation->size() : 0};
    if (dataset.is_in_memory) {
      sizes.resident_bytes = train.files().size();
      if (validation && &validation->files() != &train.files()) sizes.resident_bytes += validation->files().size();
      for (const int64_t length : dataset.info.shape) sizes.resident_bytes *= length;
    }
    return sizes;
  }

  void check_batches(const config::Experiment& experiment, bool has_model, bool has_schedule) {
    attempt([&] { sizes_ = find_sizes(experiment, has_model); });
    attempt([&] {
      const auto plan = recipe::make_plan(experiment, sizes_ ? sizes_->samples_per_epoch : kManySamples, world_size_);
      result_.batch_size = plan.batch_size;
      result_.global_batch_size = plan.global_batch_size;
      if (!sizes_) return;
      result_.plan = plan;
      const auto epoch = engine::rest_of_epoch(plan, 0);
      const int64_t num_taken = epoch.num_steps > 0 ? engine::end_sample_of(plan, epoch, epoch.first_step + epoch.num_steps - 1) : 0;
      result_.num_repeated = std::max<int64_t>(num_taken - plan.samples_per_epoch, 0);
      result_.num_skipped = std::max<int64_t>(plan.samples_per_epoch - num_taken, 0);
      if (has_schedule) sample_lr(experiment, plan);
    });
  }

  void sample_lr(const config::Experiment& experiment, const engine::Plan& plan) {
    const auto schedule = recipe::make_lr_schedule(recipe::recipe_of(experiment, *logger_), plan);
    const double base_lr = optim::optimizer_registry().make(experiment.optimizer.component, {})->base_lr();
    const int64_t last = plan.total_steps - 1;
    const int64_t count = std::min(plan.total_steps, kMostLrPoints);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t step =
          count > 1 ? static_cast<int64_t>(static_cast<double>(last) * static_cast<double>(i) / static_cast<double>(count - 1)) : 0;
      result_.lr_curve.push_back({.step = step, .lr = base_lr * schedule(step)});
    }
  }

  // Chooses the CPU, but with the precision that training uses on its device.
  device::Placement choose_placement(const config::Experiment& experiment) {
    device::configure_cpu_allocator();
    auto options = recipe::placement_options(experiment);
    const bool on_gpu = options.device == device::DeviceChoice::kCuda;
    result_.memory_is_of_gpu = on_gpu;
    // The training may run on another machine, which has a GPU.
    if (options.device != device::DeviceChoice::kCpu) options.cuda_graph = device::CudaGraphChoice::kOff;
    options.device = device::DeviceChoice::kCpu;
    if (on_gpu) {
      options.fuse = device::FuseChoice::kOff;
      options.convolution = device::ConvolutionChoice::kDirect;
      if (!options.autocast) options.autocast = options.dtype == device::FloatType::kFloat32;
    }
    const auto placement =
        device::choose_placement(options, {.num_threads = world::default_compute_threads().count, .local_rank = 0}, /*cuda=*/{});
    device::apply_placement(placement, options);
    return placement;
  }

  void check_network(const config::Experiment& experiment) {
    info_ = samples::dataset_of(experiment).info;
    const auto& model = dynamic_cast<const models::ModelOptions&>(*experiment.model.component.options);
    if (info_.num_outputs() == data::kUnknownClasses) info_.set_num_outputs(model.num_outputs());
    recipe::assume_channels(experiment, &model, info_);
    if (!info_.decoding.num_channels()) {
      result_.notes.push_back(
          fmt::format("{} are assumed, because no image can be read to determine their number", counted(info_.shape.front(), "channel")));
    }
    result_.sample_shape = data::Pipeline(experiment.dataset.train_transforms, info_, {}).output_shape();
    run_network(experiment, [&] {
      network_ = recipe::build_network(experiment, choose_placement(experiment));
      if (!experiment.model.init_from.empty())
        attempt([&] { inference::init_model(experiment.model.init_from, experiment.model.init_strict, *network_->model); });
      if (experiment.training.cache_features) feature_shape_ = rank::shape_of_features(*network_, result_.sample_shape, experiment);
      result_.layers = layers_for(result_.sample_shape);
      if (result_.plan)
        recipe::check_batch_norm_counts(recipe::recipe_of(experiment, *logger_), *network_, *result_.plan, result_.sample_shape);
    });
  }

  // Reports the errors of `work`, which runs the network on samples of result_.sample_shape, as problems.
  template <class Work>
  void run_network(const config::Experiment& experiment, const Work& work) {
    attempt([&] {
      try {
        work();
      } catch (const Error&) {
        throw;
      } catch (const std::exception& error) {
        throw UsageError(fmt::format("{}: {} cannot process samples of shape {}: {}; give it larger images, or choose another network",
                                     experiment.place_of("model.name"), experiment.model.component.name,
                                     fmt::join(result_.sample_shape, "x"), distributed::first_line(error)));
      }
    });
  }

  LayerTable layers_for(std::vector<int64_t> shape) {
    shape.insert(shape.begin(), 1);
    return make_layer_table(*network_->model, torch::zeros(shape, network_->placement.dtype));
  }

  void measure_steps(const config::Experiment& experiment) {
    auto& network = *network_;
    const bool on_gpu = result_.memory_is_of_gpu;
    MemorySetup setup{.experiment = experiment,
                      .info = info_,
                      .train_shape = result_.sample_shape,
                      .validation_shape = data::Pipeline(experiment.dataset.validation_transforms, info_, {}).output_shape(),
                      .flops = result_.layers->flops,
                      .batch_size = sizes_ ? std::min(result_.batch_size, sizes_->samples_per_epoch) : result_.batch_size,
                      .num_joined = experiment.distributed.sync_batch_norm ? result_.batch_size * world_size_ : result_.batch_size,
                      .world_size = world_size_,
                      .on_gpu = on_gpu};
    const bool has_features = feature_shape_.has_value();
    setup.validation_batch_size = experiment.validation.is_off() && !has_features ? 0 : experiment.validation.batch_size;
    if (sizes_)
      setup.validation_batch_size = std::min(setup.validation_batch_size, has_features ? sizes_->num_samples() : sizes_->num_validation);
    ValidationCost validation;
    if (has_features) {
      validation = measure_validation(network, setup, task::TestTimeAugmentation::kNone);
      dynamic_cast<models::BackboneModel&>(*network.model).take_features();
      setup.train_shape = *feature_shape_;
      setup.flops = layers_for(setup.train_shape).flops;
    }
    // Epochs in which all parameters are trained need the most memory.
    const auto& frozen = network.frozen_at_first;
    frozen.end_in(frozen.num_epochs);
    const auto step = measure_step(network, setup);
    if (!has_features) validation = measure_validation(network, setup, experiment.validation.tta);
    result_.memory = estimate_memory(network, setup, step, validation, sizes_ ? sizes_->resident_bytes : 0);
    if (on_gpu) return;
    // The time is that of the batches of all ranks, because the ranks share the cores of this host.
    result_.step_time = step.time;
    result_.step_seconds = result_.step_time->seconds(result_.global_batch_size);
    if (!frozen.parameters.empty()) {
      for (const auto& parameter : frozen.parameters) parameter.requires_grad_(false);
      network.optimizer->zero_grad();
      result_.frozen_step_seconds = measure_step(network, setup).time.seconds(result_.global_batch_size);
    }
    if (!result_.plan) return;
    if (has_features) result_.features_seconds = static_cast<double>(sizes_->num_samples()) * validation.seconds_per_sample;
    const auto& plan = *result_.plan;
    const auto num_frozen = frozen.parameters.empty() ? 0 : frozen.num_epochs;
    double seconds = result_.features_seconds.value_or(0);
    int64_t steps_left = plan.total_steps;
    for (int64_t epoch = 0; steps_left > 0 && (epoch < num_frozen || plan.image_size_in(epoch) > 0); ++epoch) {
      const auto num_steps = std::min(plan.steps_per_epoch, steps_left);
      steps_left -= num_steps;
      seconds += static_cast<double>(num_steps) * cost_of_size(plan.image_size_in(epoch)) *
                 (epoch < num_frozen ? *result_.frozen_step_seconds : *result_.step_seconds);
    }
    result_.training_seconds = seconds + static_cast<double>(steps_left) * *result_.step_seconds;
  }

  // The time of a step with images of this size (engine::Plan::image_size_in()), as a fraction of that with whole images.
  double cost_of_size(int64_t size) const {
    if (size == 0) return 1;
    const auto area = [](const std::vector<int64_t>& shape) { return static_cast<double>(shape[1] * shape[2]); };
    return area(engine::scaled_shape(result_.sample_shape, size)) / area(result_.sample_shape);
  }

  void check_secret(const config::Experiment& experiment) {
    const auto& file = experiment.distributed.secret_file;
    if (world_size_ > 1 && !file.empty()) attempt([&] { distributed::read_secret_file(file, *logger_); });
  }

  Inspection& result_;
  int world_size_;
  std::shared_ptr<Logger> logger_;
  std::optional<Sizes> sizes_;
  data::DatasetInfo info_;
  std::optional<engine::Network> network_;
  std::optional<std::vector<int64_t>> feature_shape_;  // with training.cache_features
};

}  // namespace

Inspection inspect(const config::ExperimentSource& source, int world_size, const std::function<void()>& before_measuring) {
  Inspection result;
  Inspector inspector(result, world_size);
  auto registries = recipe::all_registries();
  registries.complete = [&](const auto& experiment, const auto& findings) { return inspector.complete(experiment, findings); };
  registries.check = [&](const auto& experiment, auto& findings) { inspector.check(experiment, findings); };
  try {
    auto experiment = config::load(source.file, source.overrides, registries);
    result.warnings.insert(result.warnings.begin(), experiment.warnings.begin(), experiment.warnings.end());
    if (result.problems.empty()) inspector.measure(experiment, before_measuring);
    result.experiment = std::move(experiment);
  } catch (const UsageError& error) {
    result.problems.insert(result.problems.begin(), error.what());
  }
  return result;
}

namespace {

std::string kind_of(const torch::nn::Module& layer) {
  const auto& name = layer.name();
  const auto scope = name.rfind("::");
  return scope == std::string::npos ? name : name.substr(scope + 2);
}

bool is_frozen(const torch::nn::Module& layer) {
  const auto parameters = layer.parameters(/*recurse=*/false);
  return !parameters.empty() && std::ranges::none_of(parameters, [](const torch::Tensor& parameter) { return parameter.requires_grad(); });
}

// `output`: of one sample. A weight of two or more dimensions belongs to a convolution or linear layer; each value of `output` is a sum
// with one product for each weight of its output channel.
int64_t flops_of(const torch::nn::Module& layer, const torch::Tensor& output) {
  // The projections to queries, keys and values, then the products of queries and keys, and of attention weights and values.
  if (const auto* attention = layer.as<nn::SelfAttention>()) {
    const int64_t projected = attention->qkv ? 0 : 3 * output.size(2);  // with `qkv`, that layer counts them
    return 2 * output.numel() * (projected + 2 * output.size(1));
  }
  const auto parameters = layer.named_parameters(/*recurse=*/false);
  const auto buffers = layer.named_buffers(/*recurse=*/false);
  const auto* weight = parameters.contains("weight") ? &parameters["weight"] : buffers.contains("weight") ? &buffers["weight"] : nullptr;
  if (weight == nullptr || weight->dim() < 2) return 0;
  return 2 * output.numel() * (weight->numel() / weight->size(0));
}

}  // namespace

LayerTable make_layer_table(models::Model& model, const torch::Tensor& sample) {
  std::map<const torch::nn::Module*, std::string> names;
  for (const auto& module : model.named_modules("", /*include_self=*/false)) names[module.value().get()] = module.key();
  LayerTable table;
  std::set<const torch::nn::Module*> seen;
  const nn::LayerObserver observer([&](const torch::nn::Module& layer, const torch::Tensor& output) {
    LayerRow row{.name = names[&layer],
                 .kind = kind_of(layer),
                 .output_shape = output.sizes().slice(1).vec(),
                 .num_parameters = 0,
                 .is_frozen = is_frozen(layer),
                 .flops = flops_of(layer, output)};
    if (seen.insert(&layer).second) {
      for (const auto& parameter : layer.parameters(/*recurse=*/false)) row.num_parameters += parameter.numel();
    }
    table.flops += row.flops;
    table.rows.push_back(std::move(row));
  });
  const torch::NoGradGuard no_grad;
  model.eval();
  model.forward(sample);
  model.train();
  for (const auto& parameter : model.parameters()) {
    table.num_parameters += parameter.numel();
    if (parameter.requires_grad()) table.num_trained += parameter.numel();
  }
  return table;
}

namespace {

constexpr size_t kLongestName = 60;

// Driver calls are recorded by another part of the profiler, which numbers threads differently.
void move_to_threads_of_callers(std::vector<ProfiledEvent>& events) {
  std::unordered_map<uint64_t, uint64_t> thread_of;
  for (const auto& event : events) {
    if (!event.is_on_gpu && event.caller == 0) thread_of[event.id] = event.thread;
  }
  for (auto& event : events) {
    if (event.is_on_gpu || event.caller == 0) continue;
    const auto found = thread_of.find(event.caller);
    if (found != thread_of.end()) event.thread = found->second;
  }
}

// Sorts outer operations before those within them.
bool starts_before(const ProfiledEvent& a, const ProfiledEvent& b) {
  if (a.thread != b.thread) return a.thread < b.thread;
  return a.start_ns != b.start_ns ? a.start_ns < b.start_ns : a.end_ns > b.end_ns;
}

// The self time of each event on the CPU. `events` are in the order of starts_before().
std::vector<int64_t> times_without_inner(const std::vector<ProfiledEvent>& events) {
  std::vector<int64_t> times(events.size(), 0);
  std::vector<size_t> open;  // the operations around the current one, outermost first
  for (size_t i = 0; i < events.size(); ++i) {
    const auto& event = events[i];
    if (event.is_on_gpu) continue;
    while (!open.empty() && (events[open.back()].thread != event.thread || events[open.back()].end_ns <= event.start_ns)) open.pop_back();
    const int64_t duration = event.end_ns - event.start_ns;
    times[i] += duration;
    if (!open.empty()) times[open.back()] -= duration;
    open.push_back(i);
  }
  return times;
}

}  // namespace

std::vector<OperationCost> sum_costs(std::vector<ProfiledEvent> events) {
  move_to_threads_of_callers(events);
  std::ranges::stable_sort(events, starts_before);
  const auto times = times_without_inner(events);
  std::unordered_map<uint64_t, int64_t> gpu_time_of;
  for (const auto& event : events) {
    if (event.is_on_gpu && event.caller != 0) gpu_time_of[event.caller] += event.end_ns - event.start_ns;
  }
  std::map<std::string, OperationCost> by_name;
  for (size_t i = 0; i < events.size(); ++i) {
    const auto& event = events[i];
    if (event.is_on_gpu) continue;
    auto& cost = by_name[event.name.starts_with(kStepPrefix) ? kOutside : event.name];
    ++cost.num_calls;
    cost.cpu_ns += times[i];
    const auto gpu_time = gpu_time_of.find(event.id);
    if (event.caller == 0 && gpu_time != gpu_time_of.end()) cost.gpu_ns += gpu_time->second;
  }
  std::vector<OperationCost> costs;
  for (auto& [name, cost] : by_name) {
    cost.name = name;
    costs.push_back(std::move(cost));
  }
  std::ranges::stable_sort(costs, std::greater(), &OperationCost::cpu_ns);
  return costs;
}

std::vector<std::string> to_lines(const std::vector<OperationCost>& costs, size_t count) {
  const size_t num_lines = std::min(count, costs.size());
  int64_t cpu_total = 0;
  int64_t gpu_total = 0;
  for (const auto& cost : costs) {
    cpu_total += cost.cpu_ns;
    gpu_total += cost.gpu_ns;
  }
  size_t width = 9;
  for (size_t i = 0; i < num_lines; ++i) width = std::max(width, std::min(costs[i].name.size(), kLongestName));
  const auto with_gpu = [&](const std::string& time, const std::string& share) {
    return gpu_total == 0 ? "" : fmt::format("  {:>12}  {:>7}", time, share);
  };
  std::vector<std::string> lines = {
      fmt::format("{:<{}}  {:>7}  {:>12}  {:>7}{}", "operation", width, "calls", "self CPU", "share", with_gpu("self GPU", "share"))};
  const auto milliseconds = [](int64_t ns) { return fmt::format("{:.2f} ms", static_cast<double>(ns) / 1e6); };
  const auto percent = [](int64_t part, int64_t whole) {
    return fmt::format("{:.1f} %", 100 * static_cast<double>(part) / static_cast<double>(std::max<int64_t>(whole, 1)));
  };
  for (size_t i = 0; i < num_lines; ++i) {
    const auto& cost = costs[i];
    lines.push_back(fmt::format("{:<{}}  {:>7}  {:>12}  {:>7}{}", cost.name.substr(0, kLongestName), width, cost.num_calls,
                                milliseconds(cost.cpu_ns), percent(cost.cpu_ns, cpu_total),
                                with_gpu(milliseconds(cost.gpu_ns), percent(cost.gpu_ns, gpu_total))));
  }
  return lines;
}

}  // namespace trainer::inspection
