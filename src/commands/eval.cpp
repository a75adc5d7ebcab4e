#include "commands/eval.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "base/log.h"
#include "base/text.h"
#include "cli/arguments.h"
#include "cli/output.h"
#include "commands/command.h"
#include "commands/sample_progress.h"
#include "reporting/evaluation.h"
#include "run/evaluation/file_evaluation.h"

namespace trainer::commands {
namespace {

struct EvalArguments {
  std::string checkpoint;
  evaluation::EvaluationRequest request;
  bool json = false;
  world::RankFlags rank_env;
};

EvalArguments parse_eval_arguments(const std::vector<std::string>& args) {
  EvalArguments arguments;
  CLI::App app(
      "Evaluates the network of a checkpoint on the validation set: metrics, a table of the classes and the confusion matrix.\n"
      "For a calibrated checkpoint (trainer calibrate), also the effect of its temperature and thresholds.\n"
      "For other images: trainer eval --checkpoint FILE --data FOLDER\n"
      "With several processes: trainer launch eval --checkpoint FILE",
      "trainer eval");
  auto& request = arguments.request;
  cli::add_network_file(app, arguments.checkpoint, request.config);
  app.add_option("--data", request.data,
                 "evaluate all images of another data set: a folder with a folder of images for each class, a CSV file with a line "
                 "path,label for each image, or a folder written by `trainer data pack`. Labels are matched by class name")
      ->type_name("DIR|FILE");
  std::string split;
  app.add_option("--split", split,
                 "the part of the images to evaluate: validation (default), train, or test (held out by dataset.split); each part with "
                 "dataset.validation_transforms")
      ->check(CLI::IsMember({"validation", "train", "test"}));
  cli::add_tta(app, request.tta);
  app.add_flag("--ema", request.averaged, "evaluate the averaged parameters (training.ema)");
  app.add_flag("--json", arguments.json, "print one JSON object instead of tables (docs/evaluation.md)");
  app.add_option("overrides", request.overrides, "overrides of keys of the experiment, such as validation.batch_size=64")
      ->type_name("key=value");
  cli::add_rank_flags(app, arguments.rank_env);
  add_plugin_option(app);
  cli::parse(app, args);
  if (!split.empty())
    request.split = split == "train" ? data::Split::kTrain : split == "test" ? data::Split::kTest : data::Split::kValidation;
  return arguments;
}

constexpr size_t kMostClassesOfMatrix = 20;
constexpr size_t kWidthOfNames = 100;  // of a confusion matrix that is not printed to a terminal

std::string heading(const reporting::Evaluation& evaluation, const reporting::Fields& of_what, std::optional<size_t> width) {
  reporting::Fields fields = {{evaluation.split}};
  for (const auto& metric : evaluation.event.metrics) fields.push_back({metric.info.name + " " + reporting::format_value(metric)});
  const auto line = [&](const reporting::Fields& parts) {
    return (width ? reporting::wrapped(parts, *width) : reporting::to_line(parts)) + '\n';
  };
  return line(of_what) + line(fields);
}

// `names`: of the classes or the numbers; `titles`: of the other columns.
std::string table_of(const std::string& title, const std::vector<std::string>& names, const std::vector<std::string>& titles,
                     const std::function<cli::Row(size_t row)>& cells_of) {
  std::vector<cli::Column> columns = {{title}};
  for (const auto& one : titles) columns.push_back({.title = one, .is_number = true});
  std::vector<cli::Row> rows;
  for (size_t i = 0; i < names.size(); ++i) {
    rows.push_back(cells_of(i));
    rows.back().insert(rows.back().begin(), names[i]);
  }
  return '\n' + cli::to_table(columns, std::move(rows));
}

std::string percent(double part) { return fmt::format("{:.2f}%", 100 * part); }

std::string table_of_classes(const std::vector<std::string>& names, const std::vector<int64_t>& confusion) {
  const auto scores = reporting::scores_of_classes(confusion);
  return table_of("class", names, {"samples", "recall", "precision", "f1"}, [&](size_t i) -> cli::Row {
    return {std::to_string(scores[i].num_samples), percent(scores[i].recall), percent(scores[i].precision), percent(scores[i].f1)};
  });
}

std::string table_of_labels(const std::vector<std::string>& names, const std::vector<reporting::LabelResult>& labels) {
  return table_of("class", names, {"samples", "AP", "threshold", "recall", "precision", "f1"}, [&](size_t i) -> cli::Row {
    const auto& one = labels[i];
    return {std::to_string(one.num_samples),
            fmt::format("{:.4f}", one.average_precision),
            fmt::format("{:.4f}", one.threshold),
            percent(one.recall),
            percent(one.precision),
            percent(one.f1)};
  });
}

std::string table_of_numbers(const std::vector<std::string>& names, const std::vector<reporting::NumberResult>& numbers) {
  return table_of("number", names, {"mae", "rmse", "r2"}, [&](size_t i) -> cli::Row {
    return {fmt::format("{:.6g}", numbers[i].mae), fmt::format("{:.6g}", numbers[i].rmse), fmt::format("{:.4f}", numbers[i].r2)};
  });
}

// The metrics, a table of the classes and the confusion matrix. `of_what`: the images, the network and its file.
std::string evaluation_text(const reporting::Evaluation& evaluation, const reporting::Fields& of_what, std::optional<size_t> width) {
  const auto& confusion = evaluation.event.classes.confusion;
  const auto& labels = evaluation.event.labels.classes;
  const auto& numbers = evaluation.event.numbers.numbers;
  std::vector<std::string> names;
  const auto count = std::max({reporting::num_classes_of(confusion), labels.size(), numbers.size()});
  for (size_t i = 0; i < count; ++i) {
    names.push_back(printable_line(reporting::name_of_class(evaluation.output_names, static_cast<int64_t>(i))));
  }
  auto text = heading(evaluation, of_what, width);
  if (!confusion.empty()) text += table_of_classes(names, confusion) + confusion_text("", names, confusion, width);
  if (!labels.empty()) text += table_of_labels(names, labels);
  if (!numbers.empty()) text += table_of_numbers(names, numbers);
  return text;
}

void print_result(const EvalArguments& arguments, const std::string& model, const network::NetworkFile& file,
                  evaluation::EvaluationResult result) {
  auto& measured = result.measured;
  const auto progress = file.progress();
  const auto split = arguments.request.split.value_or(data::Split::kValidation);
  const reporting::Evaluation evaluation{.split = result.is_all                  ? "all"
                                                  : split == data::Split::kTrain ? "train"
                                                  : split == data::Split::kTest  ? "test"
                                                                                 : "validation",
                                         .event = {.epoch = progress ? progress->epoch_of_step() : 0,
                                                   .step = progress ? progress->step : 0,
                                                   .metrics = std::move(measured.metrics),
                                                   .num_samples = measured.num_samples,
                                                   .classes = std::move(measured.classes),
                                                   .labels = std::move(measured.labels),
                                                   .numbers = std::move(measured.numbers)},
                                         .output_names = std::move(result.output_names)};
  const auto& operating = result.operating_point;
  if (arguments.json) {
    auto json = reporting::to_json(evaluation);
    if (operating) {
      auto& object = json["operating_point"] = to_json(operating->point, operating->decisions, evaluation.output_names);
      object["calibration_error"] = operating->calibration_error;
    }
    for (const auto& metric : result.refitted_metrics) json["refitted_metrics"][metric.info.name] = metric.value;
    return cli::print_json(json);
  }
  const auto of_step = progress ? fmt::format(", epoch {}, step {}", progress->epoch_of_step() + 1, progress->step) : "";
  const reporting::Fields of_what = {
      {fmt::format("{} of {}:", counted(evaluation.event.num_samples, result.is_image ? "image" : "sample"), result.name)},
      {fmt::format("{} of {}{}{}", model, file.path(), of_step, arguments.request.averaged ? ", averaged parameters" : "")}};
  print("{}", evaluation_text(evaluation, of_what, reporting::line_width(stdout)));
  if (!result.refitted_metrics.empty()) {
    std::string refitted;
    for (const auto& metric : result.refitted_metrics)
      refitted += fmt::format("  {} {}", metric.info.name, reporting::format_value(metric));
    print("\nThe results are at the thresholds that predict uses. At the best thresholds for these images, which is too favourable:{}\n",
          refitted);
  }
  if (!operating) return;
  print("\nas calibrated, with temperature {:.4f}; 95% intervals in brackets\n", operating->point.temperature);
  print("calibration error  {:.2f}%\n", 100 * operating->calibration_error);
  print("{}", decisions_text(operating->point, operating->decisions, evaluation.output_names));
}

}  // namespace

ExitCode eval(const std::vector<std::string>& args) {
  auto arguments = parse_eval_arguments(args);
  const auto logger = make_console_logger();
  SampleProgress progress("evaluated", *logger, 0, kLongWait);
  arguments.request.report = [&](int64_t num_done, int64_t num_samples) { progress.update(num_done, num_samples); };
  rank::RankProcess process(arguments.rank_env);
  std::optional<network::NetworkFile> file;
  const auto load = [&](const config::Registries& registries) {
    file.emplace(arguments.checkpoint);
    return evaluation::load_evaluation(*file, arguments.request, process.rank_env().rank, registries);
  };
  return process.run(load, [&](rank::RankContext& context) {
    auto result = evaluation::evaluate(context, *file, arguments.request);
    progress.clear();
    if (!result) return ExitCode::kStopped;
    if (context.rank() == 0) print_result(arguments, context.experiment().model.component.name, *file, std::move(*result));
    return ExitCode::kDone;
  });
}

std::string confusion_text(const std::string& of_what, const std::vector<std::string>& names, const std::vector<int64_t>& confusion,
                           std::optional<size_t> width) {
  // The columns have the names of the classes where the line is wide enough for them, otherwise numbers, which the rows then have too.
  const auto table_with = [&](bool has_names) {
    std::vector<cli::Column> columns = {{""}};
    std::vector<cli::Row> rows;
    for (size_t i = 0; i < names.size(); ++i) {
      columns.push_back({.title = has_names ? names[i] : std::to_string(i), .is_number = true});
      auto& row = rows.emplace_back(
          cli::Row{has_names ? names[i] : fmt::format("{:>{}}  {}", i, std::to_string(names.size() - 1).size(), names[i])});
      for (size_t j = 0; j < names.size(); ++j) row.push_back(std::to_string(confusion[i * names.size() + j]));
    }
    return cli::to_table(columns, std::move(rows));
  };
  const auto width_of = [](const std::string& table) { return cli::text_width(table.substr(0, table.find('\n'))); };
  std::string table;
  if (names.size() <= kMostClassesOfMatrix) table = table_with(true);
  if (width_of(table) > width.value_or(kWidthOfNames)) table = table_with(false);
  if (table.empty() || (width && width_of(table) > *width)) {
    return fmt::format("\nconfusion matrix{} of {} classes: not shown; --json prints it\n", of_what, names.size());
  }
  return fmt::format("\nconfusion matrix{} (rows: actual, columns: predicted)\n{}", of_what, table);
}

reporting::Json to_json(const evaluation::Measured& measured) {
  return {{"value", measured.value}, {"low", measured.low}, {"high", measured.high}};
}

std::string percent(const evaluation::Measured& measured) {
  return fmt::format("{:.2f}% ({:.2f}% to {:.2f}%)", 100 * measured.value, 100 * measured.low, 100 * measured.high);
}

reporting::Json to_json(const std::optional<evaluation::Measured>& measured) { return measured ? to_json(*measured) : reporting::Json(); }

reporting::Json to_json(const inference::OperatingPoint& point, const evaluation::DecisionResult& decisions,
                        const std::vector<std::string>& class_names) {
  reporting::Json json = {{"temperature", point.temperature},
                          {"reject_below", point.reject_below},
                          {"accuracy", to_json(decisions.accuracy)},
                          {"rejected", to_json(decisions.rejected)}};
  if (const auto& threshold = point.threshold) {
    json["threshold"] = {{"class", reporting::name_of_class(class_names, threshold->label)},
                         {"label", threshold->label},
                         {"probability", threshold->probability},
                         {"misses", to_json(decisions.misses)},
                         {"false_alarms", to_json(decisions.false_alarms)}};
  }
  return json;
}

std::string decisions_text(const inference::OperatingPoint& point, const evaluation::DecisionResult& decisions,
                           const std::vector<std::string>& class_names) {
  const auto part = [](const std::optional<evaluation::Measured>& measured, const char* words, const char* words_of_none) {
    return measured ? percent(*measured) + words : words_of_none;
  };
  std::string text;
  if (const auto& threshold = point.threshold) {
    text += fmt::format("class              {}: assigned if its probability is at least {:.6g}; {}, {}\n",
                        printable_line(reporting::name_of_class(class_names, threshold->label)), threshold->probability,
                        part(decisions.misses, " of its images are missed", "no image belongs to it"),
                        part(decisions.false_alarms, " of the others are falsely assigned to it", "no image belongs to another class"));
  }
  if (point.reject_below > 0) {
    text += fmt::format("rejected           {} {}\n",
                        part(decisions.rejected, " have a probability below", "no images have a probability below"), point.reject_below);
  }
  text += fmt::format("accuracy           {}\n",
                      part(decisions.accuracy, point.reject_below > 0 ? " of the others" : "", "unknown, because all images are rejected"));
  return text;
}

}  // namespace trainer::commands
