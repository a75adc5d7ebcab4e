#include <fmt/format.h>
#include <unistd.h>

#include <optional>
#include <string_view>

#include "base/file.h"
#include "base/program.h"
#include "base/text.h"
#include "reporting/event_file.h"
#include "reporting/sinks.h"
#include "reporting/values.h"
#include "trainer/error.h"

namespace trainer::reporting {
namespace {

constexpr std::string_view kPrefix = "events.out.tfevents.";

// The seconds in the name of an event file.
std::optional<int64_t> seconds_in_name(const std::string& name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const auto rest = name.substr(kPrefix.size());
  return parse_number<int64_t>(rest.substr(0, rest.find('.')));
}

// TensorBoard reads the files of a folder in the order of their names, so the time in the name must be greater than that of each existing
// file, even if the clock was set back.
std::filesystem::path make_event_file_path(const std::filesystem::path& folder, double time) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw Error("cannot create the TensorBoard folder " + folder.string() + ": " + error.message());
  auto seconds = static_cast<int64_t>(time);
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    // The limit keeps the number of digits constant, because the names are sorted as text.
    const auto other = seconds_in_name(entry.path().filename().string());
    if (other && *other >= seconds && *other < 9'999'999'999) seconds = *other + 1;
  }
  return folder / fmt::format("{}{}.{}.{}", kPrefix, seconds, host_name(), ::getpid());
}

void add_scalars(EventValues& values, const std::string& prefix, const Metrics& metrics) {
  for (const auto& metric : metrics) {
    if (!metric.info.is_detail) values.add_scalar(prefix + metric.info.name, metric.value);
  }
}

class Tensorboard : public Sink {
 public:
  Tensorboard(const std::filesystem::path& file, double time) : file_(file) { file_.write(make_version_event(time)); }

  void on_train(const TrainEvent& event) override {
    EventValues values;
    add_scalars(values, "train/", event.metrics);
    values.add_scalar("train/lr", event.lr);
    values.add_scalar("train/images_per_second", event.images_per_second);
    write(event.step, values);
  }

  void on_validation(const ValidationEvent& event) override {
    EventValues values;
    add_scalars(values, "validation/", event.metrics);
    add_scalars(values, "validation/ema_", event.ema_metrics);
    write(event.step, values);
  }

  void on_histograms(const HistogramsEvent& event) override {
    EventValues values;
    for (const auto& histogram : event.parameters) values.add_histogram("parameters/" + histogram.name, histogram);
    for (const auto& histogram : event.gradients) values.add_histogram("gradients/" + histogram.name, histogram);
    write(event.step, values);
  }

 private:
  void write(int64_t step, const EventValues& values) {
    if (!values.is_empty()) file_.write(make_event(unix_seconds(), step, values));
  }

  LineFile file_;
};

}  // namespace

std::unique_ptr<Sink> make_tensorboard(const std::filesystem::path& folder, WrittenFiles* written) {
  const auto time = unix_seconds();
  const auto file = make_event_file_path(folder, time);
  if (written != nullptr) written->add(file);
  return std::make_unique<Tensorboard>(file, time);
}

}  // namespace trainer::reporting
