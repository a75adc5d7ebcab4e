#include "commands/eval.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>

#include "base/log.h"
#include "base/text.h"
#include "cli/arguments.h"
#include "cli/output.h"
#include "commands/command.h"
#include "commands/operating_point.h"
#include "commands/sample_progress.h"
#include "reporting/evaluation.h"
#include "reporting/values.h"
#include "run/evaluation/file_evaluation.h"

namespace trainer::commands {
namespace {

struct EvalArguments {
  std::string checkpoint;
  session::EvaluationRequest request;
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

std::string rounded(const reporting::Metric& metric) {
  return metric.info.format == reporting::MetricFormat::kPercent ? fmt::format("{:.2f}%", 100 * metric.value)
                                                                 : fmt::format("{:.4f}", metric.value);
}

void print_result(const EvalArguments& arguments, const std::string& model, const session::NetworkFile& file,
                  session::EvaluationResult result) {
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
    for (const auto& metric : result.refitted_metrics) refitted += fmt::format("  {} {}", metric.info.name, rounded(metric));
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
  LateProgress progress(*logger);
  arguments.request.report = [&](int64_t num_done, int64_t num_samples) { progress.update(num_done, num_samples); };
  session::RankProcess process(arguments.rank_env);
  return process.run([&] {
    std::optional<session::NetworkFile> file;
    session::RankContext context(process, [&](const config::Registries& registries) {
      file.emplace(arguments.checkpoint);
      return session::load_evaluation(*file, arguments.request, process.rank_env().rank, registries);
    });
    return context.run([&] {
      auto result = session::evaluate(context, *file, arguments.request);
      progress.clear();
      if (!result) return ExitCode::kStopped;
      if (context.rank() == 0) print_result(arguments, context.experiment().model.component.name, *file, std::move(*result));
      return ExitCode::kDone;
    });
  });
}

namespace {

constexpr size_t kMostClassesOfMatrix = 20;
constexpr size_t kWidthOfNames = 100;  // of a confusion matrix that is not printed to a terminal

std::string padded(const std::string& text, size_t width) {
  return text + std::string(width - std::min(width, cli::text_width(text)), ' ');
}

std::string heading(const reporting::Evaluation& evaluation, const reporting::Fields& of_what, std::optional<size_t> width) {
  reporting::Fields fields = {{evaluation.split}};
  for (const auto& metric : evaluation.event.metrics) fields.push_back({metric.info.name + " " + rounded(metric)});
  const auto line = [&](const reporting::Fields& parts) {
    return (width ? reporting::wrapped(parts, *width) : reporting::to_line(parts)) + '\n';
  };
  return line(of_what) + line(fields);
}

// `names`: of the classes or the numbers; `titles`: of the columns.
std::string table_of(const std::string& title, const std::vector<std::string>& names, const std::vector<std::string>& titles,
                     const std::function<std::vector<std::string>(size_t row)>& cells_of) {
  size_t name_width = title.size();
  for (const auto& name : names) name_width = std::max(name_width, cli::text_width(name));
  const auto width_of = [&](size_t column) { return titles[column] == "samples" ? 8 : 9; };
  std::string text = '\n' + padded(title, name_width);
  for (size_t column = 0; column < titles.size(); ++column) text += fmt::format("  {:>{}}", titles[column], width_of(column));
  text += '\n';
  for (size_t i = 0; i < names.size(); ++i) {
    text += padded(names[i], name_width);
    const auto cells = cells_of(i);
    for (size_t column = 0; column < cells.size(); ++column) text += fmt::format("  {:>{}}", cells[column], width_of(column));
    text += '\n';
  }
  return text;
}

std::string percent(double part) { return fmt::format("{:.2f}%", 100 * part); }

std::string table_of_classes(const std::vector<std::string>& names, const std::vector<int64_t>& confusion) {
  const auto scores = reporting::scores_of_classes(confusion);
  return table_of("class", names, {"samples", "recall", "precision", "f1"}, [&](size_t i) -> std::vector<std::string> {
    return {std::to_string(scores[i].num_samples), percent(scores[i].recall), percent(scores[i].precision), percent(scores[i].f1)};
  });
}

std::string table_of_labels(const std::vector<std::string>& names, const std::vector<reporting::LabelResult>& labels) {
  return table_of("class", names, {"samples", "AP", "threshold", "recall", "precision", "f1"}, [&](size_t i) -> std::vector<std::string> {
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
  return table_of("number", names, {"mae", "rmse", "r2"}, [&](size_t i) -> std::vector<std::string> {
    return {fmt::format("{:.6g}", numbers[i].mae), fmt::format("{:.6g}", numbers[i].rmse), fmt::format("{:.4f}", numbers[i].r2)};
  });
}

}  // namespace

std::string confusion_text(const std::string& of_what, const std::vector<std::string>& names, const std::vector<int64_t>& confusion,
                           std::optional<size_t> width) {
  size_t name_width = 0;
  for (const auto& name : names) name_width = std::max(name_width, cli::text_width(name));
  // The columns have the names of the classes where the line is wide enough for them, otherwise numbers, which the rows then have too.
  const auto numbers_width = std::to_string(std::ranges::max(confusion)).size();
  size_t cell = 2 + numbers_width;
  auto columns = names;
  for (const auto& name : names) cell = std::max(cell, 2 + cli::text_width(name));
  const bool has_names = name_width + names.size() * cell <= width.value_or(kWidthOfNames);
  if (!has_names) {
    cell = 2 + std::max(numbers_width, std::to_string(names.size() - 1).size());
    for (size_t i = 0; i < names.size(); ++i) columns[i] = std::to_string(i);
    name_width += 2 + columns.back().size();
  }
  if (names.size() > kMostClassesOfMatrix || (width && name_width + names.size() * cell > *width)) {
    return fmt::format("\nconfusion matrix{} of {} classes: not shown; --json prints it\n", of_what, names.size());
  }
  std::string text = fmt::format("\nconfusion matrix{} (rows: actual, columns: predicted)\n", of_what);
  const auto row_of = [&](size_t i) {
    return has_names ? names[i] : fmt::format("{:>{}}  {}", columns[i], columns.back().size(), names[i]);
  };
  text += std::string(name_width, ' ');
  for (const auto& column : columns) text += std::string(cell - cli::text_width(column), ' ') + column;
  text += '\n';
  for (size_t i = 0; i < names.size(); ++i) {
    text += padded(row_of(i), name_width);
    for (size_t j = 0; j < names.size(); ++j) text += fmt::format("{:>{}}", confusion[i * names.size() + j], cell);
    text += '\n';
  }
  return text;
}

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

}  // namespace trainer::commands
