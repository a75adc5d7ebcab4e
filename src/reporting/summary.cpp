#include <cmath>
#include <numeric>

#include "base/file.h"
#include "reporting/json.h"
#include "reporting/sinks.h"

namespace trainer::reporting {
namespace {

Json validation_object(const ValidationEvent& event) {
  Json object;
  object["epoch"] = event.epoch;
  object["step"] = event.step;
  add_scores(object, event);
  return object;
}

// Accuracy and number of samples of each class, and the whole confusion matrix: a row for each actual class.
void add_classes(Json& object, const ValidationEvent& event) {
  const auto num_classes = static_cast<size_t>(std::sqrt(static_cast<double>(event.confusion.size())));
  if (num_classes == 0) return;
  auto per_class = Json::array();
  auto rows = Json::array();
  for (size_t actual = 0; actual < num_classes; ++actual) {
    const auto begin = event.confusion.begin() + static_cast<std::ptrdiff_t>(actual * num_classes);
    const std::vector<int64_t> row(begin, begin + static_cast<std::ptrdiff_t>(num_classes));
    const auto num_samples = std::accumulate(row.begin(), row.end(), int64_t{0});
    const double top1 = num_samples == 0 ? 0 : static_cast<double>(row[actual]) / static_cast<double>(num_samples);
    per_class.push_back({{"top1", top1}, {"num_samples", num_samples}});
    rows.push_back(row);
  }
  object["per_class"] = std::move(per_class);
  object["confusion"] = std::move(rows);
}

class Summary : public Sink {
 public:
  explicit Summary(const std::filesystem::path& file) : file_(file) {}

  void on_end(const EndEvent& event) override {
    Json summary;
    summary["reason"] = event.reason;
    if (!event.message.empty()) summary["message"] = event.message;
    summary["epoch"] = event.epoch;
    summary["step"] = event.step;
    summary["seconds"] = event.seconds;
    summary["images_per_second"] = event.images_per_second;
    summary["monitor"] = event.monitor;
    if (event.final_validation) {
      summary["final"] = validation_object(*event.final_validation);
      add_classes(summary["final"], *event.final_validation);
    }
    if (event.best_validation) summary["best"] = validation_object(*event.best_validation);
    write_file_atomically(file_, to_text(summary, 2) + '\n');
  }

 private:
  std::filesystem::path file_;
};

}  // namespace

std::unique_ptr<Sink> make_summary(const std::filesystem::path& file) { return std::make_unique<Summary>(file); }

}  // namespace trainer::reporting
