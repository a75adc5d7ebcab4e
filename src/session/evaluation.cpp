#include "session/evaluation.h"

#include "base/signal.h"
#include "distributed/stop_consensus.h"
#include "engine/evaluator.h"
#include "session/build.h"
#include "session/resume.h"
#include "session/shared_samples.h"

namespace trainer::session {
namespace {

// Only its `validation` is set.
engine::Data open_data(RankContext& context, const std::optional<EvaluationData>& evaluated, const engine::Network& network) {
  const auto& experiment = context.experiment();
  const auto& ranks = context.ranks();
  engine::Data data;
  open_together(context, data, [&] { data.validation = open_split(experiment, evaluated->dataset, evaluated->split, context.logger()); });
  context.barrier().on_all_ranks([&] { add_validation_batches(experiment, network.placement, ranks, context.logger(), data.validation); });
  return data;
}

}  // namespace

std::optional<EvaluationResult> evaluate(RankContext& context, const NetworkFile& file, const EvaluationRequest& request) {
  const auto& ranks = context.ranks();
  context.begin_run("");
  engine::Network network;
  context.barrier().on_all_ranks([&] {
    network = build_network(context.experiment(), context.placement(), ranks);
    file.load_weights(request.averaged, *network.model);
  });
  std::optional<EvaluationData> evaluated;
  context.barrier().on_all_ranks([&] {
    if (ranks.reads_data()) evaluated = find_evaluation_data(context.experiment(), file, request);
  });
  if (context.rank() == 0 && !evaluated->note.empty()) context.logger().warn("{}", evaluated->note);
  auto data = open_data(context, evaluated, network);
  auto& samples = data.validation;
  context.barrier().on_rank0([&] {
    if (const auto trained = file.class_names(); !trained.empty()) {
      check_class_names(file.path(), trained, samples.info.class_names, "evaluate data with the classes of its training");
    }
    return std::string();
  });
  try {
    distributed::StopConsensus stop_consensus(ranks.control);
    auto measured = engine::evaluate_model(network, ranks, samples, context.experiment().validation.tta,
                                           [&] { return stop_consensus.any_requested(stop_signal() != 0); });
    stop_consensus.finish();
    if (!measured) return std::nullopt;
    return EvaluationResult{.measured = std::move(*measured),
                            .class_names = samples.info.class_names,
                            .is_image = samples.info.is_image,
                            .is_all = evaluated && evaluated->is_all,
                            .name = evaluated ? evaluated->name : ""};
  } catch (const std::exception& error) {
    context.end_failed_gpu(error);
    throw;
  }
}

}  // namespace trainer::session
