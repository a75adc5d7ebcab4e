#include <fmt/format.h>
#include <limits.h>
#include <unistd.h>

#include <vector>

#include "base/error.h"
#include "reporting/event_file.h"
#include "reporting/sinks.h"
#include "reporting/unix_time.h"

namespace trainer::reporting {
namespace {

std::filesystem::path make_event_file_path(const std::filesystem::path& folder, double time) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw Error("cannot create the TensorBoard folder " + folder.string() + ": " + error.message());
  char host[HOST_NAME_MAX + 1] = {};
  ::gethostname(host, sizeof(host) - 1);
  return folder / fmt::format("events.out.tfevents.{}.{}.{}", static_cast<int64_t>(time), host, ::getpid());
}

void add_scalars(std::vector<Scalar>& scalars, const std::string& prefix, const Metrics& metrics) {
  for (const auto& metric : metrics) {
    if (!metric.info.is_detail) scalars.push_back({prefix + metric.info.name, metric.value});
  }
}

class Tensorboard : public Sink {
 public:
  Tensorboard(const std::filesystem::path& folder, double time) : file_(make_event_file_path(folder, time), time) {}

  void on_train(const TrainEvent& event) override {
    std::vector<Scalar> scalars;
    add_scalars(scalars, "train/", event.metrics);
    scalars.push_back({"train/lr", event.lr});
    scalars.push_back({"train/images_per_second", event.images_per_second});
    file_.write(unix_seconds(), event.step, scalars);
  }

  void on_validation(const ValidationEvent& event) override {
    std::vector<Scalar> scalars;
    add_scalars(scalars, "validation/", event.metrics);
    add_scalars(scalars, "validation/ema_", event.ema_metrics);
    file_.write(unix_seconds(), event.step, scalars);
  }

 private:
  EventFile file_;
};

}  // namespace

std::unique_ptr<Sink> make_tensorboard(const std::filesystem::path& folder) {
  return std::make_unique<Tensorboard>(folder, unix_seconds());
}

}  // namespace trainer::reporting
