#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <chrono>
#include <cstdio>

#include "base/log.h"
#include "base/text.h"
#include "cli/arguments.h"
#include "cli/output.h"
#include "commands/command.h"
#include "commands/run_end.h"
#include "reporting/plot.h"
#include "reporting/values.h"
#include "run/inspection/inspect.h"

namespace trainer::commands {
namespace {

using cli::Row;

// Prints a table, indented by an empty column.
void print_table(std::vector<Row> rows, std::vector<cli::Column> columns) {
  columns.insert(columns.begin(), {""});
  for (auto& row : rows) row.insert(row.begin(), "");
  print("{}", cli::to_table(columns, std::move(rows)));
}

const cli::Column kText = {""};
const cli::Column kNumber = {.title = "", .is_number = true};

// Three digits, as in "1.11 G".
std::string format_flops(int64_t flops) {
  constexpr std::array kUnits = {"", " k", " M", " G", " T", " P"};
  auto value = static_cast<double>(flops);
  size_t unit = 0;
  while (value >= 999.5 && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  if (unit == 0) return flops == 0 ? "-" : std::to_string(flops);
  return fmt::format("{:.{}f}{}", value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0, kUnits[unit]);
}

std::string shape_text(const std::vector<int64_t>& shape) { return fmt::format("{}", fmt::join(shape, "x")); }

void print_network(const inspection::Inspection& inspection) {
  const auto& layers = *inspection.layers;
  print("\n{}, for a sample of shape {} (-v lists the layers)\n", inspection.experiment.model.component.name,
        shape_text(inspection.sample_shape));
  std::vector<Row> rows = {{"parameters", std::to_string(layers.num_parameters)}};
  if (layers.num_trained < layers.num_parameters) rows.push_back({"trained", std::to_string(layers.num_trained)});
  rows.push_back({"FLOPs", format_flops(layers.flops)});
  print_table(std::move(rows), {kText, kNumber});
}

void print_layers(const inspection::Inspection& inspection) {
  const auto& layers = *inspection.layers;
  print("\nlayers of {}, for a sample of shape {}\n", inspection.experiment.model.component.name, shape_text(inspection.sample_shape));
  std::vector<Row> rows;
  for (const auto& row : layers.rows) {
    rows.push_back({row.name, row.kind, shape_text(row.output_shape), row.num_parameters == 0 ? "-" : std::to_string(row.num_parameters),
                    format_flops(row.flops), row.is_frozen ? "frozen" : ""});
  }
  rows.push_back({"the whole network", "", "", std::to_string(layers.num_parameters), format_flops(layers.flops), ""});
  if (layers.num_trained < layers.num_parameters) rows.push_back({"trained", "", "", std::to_string(layers.num_trained), "", ""});
  print_table(std::move(rows),
              {{"name"}, {"kind"}, {"output"}, {.title = "parameters", .is_number = true}, {.title = "FLOPs", .is_number = true}, kText});
  print(
      "  FLOPs of the forward pass of one sample: two for each multiply-accumulate of\n"
      "  convolutions, linear layers and attention, none for other layers.\n");
}

void print_batches(const inspection::Inspection& inspection, int world_size) {
  print("\nbatches, on {}\n", counted(world_size, "rank"));
  const auto micro_steps = inspection.experiment.training.accumulation_steps;
  std::vector<Row> rows = {
      {"micro-step of a rank", counted(inspection.batch_size, "sample")},
      {"step", fmt::format("{} in {}", counted(inspection.global_batch_size, "sample"), counted(micro_steps, "micro-step"))}};
  if (const auto& plan = inspection.plan) {
    rows.push_back({"epoch", fmt::format("{} in {}", counted(plan->samples_per_epoch, "sample"), counted(plan->steps_per_epoch, "step"))});
    const auto steps = counted(plan->total_steps, "step");
    rows.push_back({"training", plan->num_epochs ? fmt::format("{} in {}", steps, counted(*plan->num_epochs, "epoch")) : steps});
  }
  print_table(std::move(rows), {kText, kText});
  if (inspection.num_repeated > 0) {
    print("  {} used twice in each epoch, so that all ranks have the same number (dataloader.shards: pad).\n",
          inspection.num_repeated == 1 ? "1 sample is" : fmt::format("{} samples are", inspection.num_repeated));
  }
  if (inspection.num_skipped > 0) {
    print("  {} skipped in each epoch (dataloader.drop_last, dataloader.shards).\n",
          inspection.num_skipped == 1 ? "1 sample is" : fmt::format("{} samples are", inspection.num_skipped));
  }
}

void print_lr(const std::vector<inspection::LrPoint>& curve) {
  std::vector<reporting::PlotPoint> points;
  for (const auto& point : curve) points.push_back({.x = static_cast<double>(point.step), .y = point.lr});
  print("\n{}",
        reporting::plot(points, {.x_title = "step", .y_title = "learning rate", .width = reporting::plot_width(stdout), .mark_x = {}}));
}

void print_memory(const inspection::MemoryEstimate& memory, bool is_of_gpu) {
  print("\nmemory of {}, estimated{}\n", is_of_gpu ? "the GPU of a rank" : "rank 0",
        is_of_gpu ? " (not compared with measurements; excludes the memory of the CUDA context and of cuDNN)" : "");
  std::vector<Row> rows;
  for (const auto& item : memory.items) rows.push_back({item.what, format_bytes(static_cast<uint64_t>(item.bytes))});
  rows.push_back({"total", format_bytes(static_cast<uint64_t>(memory.total()))});
  print_table(std::move(rows), {kText, kNumber});
}

void print_time(const inspection::Inspection& inspection) {
  print("\ntime on the CPU of this host, estimated from steps on a few samples\n");
  std::vector<Row> rows = {
      {"speed", reporting::format_rate(static_cast<double>(inspection.global_batch_size) / *inspection.step_seconds) + " samples/s"}};
  const auto add = [&](const char* what, double seconds) {
    rows.push_back({what, format_duration(std::chrono::duration<double>(seconds))});
  };
  if (const auto& plan = inspection.plan) {
    const auto steps = static_cast<double>(plan->steps_per_epoch);
    if (inspection.features_seconds) add("features, once", *inspection.features_seconds);
    if (inspection.frozen_step_seconds) add("epoch before training.unfreeze_after", *inspection.frozen_step_seconds * steps);
    add("epoch", *inspection.step_seconds * steps);
    add("training", *inspection.training_seconds);
  }
  print_table(std::move(rows), {kText, kNumber});
  print("  Without the time for reading the data and for validation.\n");
}

void print_text(const inspection::Inspection& inspection, int world_size, bool lists_layers) {
  for (const auto& note : inspection.notes) print("note: {}\n", note);
  if (inspection.layers) print_network(inspection);
  print_batches(inspection, world_size);
  if (inspection.step_seconds) print_time(inspection);
  if (!inspection.lr_curve.empty()) print_lr(inspection.lr_curve);
  if (inspection.memory) print_memory(*inspection.memory, inspection.memory_is_of_gpu);
  if (inspection.layers && lists_layers) print_layers(inspection);
}

using reporting::Json;

Json json_of(const inspection::LayerTable& table) {
  auto rows = Json::array();
  for (const auto& row : table.rows) {
    rows.push_back({{"name", row.name},
                    {"kind", row.kind},
                    {"output_shape", row.output_shape},
                    {"parameters", row.num_parameters},
                    {"frozen", row.is_frozen},
                    {"flops", row.flops}});
  }
  return rows;
}

Json json_of(const inspection::MemoryEstimate& estimate, bool is_of_gpu) {
  Json bytes = Json::object();
  for (const auto& item : estimate.items) bytes[item.name] = item.bytes;
  return {{"device", is_of_gpu ? "cuda" : "cpu"}, {"bytes", std::move(bytes)}, {"total_bytes", estimate.total()}};
}

// Problems, warnings and notes, and, if there are no problems, everything else that `trainer validate` shows.
Json to_json(const inspection::Inspection& inspection) {
  Json json = {{"problems", inspection.problems}, {"warnings", inspection.warnings}, {"notes", inspection.notes}};
  if (!inspection.problems.empty()) return json;
  json["experiment"] = inspection.experiment.experiment;
  json["sample_shape"] = inspection.sample_shape;
  if (const auto& layers = inspection.layers) {
    json["model"] = {{"name", inspection.experiment.model.component.name},
                     {"parameters", layers->num_parameters},
                     {"trained_parameters", layers->num_trained},
                     {"flops", layers->flops},
                     {"layers", json_of(*layers)}};
  }
  json["batches"] = {{"batch_size", inspection.batch_size},
                     {"global_batch_size", inspection.global_batch_size},
                     {"micro_steps", inspection.experiment.training.accumulation_steps}};
  if (const auto& plan = inspection.plan) {
    auto& batches = json["batches"];
    batches["world_size"] = plan->world_size;
    batches["samples_per_epoch"] = plan->samples_per_epoch;
    batches["micro_steps_per_epoch"] = plan->batches_per_epoch;
    batches["steps_per_epoch"] = plan->steps_per_epoch;
    batches["total_steps"] = plan->total_steps;
    if (plan->num_epochs) batches["epochs"] = *plan->num_epochs;
    batches["repeated_samples"] = inspection.num_repeated;
    batches["skipped_samples"] = inspection.num_skipped;
  }
  if (!inspection.lr_curve.empty()) {
    auto& points = json["lr"] = Json::array();
    for (const auto& point : inspection.lr_curve) points.push_back({{"step", point.step}, {"lr", point.lr}});
  }
  if (inspection.step_seconds) {
    auto& time = json["time"] = {{"device", "cpu"}, {"step_seconds", *inspection.step_seconds}};
    if (inspection.frozen_step_seconds) time["frozen_step_seconds"] = *inspection.frozen_step_seconds;
    if (inspection.features_seconds) time["features_seconds"] = *inspection.features_seconds;
    if (const auto& plan = inspection.plan) {
      time["epoch_seconds"] = *inspection.step_seconds * static_cast<double>(plan->steps_per_epoch);
      time["training_seconds"] = *inspection.training_seconds;
    }
  }
  if (inspection.memory) json["memory"] = json_of(*inspection.memory, inspection.memory_is_of_gpu);
  return json;
}

}  // namespace

ExitCode validate(const std::vector<std::string>& args) {
  CLI::App app(
      "Checks an experiment file as far as possible without its data and without a GPU, and shows what it would train: network, batches, "
      "time, learning rate and memory. The exit code is 2 if training would refuse it.",
      "trainer validate");
  config::ExperimentSource source;
  cli::add_experiment(app, source);
  int world_size = 1;
  app.add_option("--world-size", world_size, "number of ranks, all on this host")->check(CLI::Range(1, 100'000));
  bool lists_layers = false;
  app.add_flag("-v,--verbose", lists_layers, "also list the layers of the network");
  bool as_json = false;
  app.add_flag("--json", as_json, "print one JSON value");
  cli::parse(app, args);

  const auto logger = make_console_logger();
  const auto inspection =
      inspection::inspect(source, world_size, [&] { logger->info("measuring the memory and the time of a few training steps"); });
  for (const auto& warning : inspection.warnings) logger->warn("{}", warning);
  if (as_json) cli::print_json(to_json(inspection), 2);
  if (!inspection.problems.empty()) throw UsageError(join(inspection.problems, "\n"));
  if (as_json) return ExitCode::kDone;
  print("{}: no problem found\n", source.file.string());
  print_text(inspection, world_size, lists_layers);
  print("\nTo train: {}\n", training_command(source, world_size));
  return ExitCode::kDone;
}

}  // namespace trainer::commands
