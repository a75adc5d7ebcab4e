#pragma once

#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/saver.h"
#include "reporting/sinks.h"
#include "run/recipe/recipe.h"
#include "run/run_directory.h"
#include "run/session/resume.h"
#include "train/engine/training_loop.h"

namespace trainer::session {

// Thrown on all ranks, after a log message, if the run directory holds a finished run, so that there is nothing to train.
struct FinishedRun : std::exception {
  const char* what() const noexcept override { return "the run directory holds a finished run"; }
};

// One rank's part of a run that is ready to train. The constructor is collective and builds in this order: network (model, loss,
// optimizer), run directory and its log, data (downloaded by one process of each host), initial weights, data parallelism, checkpoint
// saver. Except for lines in logs, the content of the run directory is not changed before all checks have passed; if one fails, a new run
// directory is removed again. Members are destroyed in the reverse order. An Error on any rank is thrown on all ranks, with its message on
// only one.
class Session {
 public:
  // Both arguments must outlive this object, which uses up some parts of the recipe.
  Session(run::Rank& rank, recipe::Recipe& recipe);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  engine::Parts& parts() { return *parts_; }
  // Null except on rank 0 of a run with a directory, which holds its lock and writes its files, except for the logs of the other ranks.
  const run::RunDirectory* directory() const { return directory_.get(); }
  // Adds the sinks that write the files of the run directory, if this rank writes them, and those of TrainerParts::sinks on rank 0.
  // `lines`: also receives the lines of metrics.jsonl; may be null. Both must outlive `reporter`.
  void add_sinks(reporting::Reporter& reporter, reporting::EventCommand* lines = nullptr);

  // Collective, before train(), which then continues from this checkpoint; only rank 0 reads it. A run with a directory resumes by itself.
  void resume(const std::filesystem::path& file);
  // Collective: trains to the end and returns true, or until a stop request and returns false. `reporter` receives this rank's events;
  // `hooks` are called at each step, after those of TrainerParts. To be called once. Throws the errors of engine::TrainingLoop.
  bool train(reporting::Sink& reporter, const std::function<bool()>& should_stop, const std::vector<engine::TrainingHook*>& hooks = {});

 private:
  void build();
  bool is_resumed() const { return !resume_from_.empty(); }
  // On rank 0. Returns the path of the checkpoint to resume from (empty: start at the first step), or kFinished.
  std::string open_run_directory();
  // On rank 0.
  void begin_run_directory(const device::Placement& placement, const data::DatasetInfo& info, const std::string& split);
  void open_log();
  engine::Data open_data(engine::Network& network);
  void warn(const engine::Network& network, const engine::Data& images) const;
  void report_frozen(const engine::Network& network) const;
  void init_weights(engine::Network& network, const engine::Samples& train) const;
  // Collective: returns `images`, or their features.
  engine::Data take_features(engine::Network& network, engine::Data images);
  void open_saver();
  void check_sizes(const checkpoint::Store& store, const std::filesystem::path& folder) const;
  void bring_best(const checkpoint::Store& store) const;
  engine::RunCallbacks run_callbacks();

  run::Rank& rank_;
  recipe::Recipe& recipe_;
  std::unique_ptr<run::RunDirectory> directory_;
  RunStart start_;                     // on rank 0
  bool has_begun_ = false;             // whether this run has changed the run directory
  std::string training_samples_;       // on rank 0, their summary for environment.json
  std::string validation_samples_;     // the same; empty if the run does not validate
  std::vector<DataDigest> digests_;    // on rank 0
  std::filesystem::path resume_from_;  // empty: start at the first step
  std::unique_ptr<engine::Parts> parts_;
  std::optional<checkpoint::Saver> saver_;
};

}  // namespace trainer::session
