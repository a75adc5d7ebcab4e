#include "train/engine/non_finite.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/file.h"
#include "checkpoint/pytorch_file.h"
#include "inference/weights_by_name.h"
#include "nn/batch_norm.h"
#include "nn/layers.h"
#include "trainer/checkpoint.h"
#include "trainer/error.h"
#include "trainer/state.h"

namespace trainer::engine {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(StepRecord, step, epoch, lr, loss_scale, rank, world_size, is_joined, num_group_samples, batches,
                                   occurrences, first_non_finite, repeats)

namespace {

// A run with this many consecutive non-finite steps is not expected to recover.
constexpr int64_t kMostInRow = 10;
// A limit for disk space: each saved step has the size of the model.
constexpr int64_t kMostSaved = 3;

// Whether the values that a rank computes depend on the batches of the other ranks.
bool depends_on_all_ranks(const Parts& parts) {
  if (parts.ranks.world->size() > 1 && parts.network.optimizer->needs_first_pass_summed()) return true;
  return std::ranges::any_of(parts.network.model->modules(), [](const auto& module) { return nn::is_joined(*module); });
}

// A record with a rank's samples in each micro-step of a step.
StepRecord samples_of(Parts& parts, int rank, const EpochPart& part, int64_t step) {
  StepRecord record{.step = step, .epoch = part.epoch, .rank = rank};
  const auto shard = parts.data.shard_for(rank, part, step);
  const int64_t num_batches = first_batch_of(parts.data.plan, part, step + 1) - first_batch_of(parts.data.plan, part, step);
  int64_t first = 0;
  for (int64_t i = 0; i < num_batches; ++i) {
    const int64_t end = first + shard.batch_sizes[static_cast<size_t>(i)];
    const auto samples = shard.samples.slice(std::exchange(first, end), end);
    record.batches.push_back(samples.indices);
    record.occurrences.push_back(samples.occurrences);
  }
  return record;
}

// The record with the samples of this rank. Collective over the ranks that share a reader, because only the reader has the sampler.
StepRecord own_samples(Parts& parts, const EpochPart& part, int64_t step) {
  const auto& reading = parts.ranks.reading;
  if (!reading) return samples_of(parts, parts.ranks.world->rank(), part, step);
  std::vector<StepRecord> all;
  if (parts.ranks.reads_data()) {
    for (const int rank : reading->ranks()) all.push_back(samples_of(parts, rank, part, step));
  }
  return nlohmann::json::parse(reading->broadcast_bytes(nlohmann::json(all).dump())).at(static_cast<size_t>(reading->rank()));
}

}  // namespace

NonFiniteSteps::NonFiniteSteps(OnNonFinite policy, Parts& parts, TrainStep& train_step, Save save)
    : policy_(policy), parts_(parts), train_step_(train_step), save_(std::move(save)) {}

bool NonFiniteSteps::checks_each_step() const { return policy_ == OnNonFinite::kSkip || parts_.network.placement.device.is_cpu(); }

std::string NonFiniteSteps::check(const EpochPart& part, int64_t step) {
  const auto bad_step = train_step_.guard().step();
  if (!bad_step) return "";
  const auto record = make_record(part, *bad_step);
  train_step_.guard().undo();
  num_in_row_ = *bad_step == last_step_ + 1 ? num_in_row_ + 1 : 1;
  last_step_ = *bad_step;
  const auto& world = *parts_.ranks.world;
  const auto text = world.rank() == 0 ? describe(record, step) : "";
  // No rank may continue or exit before the step is saved.
  world.barrier();
  if (policy_ == OnNonFinite::kStop || num_in_row_ >= kMostInRow) throw AgreedError(text);
  if (step + 1 < part.first_step + part.num_steps) parts_.data.begin(part, step + 1);
  return text;
}

std::string NonFiniteSteps::describe(const StepRecord& record, int64_t seen_at) {
  auto text = fmt::format("step {}", record.step);
  if (record.step != seen_at) text += fmt::format(" (detected at step {})", seen_at);
  text += fmt::format(" is not finite, at learning rate {:.6g}", record.lr);
  if (record.loss_scale > 0) text += fmt::format(" and loss scale {:.6g}", record.loss_scale);
  text += ": the first non-finite value is in " +
          (record.first_non_finite.empty() ? "a sum of gradients that are finite on each rank" : record.first_non_finite);
  if (record.world_size > 1 && !record.first_non_finite.empty()) text += fmt::format(" on rank {}", record.rank);
  if (!record.repeats) text += ", which was finite when the step was repeated";
  text += num_in_row_ >= kMostInRow ? fmt::format("; the step, the {}th in a row, is skipped", num_in_row_) : "; the step is skipped";
  text += save(record);
  if (policy_ == OnNonFinite::kSkip && num_in_row_ < kMostInRow) return text;
  if (!record.repeats)
    return text + "; a different result of the same computation indicates a fault of the host's memory or GPU; test them";
  return text + "; lower optimizer.lr, add lr_scheduler.warmup_steps, or set training.max_grad_norm";
}

std::string NonFiniteSteps::save(const StepRecord& record) {
  if (!save_ || num_saved_ == kMostSaved) return "";
  try {
    const auto folder = save_(record).string();
    ++num_saved_;
    return fmt::format(" and saved for `trainer replay {}`", folder);
  } catch (const std::exception& error) {
    return fmt::format(" (but could not be saved: {})", error.what());
  }
}

std::pair<StepRecord, int64_t> NonFiniteSteps::examine(const EpochPart& part, int64_t step) {
  auto record = own_samples(parts_, part, step);
  int64_t position = 0;
  parts_.data.begin(part, step);
  for (const auto& micro_step : micro_steps_of(parts_.data.plan, part, parts_.ranks.world->rank(), step)) {
    const auto& batch = parts_.data.next();
    const auto observations = observe_micro_step(parts_, train_step_, batch, micro_step);
    if (!record.first_non_finite.empty()) continue;
    const auto* first = first_non_finite(observations);
    position += first == nullptr ? static_cast<int64_t>(observations.size()) : first - observations.data();
    if (first != nullptr) record.first_non_finite = first->what;
  }
  record.repeats = !record.first_non_finite.empty() || !train_step_.guard().had_non_finite_loss();
  if (!record.repeats) record.first_non_finite = "the loss";
  return {std::move(record), position};
}

StepRecord NonFiniteSteps::make_record(const EpochPart& part, int64_t step) {
  const auto& world = *parts_.ranks.world;
  std::vector<std::pair<StepRecord, int64_t>> of_ranks;
  for (const auto& bytes : world.all_gather_bytes(nlohmann::json(examine(part, step)).dump())) {
    of_ranks.push_back(nlohmann::json::parse(bytes));
  }
  const auto order = [](const auto& found) {
    const auto& [record, position] = found;
    return std::tuple(record.first_non_finite.empty(), !record.repeats, position);
  };
  auto record = std::ranges::min_element(of_ranks, {}, order)->first;
  record.lr = lr_at(parts_, part, step);
  record.loss_scale = train_step_.guard().scale().value_or(0);
  record.world_size = world.size();
  record.is_joined = depends_on_all_ranks(parts_);
  record.num_group_samples = samples_in_step(parts_.data.plan, part, step);
  if (!record.is_joined) return record;
  for (size_t i = 0; i < record.batches.size(); ++i) {
    auto& batch = record.batches[i];
    auto& occurrences = record.occurrences[i];
    batch.clear();
    occurrences.clear();
    for (const auto& found : of_ranks) {
      batch.insert(batch.end(), found.first.batches[i].begin(), found.first.batches[i].end());
      occurrences.insert(occurrences.end(), found.first.occurrences[i].begin(), found.first.occurrences[i].end());
    }
  }
  return record;
}

namespace {

Observation observe(std::string what, const torch::Tensor& tensor) {
  const torch::NoGradGuard no_grad;
  const auto is_finite = tensor.isfinite();
  const auto sizes = at::where(is_finite, tensor.abs(), 0);
  return {.what = std::move(what),
          .shape = tensor.sizes().vec(),
          .largest = tensor.numel() == 0 ? 0 : sizes.max().item<double>(),
          .num_non_finite = tensor.numel() - is_finite.sum().item<int64_t>()};
}

void add_if_non_finite(std::vector<Observation>& observations, std::string what, const torch::Tensor& tensor) {
  auto observation = observe(std::move(what), tensor);
  if (observation.num_non_finite > 0) observations.push_back(std::move(observation));
}

void observe_pass(Parts& parts, TrainStep& train_step, const torch::Tensor& images, const torch::Tensor& targets,
                  const MicroStep& micro_step, std::vector<Observation>& observations) {
  const auto modules = parts.network.model->named_modules();
  const auto add_output = [&](const torch::nn::Module& layer, const torch::Tensor& output) {
    for (const auto& module : modules) {
      if (module.value().get() == &layer) observations.push_back(observe("the output of " + module.key(), output));
    }
  };
  task::Task::Pass pass;
  {
    const nn::LayerObserver observer(add_output);
    pass = train_step.forward(images, targets, micro_step);
  }
  observations.push_back(observe("the loss", pass.loss));
  train_step.weighted(pass, images.size(0), micro_step).backward();
  // The backward pass runs from the last layer to the first.
  const auto parameters = parts.network.model->named_parameters();
  for (size_t i = parameters.size(); i-- > 0;) {
    const auto& gradient = parameters[i].value().grad();
    if (gradient.defined()) add_if_non_finite(observations, "the gradient of " + parameters[i].key(), gradient);
  }
}

// The gradients are summed here and not during the backward pass, because the gradients of this rank alone are observed first.
void sum_gradients(const optim::Optimizer& optimizer, const distributed::ProcessGroup& world) {
  for (const auto& parameter : optimizer.parameters()) {
    auto& gradient = parameter.mutable_grad();
    gradient = gradient.defined() ? gradient.contiguous() : torch::zeros_like(parameter, torch::MemoryFormat::Contiguous);
    world.all_reduce(gradient);
  }
}

}  // namespace

std::vector<Observation> observe_micro_step(Parts& parts, TrainStep& train_step, const data::Batch& batch, const MicroStep& micro_step) {
  const auto buffers = parts.network.model->buffers();
  std::vector<torch::Tensor> saved;
  for (const auto& buffer : buffers) saved.push_back(buffer.clone());
  const auto [images, targets] = train_step.prepare(batch, micro_step);
  auto& optimizer = *parts.network.optimizer;
  optimizer.zero_grad();
  std::vector<Observation> observations;
  for (const auto& parameter : parts.network.model->named_parameters()) {
    add_if_non_finite(observations, "the parameter " + parameter.key(), parameter.value());
  }
  observations.push_back(observe("the images", images));
  run_passes(optimizer, *parts.network.model, [&, &images = images, &targets = targets](int, bool is_last) {
    observe_pass(parts, train_step, images, targets, micro_step, observations);
    if (!is_last && optimizer.needs_first_pass_summed()) sum_gradients(optimizer, *parts.ranks.world);
  });
  // With found_inf = 1, the step only restores the perturbed parameters.
  if (optimizer.needs_second_pass()) optimizer.step(0, torch::ones({}, torch::dtype(torch::kFloat32).device(images.device())));
  optimizer.zero_grad();
  const torch::NoGradGuard no_grad;
  for (size_t i = 0; i < buffers.size(); ++i) buffers[i].copy_(saved[i]);
  return observations;
}

const Observation* first_non_finite(const std::vector<Observation>& observations) {
  const auto found = std::ranges::find_if(observations, [](const Observation& observation) { return observation.num_non_finite > 0; });
  return found == observations.end() ? nullptr : &*found;
}

namespace {

std::filesystem::path json_file(const std::filesystem::path& folder) { return folder / "step.json"; }
std::filesystem::path model_file(const std::filesystem::path& folder) { return folder / "model.pt"; }

[[noreturn]] void refuse(const std::filesystem::path& file, const std::string& reason) {
  throw DataError(
      fmt::format("{}: {}; give a folder in which a run saved a step, such as runs/my_run/non_finite/step_12", file.string(), reason));
}

}  // namespace

std::filesystem::path step_config_file(const std::filesystem::path& folder) { return folder / "config.yaml"; }

std::vector<std::filesystem::path> step_files(const std::filesystem::path& folder) {
  return {step_config_file(folder), model_file(folder), json_file(folder)};
}

void write_step(const std::filesystem::path& folder, const StepRecord& record, const torch::nn::Module& model,
                const std::string& config_text) {
  std::filesystem::create_directories(folder);
  write_file_atomically(step_config_file(folder), config_text);
  const auto state = state::state_of(model);
  state::Dict tensors;
  for (const auto& item : state.items()) tensors.add(item.key, std::get<torch::Tensor>(item.value.value()).cpu());
  checkpoint::save(model_file(folder), tensors);
  write_file_atomically(json_file(folder), nlohmann::json(record).dump() + '\n');
}

StepRecord read_step(const std::filesystem::path& folder) {
  const auto file = json_file(folder);
  if (!std::filesystem::exists(file)) refuse(file, "there is no such file");
  try {
    return nlohmann::json::parse(read_file(file));
  } catch (const nlohmann::json::exception& error) {
    refuse(file, fmt::format("not a record of a step ({})", error.what()));
  }
}

void read_model(const std::filesystem::path& folder, torch::nn::Module& model) {
  const auto file = model_file(folder);
  if (!std::filesystem::exists(file)) refuse(file, "there is no such file");
  try {
    inference::load_weights(checkpoint::load(file), file.string(), model);
  } catch (const std::exception& error) {
    refuse(file, fmt::format("not a state of this model ({})", std::string(error.what()).substr(0, 200)));
  }
}

}  // namespace trainer::engine
