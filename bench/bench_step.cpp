// Training steps of the program in one process, for bench.py.

#include "bench/serve.h"
#include "bench/training.h"

int main(int argc, char** argv) {
  trainer::device::set_library_defaults();
  using namespace trainer;
  CLI::App app("Training steps, measured by bench.py");
  bench::TrainingOptions options;
  options.add_to(app);
  CLI11_PARSE(app, argc, argv);

  bench::SingleProcess process(options);
  bench::Training training(process.parts, options);
  bench::serve({{"network", options.network}, {"input", options.source}, {"placement", device::to_string(process.parts.placement)}},
               [&](int64_t count) {
                 training.run(count);
                 return nlohmann::json::object();
               });
}
