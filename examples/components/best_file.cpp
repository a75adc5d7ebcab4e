// A sink that keeps a text file with the best epoch so far and its metrics.

#include <trainer/error.h>
#include <trainer/registry.h>

#include <fstream>

namespace {

namespace reporting = trainer::reporting;

struct BestFileOptions {
  std::string file = "best.txt";

  void describe(trainer::KeyTable& keys) {
    keys.add("file", file, {.doc = "Name of the file, in the folder of the run.", .may_be_empty = false});
  }
};

class BestFile : public reporting::Sink {
 public:
  explicit BestFile(std::filesystem::path file) : file_(std::move(file)) {}

  void on_validation(const reporting::ValidationEvent& event) override {
    if (!event.is_best) return;
    std::ofstream stream(file_);
    stream << "epoch " << event.epoch + 1 << "\n";
    for (const auto& metric : event.metrics) stream << metric.info.name << " " << metric.value << "\n";
    if (!stream.flush()) throw trainer::Error("cannot write " + file_.string());
  }

 private:
  std::filesystem::path file_;
};

}  // namespace

void add_best_file() {
  trainer::register_sink<BestFileOptions>(
      "best_file", "A text file with the best epoch so far.",
      [](const BestFileOptions& options, const auto& context) { return std::make_unique<BestFile>(context.run_dir / options.file); });
}
