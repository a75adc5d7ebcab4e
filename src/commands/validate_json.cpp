#include "commands/validate_json.h"

namespace trainer::commands {
namespace {

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

Json json_of(const inspection::RankPlan& plan) {
  auto ranks = Json::array();
  for (const auto& group : plan.groups) {
    auto batches = Json::array();
    for (const auto& run : group.batches) batches.push_back({{"count", run.count}, {"size", run.size}});
    for (int rank = group.first_rank; rank <= group.last_rank; ++rank) {
      ranks.push_back({{"rank", rank}, {"samples", group.num_samples}, {"batches", batches}});
    }
  }
  return ranks;
}

Json json_of(const inspection::MemoryEstimate& estimate, bool is_of_gpu) {
  Json bytes = Json::object();
  for (const auto& item : estimate.items) bytes[item.name] = item.bytes;
  return {{"device", is_of_gpu ? "cuda" : "cpu"}, {"bytes", std::move(bytes)}, {"total_bytes", estimate.total()}};
}

}  // namespace

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
    batches["repeated_samples"] = inspection.ranks->num_repeated;
    batches["left_out_samples"] = inspection.ranks->num_left_out;
    batches["ranks"] = json_of(*inspection.ranks);
  }
  if (!inspection.lr_curve.empty()) {
    auto& points = json["lr"] = Json::array();
    for (const auto& point : inspection.lr_curve) points.push_back({{"step", point.step}, {"lr", point.lr}});
  }
  if (inspection.step_seconds) {
    auto& time = json["time"] = {{"device", "cpu"}, {"step_seconds", *inspection.step_seconds}};
    if (const auto& plan = inspection.plan) {
      time["epoch_seconds"] = *inspection.step_seconds * static_cast<double>(plan->steps_per_epoch);
      time["training_seconds"] = *inspection.step_seconds * static_cast<double>(plan->total_steps);
    }
  }
  if (inspection.memory) json["memory"] = json_of(*inspection.memory, inspection.memory_is_of_gpu);
  return json;
}

}  // namespace trainer::commands
