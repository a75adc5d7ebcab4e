#pragma once
// The program's training as a class, with components made in code, and the program as a function.
//
//   using namespace trainer;
//   const auto run = distributed::init_process_group();
//   Trainer training(*run,
//                    {.model = [](const auto& context) { return std::make_shared<Net>(context); },
//                     .task = make(task::task_registry(), "classification", make(nn::loss_registry(), "cross_entropy")),
//                     .optimizer = [](auto groups) { return make(optim::optimizer_registry(), "{name: sgd, lr: 0.1}", groups); },
//                     .train = std::make_shared<Images>()},
//                    {.plan = {.batch_size = 64, .epochs = 10}});
//   training.run();
//   run->shutdown();

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "trainer/component.h"
#include "trainer/dataset.h"
#include "trainer/distributed.h"
#include "trainer/events.h"
#include "trainer/model.h"
#include "trainer/optim.h"
#include "trainer/options.h"
#include "trainer/registry.h"
#include "trainer/task.h"

namespace trainer {

// A component of `registry` with its options, as the section of an experiment file has them: "{name: step, every_epochs: 30}", or only the
// name. Throws UsageError that lists everything wrong.
ComponentConfig read_component(const RegistryBase& registry, const std::string& yaml);
// The same of a list of transforms: "[random_crop: {size: 32, padding: 4}, random_horizontal_flip]".
std::vector<ComponentConfig> read_components(const RegistryBase& registry, const std::string& yaml);

// Makes a component of such a text. Throws what its factory throws, too.
template <class Product, class... Args>
Product make(const Registry<Product, Args...>& registry, const std::string& yaml, std::type_identity_t<Args>... args) {
  return registry.make(read_component(registry, yaml), std::forward<Args>(args)...);
}

// What a Trainer trains, on what, and who is told.
struct TrainerParts {
  // Makes the network on the CPU in float32; called once.
  std::function<std::shared_ptr<models::Model>(const models::BuildContext& context)> model;
  std::unique_ptr<task::Task> task;
  // Makes the optimizer of the network's parameters; called once.
  std::function<std::unique_ptr<optim::Optimizer>(std::vector<optim::ParamGroup> groups)> optimizer;
  // The same samples on all ranks, of which each rank reads its part.
  std::shared_ptr<const data::Dataset> train;
  std::shared_ptr<const data::Dataset> validation = nullptr;  // null: nothing is validated
  // Of transform_registry(), from the stored samples to the network's input.
  std::vector<ComponentConfig> train_transforms = {};
  std::vector<ComponentConfig> validation_transforms = {};
  // Of lr_scheduler_registry().
  ComponentConfig lr_schedule = optim::lr_scheduler_registry().configure("constant");
  // Told on rank 0, beside the lines that Context::logger() prints.
  std::vector<std::unique_ptr<reporting::Sink>> sinks = {};
};

// The defaults are those of an experiment file.
struct TrainerOptions {
  engine::PlanOptions plan = {};
  engine::LoopOptions loop = {};
  data::LoadingOptions loading = {};
  device::PlacementOptions placement = {};  // `device` has no effect: it is that of the Context
  bool sync_batch_norm = true;              // also for layers of LibTorch
  // Parameters with a learning rate or a weight decay of their own, and whether normalisation weights and biases have weight decay.
  std::vector<optim::ParameterGroupOptions> groups = {};
  bool decay_norm_and_bias = true;
  distributed::DataParallelOptions data_parallel = {.gradient_as_bucket_view = true};
  amp::GradScalerOptions grad_scaler = {};  // used under float16
  optim::WarmupOptions warmup = {};
  std::optional<optim::EmaOptions> ema = {};
  // Where rank 0 saves checkpoints, last.pt and best.pt; empty: it saves none. Nobody else may write there.
  std::filesystem::path checkpoint_folder = {};
  int64_t keep_last = 3;
};

// The training loop of `trainer train`: the same numbers, to the last bit, as an experiment file with these components and options, on as
// many ranks and threads. All functions are collective over the ranks of the Context. A rank that throws leaves the others waiting until it
// ends, which they find out with a PeerError; an error that all ranks agree on has an empty text on ranks other than 0. Not thread-safe. A
// process has one at a time; its process groups stay until Context::shutdown(). Messages name options by their keys in an experiment file.
class Trainer {
 public:
  // `context` must outlive it. Sets LibTorch's threads, determinism and default generators. Throws UsageError for options that are out of
  // range, and for parts that cannot be used together, such as a network for images of another size; CheckpointError when nothing can be
  // written to the folder of checkpoints; and what the functions in `parts` throw.
  Trainer(distributed::Context& context, TrainerParts parts, const TrainerOptions& options);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // On its device, with the same weights on all ranks.
  models::Model& model();
  // To be called before run(), which then continues from this checkpoint, bit for bit. A Trainer or the program has saved it. All ranks
  // call it, or none; only rank 0 reads the file. Throws CheckpointError, as run() does for a checkpoint of another network.
  void resume(const std::filesystem::path& checkpoint);
  // Trains to the end and returns true, or until `should_stop` returns true on any rank and returns false; the state is saved in both
  // cases. Call it once. `should_stop` is asked before each step and each validation batch: for Ctrl-C, install a handler and ask it here.
  // Throws Error when a step is not finite, no validation was, memory runs out, or the last checkpoint cannot be written, PeerError when
  // another rank is lost, and the errors of sinks. After an error of a GPU, end the process without destroying this object.
  bool run(const std::function<bool()>& should_stop = [] { return false; });

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The commands of `trainer`, with the components that have been registered. Returns the exit code; prints errors itself. Call it once, at
// the end of main(), before threads are started: it installs handlers of signals, and with several processes it starts this program again
// (`launch`). Collective where the command is.
int main(int argc, char** argv);

}  // namespace trainer
