#pragma once
// The training of the program as a class, with components made in code, and the whole program as a function.
//
//   using namespace trainer;
//   const auto run = distributed::init_process_group();
//   Trainer training(*run,
//                    {.model = [](const auto& context) { return std::make_shared<Net>(context); },
//                     .task = make(task::task_registry(), "classification", make(nn::loss_registry(), nn::CrossEntropyOptions())),
//                     .optimizer = [](auto groups) { return make(optim::optimizer_registry(), optim::SgdOptions{.lr = 0.1}, groups); },
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
#include "trainer/components.h"
#include "trainer/dataset.h"
#include "trainer/distributed.h"
#include "trainer/error.h"
#include "trainer/events.h"
#include "trainer/hook.h"
#include "trainer/model.h"
#include "trainer/optim.h"
#include "trainer/options.h"
#include "trainer/registry.h"
#include "trainer/task.h"

namespace trainer {

// A component of `registry` with its options, written as the section of an experiment file, such as "{name: step, step_epochs: 30}", or
// only the name. Throws UsageError with all problems.
ComponentConfig read_component(const RegistryBase& registry, const std::string& yaml);
// The same for a list of transforms, such as "[random_crop: {size: 32, padding: 4}, random_horizontal_flip]".
std::vector<ComponentConfig> read_components(const RegistryBase& registry, const std::string& yaml);

// Makes a component from a text as for read_component(). Also throws the errors of the component's factory.
template <class Product, class... Args>
Product make(const Registry<Product, Args...>& registry, const std::string& yaml, std::type_identity_t<Args>... args) {
  return registry.make(read_component(registry, yaml), std::forward<Args>(args)...);
}

// The same with options of trainer/components.h: make(optim::optimizer_registry(), optim::SgdOptions{.lr = 0.1}, groups).
template <class Product, class... Args, class O>
requires requires { O::kName; }
Product make(const Registry<Product, Args...>& registry, const O& options, std::type_identity_t<Args>... args) {
  return registry.make(registry.configure(options), std::forward<Args>(args)...);
}

// The components of a Trainer.
struct TrainerParts {
  // Makes the network on the CPU in float32; called once.
  std::function<std::shared_ptr<models::Model>(const models::BuildContext& context)> model;
  std::unique_ptr<task::Task> task;
  // Makes the optimizer of the network's parameters; called once.
  std::function<std::unique_ptr<optim::Optimizer>(std::vector<optim::ParamGroup> groups)> optimizer;
  // All samples, the same on all ranks; each rank reads its part.
  std::shared_ptr<const data::Dataset> train;
  std::shared_ptr<const data::Dataset> validation = nullptr;  // null: no validation
  // Components of transform_registry(), from the stored samples to the network's input.
  std::vector<ComponentConfig> train_transforms = {};
  std::vector<ComponentConfig> validation_transforms = {};
  // A component of lr_scheduler_registry().
  ComponentConfig lr_schedule = optim::lr_scheduler_registry().configure("constant");
  // Instead of lr_schedule and a warm-up: the factor for the optimizer's learning rate at update number `step`, from 0. Depends on nothing
  // else, so that a resumed training continues it.
  std::function<double(int64_t step, int64_t total_steps)> lr_factor = {};
  // Each rank calls its own at each step.
  std::vector<std::unique_ptr<engine::TrainingHook>> hooks = {};
  // Receive the events on rank 0, in addition to the output of Context::logger().
  std::vector<std::unique_ptr<reporting::Sink>> sinks = {};
};

// The defaults are those of an experiment file, except that one thread loads the data on a GPU too.
struct TrainerOptions {
  engine::PlanOptions plan = {};
  engine::LoopOptions loop = {};
  data::LoadingOptions loading = {};
  device::PlacementOptions placement = {};  // `device` has no effect: the Context's device is used
  bool sync_batch_norm = true;              // also for layers of LibTorch
  optim::ParameterOptions parameters = {};
  distributed::DataParallelOptions data_parallel = {.gradient_as_bucket_view = true};
  amp::GradScalerOptions grad_scaler = {};  // has an effect only with float16
  optim::WarmupOptions warmup = {};
  std::optional<optim::EmaOptions> ema = {};
  // Weights of the network at the start, of a checkpoint or another file that model.init_from accepts. `init_strict`: an Error if they do
  // not fit; otherwise what fits is loaded.
  std::filesystem::path init_from = {};
  bool init_strict = true;
  // The folder in which rank 0 writes the files of the run: the log of this Trainer, metrics.jsonl, metrics.csv, summary.json, the results
  // of validations and checkpoints (`trainer report` and `trainer compare` read them). The run resumes from the newest checkpoint there, if
  // there is one.
  std::filesystem::path run_directory = {};
  // Without a run_directory: the folder in which rank 0 saves checkpoints, last.pt and best.pt; empty: none are saved. Nothing else may
  // write there.
  std::filesystem::path checkpoint_folder = {};
  int64_t keep_last = 3;  // number of newest checkpoints that are kept, in addition to the best one
};

// The training loop of `trainer train`. The results are the same, to the last bit, as with an experiment file with these components and
// options on the same number of ranks and threads. All functions except model() are collective over the ranks of the Context. When a rank
// throws, the others wait until its process ends, and then throw a PeerError; an error that all ranks agree on (AgreedError, with the exit
// code of the first error) may have an empty message on ranks other than 0. Not thread-safe. Only one object per process at a time, or the
// constructor throws std::logic_error; its process groups stay until Context::shutdown(). Messages use the names of the keys of an
// experiment file.
class Trainer {
 public:
  // `context` must outlive this object. Sets LibTorch's threads, determinism and default generators; the destructor restores them. Throws
  // UsageError for options that are out of range, and for parts that cannot be used together, such as a network for images of another size;
  // CheckpointError if the folder of checkpoints is not writable; and the errors of the functions in `parts`.
  Trainer(distributed::Context& context, TrainerParts parts, const TrainerOptions& options);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // The network, on its device, with the same weights on all ranks.
  models::Model& model();
  // To be called before run(), which then continues from this checkpoint, bit for bit. The checkpoint may be from a Trainer or from the
  // program. Either all ranks must call it or none; only rank 0 reads the file. Throws CheckpointError, with several ranks an AgreedError
  // on all of them; run() throws it for a checkpoint of another network.
  void resume(const std::filesystem::path& checkpoint);
  // Trains to the end, or until `should_stop` returns true on any rank; with a checkpoint_folder, the state is saved in both cases. Returns
  // the result on all ranks: reason ("done", "early" or "stopped"), and the final and the best validation. To be called once; throws
  // std::logic_error otherwise. `should_stop` is called before each step and each validation batch; to stop on Ctrl-C, install a handler
  // and check its flag here. Throws Error if a step or all validations are not finite, if memory runs out, or if the last checkpoint cannot
  // be written; PeerError if another rank is lost; and the errors of sinks. After an error of a GPU, end the process without destroying
  // this object.
  reporting::EndEvent run(const std::function<bool()>& should_stop = [] { return false; });
  // The metrics of the network on all of `samples`, or with null on TrainerParts::validation, after the validation_transforms, on all
  // ranks. To be called before or after run(), which loads the checkpoint of resume(). `averaged`: with the averaged parameters of
  // TrainerOptions::ema. Throws UsageError for samples that do not fit the network, and the errors of reading them.
  task::Measurement evaluate(std::shared_ptr<const data::Dataset> samples = nullptr, bool averaged = false);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Runs the commands of `trainer` with the registered components. Prints errors and returns the exit code. To be called once, at the end of
// main(), before threads are started: it installs signal handlers, and with several processes it starts this program again (`launch`).
// Collective if the command is.
int main(int argc, char** argv);

}  // namespace trainer
