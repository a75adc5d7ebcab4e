#include "session/network_description.h"

#include <nlohmann/json.hpp>

#include "config/load.h"
#include "data/pipeline.h"
#include "datasets/registry.h"
#include "session/registries.h"
#include "trainer/model.h"

namespace trainer::session {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const Node& node) {
  using Kind = Node::Kind;
  Json json;
  if (node.kind == Kind::kList) {
    json = Json::array();
    for (const auto& item : node.items) json.push_back(to_json(item));
  } else if (node.kind == Kind::kMap) {
    json = Json::object();
    for (const auto& member : node.members) json[member.name] = to_json(member.value);
  } else if (node.kind == Kind::kScalar) {
    // Numbers and truth values are spelled alike; all else is text.
    json = node.quoted ? Json(Json::value_t::discarded) : Json::parse(node.text, nullptr, /*allow_exceptions=*/false);
    if (json.is_discarded()) json = node.text;
  }
  return json;
}

}  // namespace

data::DatasetInfo samples_of(const config::Experiment& experiment, const NetworkFile& file) {
  auto info = datasets::dataset_registry().make(experiment.dataset.component).info;
  if (const auto names = file.class_names(); !names.empty()) info.class_names = names;
  if (const auto shape = file.sample_shape(); !shape.empty()) info.shape = shape;
  const auto& model = dynamic_cast<const models::ModelOptions&>(*experiment.model.component.options);
  if (info.num_classes != 0) info.num_classes = model.num_outputs();
  if (static_cast<int64_t>(info.class_names.size()) != info.num_classes) info.class_names.clear();
  return info;
}

std::string describe_network(config::Experiment& experiment, const NetworkFile& file) {
  const auto info = samples_of(experiment, file);
  const auto tree = config::parse_yaml(config::to_yaml(experiment, all_registries()), file.path());
  const auto& transforms = tree.find("dataset")->value.find("validation_transforms")->value;
  const Json description = {
      {"model", experiment.model.component.name},
      {"class_names", info.class_names},
      {"input_shape", data::Pipeline(experiment.dataset.validation_transforms, info, {}).output_shape()},
      {"transforms", to_json(transforms)},
  };
  return description.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace trainer::session
