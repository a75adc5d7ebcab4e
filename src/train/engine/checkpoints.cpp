#include "train/engine/checkpoints.h"

#include <fmt/format.h>

#include <limits>

#include "inference/description.h"
#include "trainer/error.h"
#include "trainer/state.h"

namespace trainer::engine {
namespace {

// The state_dict of a scheduler of torch.optim.lr_scheduler after `last_epoch` calls of its step(): one call for each update, or for each
// validation (ReduceLROnPlateau). Learning rates are multiplied by the factors of the optimizer's groups.
state::Dict scheduler_state(int64_t last_epoch, double lr, double initial_lr, const optim::Optimizer& optimizer) {
  state::List last, initial;
  for (size_t group = 0; group < optimizer.num_groups(); ++group) {
    last.emplace_back(lr * optimizer.lr_factor(group));
    initial.emplace_back(initial_lr * optimizer.lr_factor(group));
  }
  state::Dict state;
  state.add("last_epoch", last_epoch);
  state.add("_step_count", last_epoch + 1);
  state.add("_last_lr", std::move(last));
  state.add("base_lrs", std::move(initial));
  return state;
}

std::vector<std::string> names_of(const std::vector<std::filesystem::path>& files) {
  std::vector<std::string> names;
  for (const auto& file : files) names.push_back(file.filename().string());
  return names;
}

}  // namespace

Checkpoints::Checkpoints(Parts& parts, RunState& run, task::TrainMeter& meter, reporting::Sink& reporter, Target target)
    : parts_(parts), run_(run), meter_(meter), reporter_(reporter), target_(std::move(target)) {}

state::Dict Checkpoints::make_tree(const torch::Tensor& sums) const {
  // The learning rates are those of the next step, as in a torch scheduler that was stepped after each update.
  const auto& progress = run_.progress;
  const auto rest = rest_of_epoch(parts_.data.plan, progress.epoch, progress.step, progress.samples_in_epoch);
  const double lr = lr_at(parts_, rest, progress.step);
  state::Dict group_options;
  for (const auto& [key, factor] : parts_.lr_schedule.group_factors) group_options.add(key, factor * parts_.network.optimizer->base_lr());
  const double initial_lr = std::get<double>(group_options.find("initial_lr")->value());
  state::Dict tree;
  tree.add("format_version", inference::kFormatVersion);
  tree.add("model", state::state_of(*parts_.network.model));
  tree.add("ema", parts_.ema ? parts_.ema->state() : state::Tree());
  tree.add("optimizer", parts_.network.optimizer->state(lr, group_options));
  tree.add("grad_scaler", parts_.network.grad_scaler ? parts_.network.grad_scaler->state() : state::Tree());
  const auto& plateau = parts_.lr_schedule.plateau;
  const int64_t last_epoch = plateau ? plateau->num_observed() : schedule_step_of(parts_.data.plan, rest, progress.step);
  auto scheduler = scheduler_state(last_epoch, lr, initial_lr, *parts_.network.optimizer);
  if (plateau) plateau->add_state(scheduler);
  tree.add("lr_scheduler", std::move(scheduler));
  write_run_state(run_, sums, tree);
  tree.add("world_size", parts_.data.plan.world_size);
  tree.add("global_batch_size", parts_.data.plan.global_batch_size);
  tree.add("num_train", parts_.data.train.samples.size());
  const auto& info = parts_.data.train.samples.info();
  if (!info.class_names.empty()) tree.add("class_names", state::List(info.class_names.begin(), info.class_names.end()));
  if (!info.target_names.empty()) tree.add("target_names", state::List(info.target_names.begin(), info.target_names.end()));
  if (const auto& summary = parts_.network.task->target_summary()) tree.add("target_summary", inference::tree_of(*summary));
  const auto& stored = parts_.data.train.samples.stored_info();
  tree.add("sample_shape", state::List(stored.shape.begin(), stored.shape.end()));
  if (stored.is_image) tree.add("image_files", inference::tree_of(stored.decoding));
  target_.complete(tree);
  return tree;
}

void Checkpoints::load(const state::View& view) {
  // Unlike weights, a checkpoint has one.
  view.at("format_version");
  inference::check_format_version(view);
  const auto num_train = view.at("num_train");
  const int64_t size = parts_.data.train.samples.size();
  if (num_train.integer() != size) {
    num_train.fail(
        fmt::format("the run was trained on {} samples, but the data set has {}; use the same data set", num_train.integer(), size));
  }
  // With `mode: auto` a data set takes the mode from its first readable image, which may have changed.
  const auto files = view.find("image_files");
  if (files && inference::read_decoding(view) != parts_.data.train.samples.stored_info().decoding) {
    files->fail("differs from the mode or orientation in which the data set's images are read now; use the same data set");
  }
  if (parts_.network.task->needs_target_summary()) parts_.network.task->set_target_summary(inference::read_target_summary(view));
  state::load_state_of(*parts_.network.model, view.at("model"));
  const auto ema = view.at("ema");
  if (parts_.ema && !ema.is_none()) parts_.ema->load_state(ema);
  parts_.network.optimizer->load_state(view.at("optimizer"));
  const auto scaler = view.at("grad_scaler");
  if (parts_.network.grad_scaler && !scaler.is_none()) parts_.network.grad_scaler->load_state(scaler);
  if (auto& plateau = parts_.lr_schedule.plateau) plateau->load_state(view.at("lr_scheduler"));
  run_ = read_run_state(view);

  // The sums have one row for each rank. If the number of ranks has changed, rank 0 gets the sum of the rows.
  const auto& world = *parts_.ranks.world;
  auto sums = view.at("meters").at("sums").tensor();
  if (sums.dim() != 2) view.at("meters").at("sums").fail("does not have one row for each rank");
  if (sums.size(0) != world.size()) {
    const auto all = sums.sum(0);
    sums = torch::zeros({world.size(), sums.size(1)}, sums.options());
    sums[0].copy_(all);
  }
  meter_.load_state(state::View(sums[world.rank()], "meters"));
  saved_ = run_.progress;
}

std::optional<reporting::CheckpointEvent> Checkpoints::adopt(const std::filesystem::path& file) {
  if (target_.saver == nullptr) return std::nullopt;
  auto& store = target_.saver->store();
  const int64_t step = run_.progress.step;
  const auto own = store.file_of(step);
  std::error_code not_there;
  if (!std::filesystem::equivalent(file, own, not_there)) return std::nullopt;
  const auto& validation = run_.last_validation;
  const auto removed = store.link_written(step, validation && validation->step == step && validation->is_best);
  constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  return reporting::CheckpointEvent{.epoch = run_.progress.epoch_of_step(),
                                    .step = step,
                                    .file = own.string(),
                                    .num_bytes = std::filesystem::file_size(own),
                                    .pause_seconds = kUnknown,
                                    .seconds = kUnknown,
                                    .removed = names_of(removed)};
}

void Checkpoints::save(bool is_best) {
  const auto& world = *parts_.ranks.world;
  parts_.ranks.activity->enter(distributed::Phase::kCheckpoint);
  const auto sums = world.all_gather(std::get<torch::Tensor>(meter_.state().value()));
  saved_ = run_.progress;
  if (target_.saver == nullptr) return;
  if (const auto saved = target_.saver->finish()) report_saved(*saved);
  epoch_of_file_ = run_.progress.epoch_of_step();
  target_.saver->save(make_tree(sums), run_.progress.step, is_best);
}

void Checkpoints::after_step() {
  if (target_.saver == nullptr) return;
  if (!has_reserved_) {
    has_reserved_ = true;
    target_.saver->reserve(make_tree(torch::zeros({parts_.ranks.world->size(), meter_.num_sums()}, torch::kFloat64)));
  } else if (const auto saved = target_.saver->poll()) {
    report_saved(*saved);
  }
}

void Checkpoints::finish() {
  if (target_.saver == nullptr) return;
  parts_.ranks.activity->enter(distributed::Phase::kCheckpoint);
  const auto saved = target_.saver->finish();
  if (!saved) return;
  if (!saved->error.empty()) throw CheckpointError(saved->error + "; the training since the previous checkpoint is not saved");
  report_saved(*saved);
}

void Checkpoints::report_saved(const checkpoint::Saved& saved) {
  if (!saved.error.empty()) {
    reporter_.on_warning({.epoch = run_.progress.epoch_of_step(),
                          .step = run_.progress.step,
                          .message = fmt::format(
                              "the checkpoint of step {} was not saved: {}; training continues, and the earlier checkpoints are unchanged",
                              saved.step, saved.error)});
    return;
  }
  reporter_.on_checkpoint({.epoch = epoch_of_file_,
                           .step = saved.step,
                           .file = saved.file.string(),
                           .num_bytes = saved.num_bytes,
                           .pause_seconds = saved.pause_seconds,
                           .seconds = saved.write_seconds,
                           .removed = names_of(saved.removed)});
}

}  // namespace trainer::engine
