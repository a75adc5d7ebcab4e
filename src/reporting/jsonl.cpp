#include "base/file.h"
#include "reporting/json.h"
#include "reporting/sinks.h"
#include "reporting/unix_time.h"

namespace trainer::reporting {
namespace {

Json make_line(const char* event, int64_t epoch, int64_t step) {
  Json line;
  line["event"] = event;
  line["time"] = unix_seconds();
  line["epoch"] = epoch;
  line["step"] = step;
  return line;
}

class Jsonl : public Sink {
 public:
  explicit Jsonl(const std::filesystem::path& file) : file_(file) {}

  void on_start(const StartEvent& event) override {
    const auto begin = event.resume.value_or(Resume{});
    Json line = make_line(event.resume ? "resume" : "start", begin.epoch, begin.step);
    if (event.resume) line["checkpoint"] = begin.checkpoint;
    line["num_epochs"] = event.num_epochs;
    line["steps_per_epoch"] = event.steps_per_epoch;
    line["world_size"] = event.world_size;
    line["global_batch_size"] = event.global_batch_size;
    line["num_parameters"] = event.num_parameters;
    file_.write_line(to_text(line));
  }

  void on_train(const TrainEvent& event) override {
    Json line = make_line("train", event.epoch, event.step);
    add_metrics(line, event.metrics);
    line["lr"] = event.lr;
    line["images_per_second"] = event.images_per_second;
    line["data_wait"] = event.data_wait;
    if (event.grad_scale) line["grad_scale"] = *event.grad_scale;
    if (event.skipped_steps) line["skipped_steps"] = *event.skipped_steps;
    file_.write_line(to_text(line));
  }

  void on_warning(const WarningEvent& event) override {
    Json line = make_line("warning", event.epoch, event.step);
    line["message"] = event.message;
    file_.write_line(to_text(line));
  }

  void on_validation(const ValidationEvent& event) override {
    Json line = make_line("validation", event.epoch, event.step);
    add_scores(line, event);
    line["seconds"] = event.seconds;
    file_.write_line(to_text(line));
  }

  void on_checkpoint(const CheckpointEvent& event) override {
    Json line = make_line("checkpoint", event.epoch, event.step);
    line["file"] = event.file;
    line["bytes"] = event.num_bytes;
    line["pause_seconds"] = event.pause_seconds;
    line["seconds"] = event.seconds;
    file_.write_line(to_text(line));
  }

  void on_end(const EndEvent& event) override {
    Json line = make_line("end", event.epoch, event.step);
    line["reason"] = event.reason;
    if (!event.message.empty()) line["message"] = event.message;
    line["seconds"] = event.seconds;
    line["images_per_second"] = event.images_per_second;
    file_.write_line(to_text(line));
  }

 private:
  LineFile file_;
};

}  // namespace

std::unique_ptr<Sink> make_jsonl(const std::filesystem::path& file) { return std::make_unique<Jsonl>(file); }

}  // namespace trainer::reporting
