#include "train/engine/step_record.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "checkpoint/pytorch_file.h"
#include "train/engine/init_from.h"
#include "trainer/checkpoint.h"
#include "trainer/error.h"
#include "trainer/state.h"

namespace trainer::engine {
namespace {

std::filesystem::path json_file(const std::filesystem::path& folder) { return folder / "step.json"; }
std::filesystem::path model_file(const std::filesystem::path& folder) { return folder / "model.pt"; }

[[noreturn]] void refuse(const std::filesystem::path& file, const std::string& reason) {
  throw DataError(fmt::format("{}: {}; use the folder that the run's message names", file.string(), reason));
}

}  // namespace

std::filesystem::path step_config_file(const std::filesystem::path& folder) { return folder / "config.yaml"; }

std::vector<std::filesystem::path> step_files(const std::filesystem::path& folder) {
  return {step_config_file(folder), model_file(folder), json_file(folder)};
}

void write_step(const std::filesystem::path& folder, const StepRecord& record, const torch::nn::Module& model,
                const std::string& config_text) {
  std::filesystem::create_directories(folder);
  write_file_atomically(step_config_file(folder), config_text);
  const auto state = state::state_of(model);
  state::Dict tensors;
  for (const auto& item : state.items()) tensors.add(item.key, std::get<torch::Tensor>(item.value.value()).cpu());
  checkpoint::save(model_file(folder), tensors);
  nlohmann::ordered_json json = {{"step", record.step},
                                 {"epoch", record.epoch},
                                 {"lr", record.lr},
                                 {"loss_scale", nullptr},
                                 {"rank", record.rank},
                                 {"world_size", record.world_size},
                                 {"is_joined", record.is_joined},
                                 {"num_group_samples", record.num_group_samples},
                                 {"first_non_finite", record.first_non_finite},
                                 {"repeats", record.repeats},
                                 {"batches", record.batches},
                                 {"occurrences", record.occurrences}};
  if (record.loss_scale) json["loss_scale"] = *record.loss_scale;
  write_file_atomically(json_file(folder), json.dump() + '\n');
}

StepRecord read_step(const std::filesystem::path& folder) {
  const auto file = json_file(folder);
  if (!std::filesystem::exists(file)) refuse(file, "there is no such file");
  try {
    const auto json = nlohmann::json::parse(read_file(file));
    StepRecord record{.step = json.at("step"),
                      .epoch = json.at("epoch"),
                      .lr = json.at("lr"),
                      .rank = json.at("rank"),
                      .world_size = json.at("world_size"),
                      .is_joined = json.at("is_joined"),
                      .num_group_samples = json.at("num_group_samples"),
                      .batches = json.at("batches"),
                      .occurrences = json.value("occurrences", std::vector<std::vector<uint32_t>>(json.at("batches").size())),
                      .first_non_finite = json.at("first_non_finite"),
                      .repeats = json.at("repeats")};
    if (!json.at("loss_scale").is_null()) record.loss_scale = json.at("loss_scale").get<double>();
    return record;
  } catch (const nlohmann::json::exception& error) {
    refuse(file, fmt::format("this is not a record of a step ({})", error.what()));
  }
}

void read_model(const std::filesystem::path& folder, torch::nn::Module& model) {
  const auto file = model_file(folder);
  if (!std::filesystem::exists(file)) refuse(file, "there is no such file");
  try {
    load_weights(checkpoint::load(file), file.string(), model);
  } catch (const std::exception& error) {
    refuse(file, fmt::format("this is not a state of the model ({})", std::string(error.what()).substr(0, 200)));
  }
}

}  // namespace trainer::engine
