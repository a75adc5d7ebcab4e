// Checkpoints between training steps, for bench.py.

#include "bench/serve.h"
#include "bench/training.h"
#include "train/engine/checkpoints.h"
#include "trainer/checkpoint.h"

namespace trainer::bench {
namespace {

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Stores the duration that the latest checkpoint event reports.
class Listener final : public reporting::Sink {
 public:
  void on_checkpoint(const reporting::CheckpointEvent& event) override { seconds = event.seconds; }
  void on_warning(const reporting::WarningEvent& event) override { throw std::runtime_error(event.message); }

  double seconds = 0;  // from the end of the pause until the checkpoint was on the disk
};

// Training with checkpoints in a folder.
class CheckpointedTraining {
 public:
  CheckpointedTraining(engine::Parts& parts, const TrainingOptions& options, const std::filesystem::path& folder, int64_t num_steps)
      : training_(parts, options),
        saver_(checkpoint::Store(folder, /*keep_last=*/1), /*pin_memory=*/false),
        checkpoints_(parts, run_, training_.meter(), listener_, {&saver_}),
        num_steps_(num_steps) {}

  nlohmann::json run(int64_t count) {
    nlohmann::json answer = {{"pause", {}}, {"written", {}}, {"plain", {}}, {"beside", {}}, {"load", {}}};
    for (int64_t i = 0; i < count; ++i) {
      train();  // a warm-up, because loading slows down the next steps
      answer["plain"].push_back(seconds_of([&] { train(); }));
      run_.progress.step += 1;
      const auto pause = seconds_of([&] { checkpoints_.save(/*is_best=*/false); });
      answer["pause"].push_back(pause);
      answer["beside"].push_back(seconds_of([&] { train(); }));
      checkpoints_.finish();
      answer["written"].push_back(pause + listener_.seconds);
      answer["load"].push_back(seconds_of([&] {
        const auto file = saver_.store().file_of(run_.progress.step);
        checkpoints_.load(state::View(checkpoint::load(file), file.string()));
      }));
    }
    return answer;
  }

 private:
  void train() {
    training_.run(num_steps_, [&](int64_t) { checkpoints_.after_step(); });
  }

  Training training_;
  checkpoint::Saver saver_;
  engine::RunState run_;
  Listener listener_;
  engine::Checkpoints checkpoints_;
  int64_t num_steps_;
};

}  // namespace
}  // namespace trainer::bench

int main(int argc, char** argv) {
  trainer::device::set_library_defaults();
  using namespace trainer;
  CLI::App app("Checkpoints between training steps, measured by bench.py");
  bench::TrainingOptions options;
  options.add_to(app);
  std::string folder;
  int64_t num_steps = 1;
  app.add_option("--folder", folder)->required();
  app.add_option("--steps", num_steps, "number of steps before a checkpoint, and during its write");
  CLI11_PARSE(app, argc, argv);

  bench::SingleProcess process(options);
  bench::CheckpointedTraining training(process.parts, options, folder, num_steps);
  bench::serve({{"network", options.network}, {"placement", device::to_string(process.parts.network.placement)}},
               [&](int64_t count) { return training.run(count); });
}
