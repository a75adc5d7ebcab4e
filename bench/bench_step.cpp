// Training steps of one process of the program, as bench.py measures them.

#include "bench/serve.h"
#include "bench/training.h"
#include "world/host_resources.h"

int main(int argc, char** argv) {
  using namespace trainer;
  CLI::App app("Training steps, measured by bench.py");
  bench::TrainingOptions options;
  options.add_to(app);
  CLI11_PARSE(app, argc, argv);

  const auto experiment = bench::make_experiment(options);
  device::configure_cpu_allocator();
  const auto placement = device::choose_placement(experiment.runtime, experiment.amp, {}, {.num_cpus = world::available_cpus()}, nullptr);
  device::apply_placement(placement, experiment.runtime);
  auto parts = engine::build_parts(experiment, placement);
  engine::join_ranks(experiment, parts);
  const auto logger = make_quiet_logger();
  engine::open_data(experiment, parts, *logger);

  bench::Training training(parts, options);
  bench::serve({{"network", options.network}, {"input", options.source}, {"placement", device::to_string(parts.placement)}},
               [&](int64_t count) {
                 training.run(count);
                 return nlohmann::json::object();
               });
}
