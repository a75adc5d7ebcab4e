#include "reporting/json.h"

#include <fmt/format.h>

#include <iterator>

#include "base/file.h"
#include "base/text.h"
#include "reporting/event_command.h"
#include "reporting/sinks.h"
#include "reporting/values.h"

namespace trainer::reporting {

std::string to_text(const Json& value, int indent) {
  const auto text = value.dump(indent, ' ', false, Json::error_handler_t::replace);
  std::string result;
  result.reserve(text.size());
  // dump() escapes only those below a space. Its line breaks stand between values.
  for (std::string_view rest = text; !rest.empty();) {
    const auto [length, code_point] = first_character(rest);
    if (is_control(code_point) && code_point != '\n') {
      fmt::format_to(std::back_inserter(result), "\\u{:04x}", static_cast<uint32_t>(code_point));
    } else {
      result += rest.substr(0, length);
    }
    rest.remove_prefix(length);
  }
  return result;
}

namespace {

class Jsonl : public Sink {
 public:
  Jsonl(const std::filesystem::path& file, EventCommand* command) : file_(file), command_(command) {}

  void on_start(const StartEvent& event) override {
    const auto begin = event.resume.value_or(Resume{});
    // The events of a checkpoint end when it is taken, before it is known to be on the disk. So its own event is written here again.
    if (begin.own_checkpoint) on_checkpoint(*begin.own_checkpoint);
    Json line = make_line(event.resume ? "resume" : "start", begin);
    if (event.resume) line["checkpoint"] = begin.checkpoint;
    line["num_epochs"] = event.num_epochs;
    if (event.num_steps) line["num_steps"] = *event.num_steps;
    line.update({{"steps_per_epoch", event.steps_per_epoch},
                 {"world_size", event.world_size},
                 {"global_batch_size", event.global_batch_size},
                 {"num_parameters", event.num_parameters}});
    line["metrics"] = to_json(event.metrics);
    add_monitor(line, event);
    write(line);
  }

  void on_train(const TrainEvent& event) override {
    Json line = make_line("train", event);
    add_metrics(line, event.metrics);
    line.update({{"lr", event.lr},
                 {"images_per_second", event.images_per_second},
                 {"data_wait", event.data_wait},
                 {"queue_depth", event.queue_depth},
                 {"memory_bytes", event.memory_bytes}});
    if (event.grad_scale) line["grad_scale"] = *event.grad_scale;
    if (event.skipped_steps) line["skipped_steps"] = *event.skipped_steps;
    write(line);
  }

  void on_warning(const WarningEvent& event) override {
    Json line = make_line("warning", event);
    line["message"] = event.message;
    write(line);
  }

  void on_validation(const ValidationEvent& event) override {
    Json line = make_line("validation", event);
    add_scores(line, event);
    line["seconds"] = event.seconds;
    write(line);
  }

  void on_checkpoint(const CheckpointEvent& event) override {
    Json line = make_line("checkpoint", event);
    line.update({{"file", event.file}, {"bytes", event.num_bytes}, {"pause_seconds", event.pause_seconds}, {"seconds", event.seconds}});
    if (!event.removed.empty()) line["removed"] = event.removed;
    write(line);
  }

  void on_end(const EndEvent& event) override {
    Json line = make_line("end", event);
    line["reason"] = event.reason;
    if (!event.message.empty()) line["message"] = event.message;
    line.update({{"seconds", event.seconds}, {"images_per_second", event.images_per_second}});
    write(line);
  }

 private:
  // {"loss": {"higher_is_better": false, "format": "number"}, …}
  static Json to_json(const MetricColumns& metrics) {
    Json all = Json::object();
    for (const auto& part : {metrics.train, metrics.validation}) {
      for (const auto& metric : part) {
        all[metric.name] = {{"higher_is_better", metric.higher_is_better},
                            {"format", metric.format == MetricFormat::kPercent ? "percent" : "number"}};
      }
    }
    return all;
  }
  // The values that every line begins with. `event`: has `epoch` and `step`.
  template <class Event>
  static Json make_line(const char* name, const Event& event) {
    return {{"event", name}, {"time", unix_seconds()}, {"epoch", event.epoch}, {"step", event.step}};
  }
  void write(const Json& line) {
    const auto text = to_text(line);
    file_.write_line(text);
    if (command_ != nullptr) command_->send(text);
  }

  LineFile file_;
  EventCommand* command_;
};

}  // namespace

std::unique_ptr<Sink> make_jsonl(const std::filesystem::path& file, EventCommand* command) {
  return std::make_unique<Jsonl>(file, command);
}

}  // namespace trainer::reporting
