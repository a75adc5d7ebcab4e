#include "session/shared_samples.h"

#include <nlohmann/json.hpp>

#include "session/compare_data.h"

namespace trainer::session {
namespace {

nlohmann::json to_json(const engine::DataSource& source) {
  const auto& info = source.info;
  return {{"num_samples", source.num_samples}, {"shape", info.shape},        {"is_image", info.is_image}, {"num_classes", info.num_classes},
          {"num_targets", info.num_targets},   {"has_masks", info.has_masks}};
}

void set_from_json(const nlohmann::json& json, engine::DataSource& source) {
  source.num_samples = json["num_samples"];
  source.info = {.shape = json["shape"],
                 .is_image = json["is_image"],
                 .num_classes = json["num_classes"],
                 .num_targets = json["num_targets"],
                 .has_masks = json["has_masks"]};
}

std::string describe_samples(const engine::Data& data) {
  const nlohmann::json json = {
      {"train", to_json(data.train)}, {"validation", to_json(data.validation)}, {"samples_per_epoch", data.samples_per_epoch}};
  return json.dump();
}

void set_samples(const std::string& description, engine::Data& data) {
  const auto json = nlohmann::json::parse(description);
  set_from_json(json["train"], data.train);
  set_from_json(json["validation"], data.validation);
  data.samples_per_epoch = json["samples_per_epoch"];
}

}  // namespace

void open_together(RankContext& context, engine::Data& data, const std::function<void()>& open) {
  const auto& ranks = context.ranks();
  for (const bool is_first_of_host : {true, false}) {
    context.barrier().on_all_ranks([&] {
      if (ranks.reads_data() && (context.local_rank() == 0) == is_first_of_host) open();
    });
  }
  require_same_data(context.barrier(), ranks, data);
  if (!ranks.reading) return;
  const auto description = ranks.reading->broadcast_bytes(ranks.reads_data() ? describe_samples(data) : "");
  if (!ranks.reads_data()) set_samples(description, data);
}

}  // namespace trainer::session
