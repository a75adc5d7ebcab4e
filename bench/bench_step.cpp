// Training steps of the program in one process, for bench.py and gpu.py.

#include "bench/serve.h"
#include "bench/training.h"
#include "trainer/checkpoint.h"
#include "trainer/state.h"

int main(int argc, char** argv) {
  using namespace trainer;
  device::set_library_defaults();
  CLI::App app("Training steps, measured by bench.py and gpu.py");
  bench::TrainingOptions options;
  options.add_to(app);
  std::string given;
  app.add_option("--losses", given, "only print the loss of a step with each batch of this file, written by torch.save");
  bool evaluates = false;
  app.add_flag("--evaluate", evaluates, "evaluate instead of training");
  CLI11_PARSE(app, argc, argv);

  bench::SingleProcess process(options);
  const auto& placement = process.parts.network.placement;
  bench::Training training(process.parts, options);
  if (!given.empty()) {
    const auto tree = checkpoint::load(given);
    const state::View view(tree, given);
    for (const double loss : training.losses(view.at("images").tensor(), view.at("targets").tensor())) fmt::print("{:.17g} ", loss);
    fmt::print("\n");
    return 0;
  }
  bench::serve({{"network", options.network}, {"input", options.source}, {"placement", device::to_string(placement)}}, [&](int64_t count) {
    if (evaluates) {
      training.evaluate(count);
      return nlohmann::json{{"peak_memory", device::memory_in_use(placement)}};
    }
    const double queued = training.run(count);
    return nlohmann::json{{"queued", queued}, {"peak_memory", device::memory_in_use(placement)}};
  });
}
