#include "reporting/sinks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <fstream>
#include <map>
#include <sstream>

#include "base/file.h"
#include "base/text.h"
#include "reporting/event_command.h"
#include "reporting/values.h"
#include "trainer/events.h"

namespace trainer::reporting {

SinkRegistry& sink_registry() {
  static SinkRegistry of_plugins("sink");
  return of_plugins;
}

namespace {

Json validation_object(const ValidationEvent& event) {
  Json object = {{"epoch", event.epoch}, {"step", event.step}};
  add_scores(object, event);
  return object;
}

std::vector<std::string> make_header(const MetricColumns& columns) {
  std::vector<std::string> header = {"epoch", "step", "lr"};
  for (const auto& info : columns.train) header.push_back("train_" + info.name);
  for (const auto& info : columns.validation) header.push_back("validation_" + info.name);
  for (const auto& info : columns.validation) {
    if (!info.is_detail) header.push_back("validation_ema_" + info.name);
  }
  header.insert(header.end(), {"seconds", "images_per_second"});
  return header;
}

std::vector<std::string> read_header(const std::filesystem::path& file) {
  std::string line;
  std::ifstream stream(file);
  std::getline(stream, line);
  std::istringstream names(line);
  std::vector<std::string> header;
  for (std::string name; std::getline(names, name, ',');) header.push_back(name);
  return header;
}

class Csv : public Sink {
 public:
  Csv(const std::filesystem::path& file, const MetricColumns& columns) : file_(file) {
    if (std::filesystem::file_size(file) > 0) {
      header_ = read_header(file);
    } else {
      header_ = make_header(columns);
      file_.write_line(fmt::format("{}", fmt::join(header_, ",")));
    }
  }

  void on_epoch(const EpochEvent& event) override {
    // fmt writes doubles so that they are read back as the same value.
    std::map<std::string, std::string> cells = {{"epoch", fmt::format("{}", event.epoch)},
                                                {"step", fmt::format("{}", event.step)},
                                                {"lr", fmt::format("{}", event.lr)},
                                                {"seconds", fmt::format("{}", event.seconds)},
                                                {"images_per_second", fmt::format("{}", event.images_per_second)}};
    const auto add = [&](const std::string& prefix, const Metrics& metrics) {
      for (const auto& metric : metrics) cells[prefix + metric.info.name] = fmt::format("{}", metric.value);
    };
    add("train_", event.train_metrics);
    if (event.validation) {
      add("validation_", event.validation->metrics);
      add("validation_ema_", event.validation->ema_metrics);
    }
    std::vector<std::string> row;
    for (const auto& column : header_) row.push_back(cells[column]);
    file_.write_line(fmt::format("{}", fmt::join(row, ",")));
  }

 private:
  LineFile file_;
  std::vector<std::string> header_;
};

class Jsonl : public Sink {
 public:
  Jsonl(const std::filesystem::path& file, EventCommand* command) : file_(file), command_(command) {}

  void on_start(const StartEvent& event) override {
    const auto begin = event.resume.value_or(Resume{});
    // A resumed run truncates the file to its size when the checkpoint was made. The event of this checkpoint came later, once the
    // checkpoint was on the disk, so it must be written again.
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
  // The values with which every line begins. `event` must have `epoch` and `step`.
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

std::unique_ptr<Sink> make_summary(const std::filesystem::path& file) {
  return std::make_unique<AtEnd>([file](const EndEvent& event) {
    Json summary;
    summary["reason"] = event.reason;
    if (!event.message.empty()) summary["message"] = event.message;
    summary.update(
        {{"epoch", event.epoch}, {"step", event.step}, {"seconds", event.seconds}, {"images_per_second", event.images_per_second}});
    add_monitor(summary, event);
    if (event.final_validation) summary["final"] = validation_object(*event.final_validation);
    if (event.best_validation) summary["best"] = validation_object(*event.best_validation);
    write_file_atomically(file, to_text(summary, 2) + '\n');
  });
}

std::unique_ptr<Sink> make_csv(const std::filesystem::path& file, const MetricColumns& columns) {
  return std::make_unique<Csv>(file, columns);
}

std::unique_ptr<Sink> make_jsonl(const std::filesystem::path& file, EventCommand* command) {
  return std::make_unique<Jsonl>(file, command);
}

}  // namespace trainer::reporting
