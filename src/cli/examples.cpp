#include "cli/examples.h"

#include <algorithm>
#include <array>
#include <utility>

namespace trainer::cli {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 18> kExamples = {{
    {"train",
     "trainer --config configs/quickstart.yaml\n"
     "trainer --config my.yaml --run-dir runs/slow optimizer.lr=0.01"},
    {"validate", "trainer validate --config my.yaml --world-size 8"},
    {"eval",
     "trainer eval --checkpoint runs/my_run\n"
     "trainer eval --checkpoint runs/my_run --data data/test"},
    {"predict",
     "trainer predict --checkpoint runs/my_run photo.jpg folder/\n"
     "find . -name '*.jpg' -print0 | trainer predict --checkpoint best.pt -0 -"},
    {"launch",
     "trainer launch --config my.yaml\n"
     "trainer launch --nproc-per-node 4 --config my.yaml training.epochs=5"},
    {"init", "trainer init --data data/my_images --output my.yaml"},
    {"config",
     "trainer config reference optimizer.sgd\n"
     "trainer config show --config my.yaml --origin"},
    {"data",
     "trainer data check --config my.yaml\n"
     "trainer data pack --config my.yaml --output data/packed"},
    {"checkpoint",
     "trainer checkpoint info runs/my_run\n"
     "trainer checkpoint average --output mean.pt a.pt b.pt"},
    {"export",
     "trainer export --checkpoint runs/my_run --output network.onnx\n"
     "trainer export --checkpoint runs/my_run --format state_dict --output w.pt"},
    {"verify-resume", "trainer verify-resume --config my.yaml --steps 20"},
    {"lr-find", "trainer lr-find --config my.yaml"},
    {"report",
     "trainer report runs/a runs/b --output report.html\n"
     "trainer report --live runs/a"},
    {"runs", "trainer runs\ntrainer runs --columns optimizer.lr,seed --sort metric"},
    {"compare", "trainer compare runs/a runs/b"},
    {"replay", "trainer replay runs/my_run/non_finite/step_12 amp.enabled=false"},
    {"doctor", "trainer doctor --output-dir /data/runs"},
    {"list", "trainer list\ntrainer list models"},
}};

}  // namespace

std::string_view examples_of(std::string_view command) {
  const auto* found = std::ranges::find(kExamples, command, [](const auto& entry) { return entry.first; });
  return found == kExamples.end() ? std::string_view() : found->second;
}

}  // namespace trainer::cli
