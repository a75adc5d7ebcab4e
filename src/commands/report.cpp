// `trainer report`: a page with the curves and results of runs, as a file or served while they train.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <map>
#include <tuple>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "base/signal.h"
#include "base/text.h"
#include "cli/arguments.h"
#include "commands/command.h"
#include "commands/pictures.h"
#include "commands/run_end.h"
#include "report/live_server.h"
#include "report/page.h"
#include "trainer/error.h"

namespace trainer::commands {
namespace {

struct ReportArguments {
  std::vector<std::string> folders;
  std::vector<history::Json> crossvals = {};
  std::filesystem::path output = "report.html";
  bool is_live = false;
  int port = 0;
  bool with_heatmaps = false;
};

// Reads the runs whenever the page requests them, but the pictures of an evaluation only once.
class Runs {
 public:
  explicit Runs(const ReportArguments& arguments) : arguments_(arguments) {}

  history::Json data() {
    std::vector<history::RunRecord> runs;
    for (const auto& folder : arguments_.folders) runs.push_back(history::read_run(folder, history::Detail::kAll));
    const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
    // Pictures that are not requested again belong to an earlier evaluation and are dropped.
    auto earlier = std::exchange(pictures_, {});
    const auto read_pictures = [&](const auto& run, const auto& evaluation) { return pictures_of(run, evaluation, earlier); };
    return report::make_data(
        runs, {.now = now.count(), .is_live = arguments_.is_live, .read_pictures = read_pictures, .crossvals = arguments_.crossvals});
  }

  std::string version() const {
    std::vector<std::string> versions;
    for (const auto& folder : arguments_.folders) versions.push_back(history::version_of(folder));
    return join(versions, " ");
  }

 private:
  using Request = std::tuple<std::filesystem::path, std::string, std::string>;  // the folder, the configuration and the evaluation
  using KnownPictures = std::map<Request, report::Pictures>;

  report::Pictures pictures_of(const history::RunRecord& run, const history::Json& evaluation, KnownPictures& earlier) {
    const Request request(run.folder, run.config, evaluation.dump());
    pictures_.insert(earlier.extract(request));
    const auto [pictures, is_new] = pictures_.try_emplace(request);
    if (is_new) pictures->second = read_mistakes(run, evaluation, arguments_.with_heatmaps);
    return pictures->second;
  }

  const ReportArguments& arguments_;
  KnownPictures pictures_;  // of the latest call of data()
};

bool is_number_of_folds(const history::Json& value) {
  constexpr int64_t kMostFolds = 1000;  // of `trainer crossval`
  return value.is_number_integer() && value.get<int64_t>() > 1 && value.get<int64_t>() <= kMostFolds;
}

// Replaces each folder of `trainer crossval` or `trainer sweep` with its runs.
void replace_run_sets(ReportArguments& arguments) {
  for (const auto& folder : std::exchange(arguments.folders, {})) {
    if (!history::is_run_directory(folder) && std::filesystem::exists(std::filesystem::path(folder) / "sweep.json")) {
      auto runs = history::find_runs(folder);
      std::ranges::sort(runs);
      for (const auto& run : runs) arguments.folders.push_back(run.string());
      continue;
    }
    const auto file = std::filesystem::path(folder) / "crossval.json";
    if (history::is_run_directory(folder) || !std::filesystem::exists(file)) {
      arguments.folders.push_back(folder);
      continue;
    }
    auto crossval = history::Json::parse(read_file(file), nullptr, /*allow_exceptions=*/false);
    if (!crossval.is_object() || !is_number_of_folds(crossval.value("num_folds", history::Json())) || !crossval["mean"].is_object()) {
      throw DataError(fmt::format("{}: the file is damaged; start the same `trainer crossval` command again to write it", file.string()));
    }
    const auto num_folds = crossval["num_folds"].get<int64_t>();
    for (int64_t fold = 0; fold < num_folds; ++fold) {
      arguments.folders.push_back((std::filesystem::path(folder) / fmt::format("fold_{}", fold)).string());
    }
    // "runs/cv/" has a name despite its trailing slash.
    const auto path = (std::filesystem::path(folder) / "").lexically_normal().parent_path();
    crossval["name"] = path.filename().string();
    arguments.crossvals.push_back(std::move(crossval));
  }
}

void serve(const ReportArguments& arguments) {
  Runs runs(arguments);
  runs.data();  // reports a folder without a run now instead of in a request
  report::LiveServer server(arguments.port,
                            {.version = [&] { return runs.version(); },
                             .page = [&] { return report::make_page(runs.data()); },
                             .data = [&] { return runs.data().dump(-1, ' ', false, history::Json::error_handler_t::replace); }});
  install_stop_handlers();
  print("http://127.0.0.1:{}{}\n", server.port(), server.path());
  flush_standard_output();
  make_console_logger()->info(
      "open this address in a browser on this computer; `ssh -L {0}:127.0.0.1:{0} HOST` makes it reachable from another one. Anyone who "
      "has this address can read the page. Ctrl-C ends this command, not the training.",
      server.port());
  server.serve([] { return stop_signal() != 0; });
}

}  // namespace

ExitCode report(const std::vector<std::string>& args) {
  CLI::App app(
      "Writes a page with the curves and results of runs. The page opens in any browser and needs nothing else. With --live, the page "
      "follows the runs while they train.",
      "trainer report");
  ReportArguments arguments;
  app.add_option(
         "runs", arguments.folders,
         "run directories, such as runs/a runs/b, or folders of `trainer crossval` or `sweep`; several are drawn into the same charts")
      ->required()
      ->expected(1, 100)
      ->type_name("RUN");
  auto* output = app.add_option("--output", arguments.output, "the page; default: report.html")->type_name("FILE");
  app.add_flag("--heatmap", arguments.with_heatmaps,
               "also show which parts of a wrongly classified image spoke for the predicted class, computed with the run's checkpoint");
  auto* live = app.add_flag("--live", arguments.is_live, "serve the page on this computer (127.0.0.1) instead, until Ctrl-C");
  auto* port = app.add_option("--port", arguments.port, "with --live: the port; default: a free one")->check(CLI::Range(1, 65535));
  add_plugin_option(app);
  cli::parse(app, args);
  if (live->count() > 0 && output->count() > 0) throw UsageError("--live writes no file: omit --output, or --live");
  if (live->count() == 0 && port->count() > 0) throw UsageError("--port has no effect without --live: add --live, or omit --port");
  replace_run_sets(arguments);
  if (arguments.is_live) {
    serve(arguments);
  } else {
    refuse_to_overwrite(arguments.output);
    write_output_file(arguments.output, report::make_page(Runs(arguments).data()));
    print_written(arguments.output, "{}; open it in a browser", counted(arguments.folders.size(), "run"));
  }
  return ExitCode::kDone;
}

}  // namespace trainer::commands
