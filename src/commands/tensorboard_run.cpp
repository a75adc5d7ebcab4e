#include "commands/tensorboard_run.h"

#include <charconv>

#include "commands/pictures.h"
#include "config/yaml.h"
#include "distributed/first_line.h"

namespace trainer::commands {
namespace {

reporting::HParam to_hparam(const std::string& name, const Node& node) {
  if (node.kind != Node::Kind::kScalar) return {name, config::to_inline_yaml(node)};
  if (node.quoted) return {name, node.text};
  if (node.text == "true" || node.text == "false") return {name, node.text == "true"};
  double number = 0;
  const auto* end = node.text.data() + node.text.size();
  const auto [parsed, error] = std::from_chars(node.text.data(), end, number);
  return error == std::errc() && parsed == end ? reporting::HParam{name, number} : reporting::HParam{name, node.text};
}

// Each value has the path of its key; lists are text.
void append_hparams(std::vector<reporting::HParam>& hparams, const std::string& path, const Node& node) {
  if (node.kind == Node::Kind::kNull) return;
  if (node.kind != Node::Kind::kMap) {
    hparams.push_back(to_hparam(path, node));
    return;
  }
  for (const auto& member : node.members) append_hparams(hparams, path.empty() ? member.name : path + "." + member.name, member.value);
}

// All that may influence the result, so that runs can be compared in every key that differs between them.
std::vector<reporting::HParam> hparams_of(const std::string& config_text) {
  auto tree = config::parse_yaml(config_text, "the configuration");
  std::erase_if(tree.members, [](const Node::Member& member) {
    return member.name == "experiment" || member.name == "output_dir" || member.name == "logging" || member.name == "checkpoint";
  });
  std::vector<reporting::HParam> hparams;
  append_hparams(hparams, "", tree);
  return hparams;
}

}  // namespace

reporting::TensorboardRun describe_for_tensorboard(const config::Experiment& experiment, const std::string& config_text,
                                                   session::Session& session, Logger& logger) {
  auto& parts = session.parts();
  reporting::TensorboardRun run{.config_text = config_text,
                                .hparams = hparams_of(config_text),
                                .has_new_config = session.has_new_configuration(),
                                .class_names = parts.train.samples.info().class_names};
  if (session.is_resumed()) return run;
  try {
    run.first_batch = draw_first_batch(experiment, parts);
  } catch (const std::exception& error) {
    logger.warn("TensorBoard gets no picture of the first batch: {}", distributed::first_line(error));
  }
  return run;
}

}  // namespace trainer::commands
