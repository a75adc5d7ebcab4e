#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/saver.h"
#include "datasets/registry.h"
#include "datasets/staged_folder.h"
#include "run/run_directory.h"
#include "run/session/rank_context.h"
#include "run/session/resume.h"
#include "train/engine/training_loop.h"

namespace trainer::session {

struct SessionOptions {
  // The directory of the run: rank 0 holds its lock and writes its files, except for the logs of the other ranks. Empty: the run has none.
  std::filesystem::path run_directory = {};
  std::string resume = "auto";                 // the value of --resume; only for a run with a directory
  std::vector<std::string> command_line = {};  // for the run directory's environment.json
  // Without a run directory: the folder in which rank 0 saves (empty: it does not save), and on rank 0 the checkpoint to resume from.
  std::filesystem::path checkpoint_folder = {};
  std::optional<Checkpoint> checkpoint = {};
};

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
  // `context` must outlive this object.
  explicit Session(RankContext& context, SessionOptions options = {});
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  engine::Parts& parts() { return *parts_; }
  // Null except on rank 0 of a run with a directory.
  const run::RunDirectory* directory() const { return directory_.get(); }
  // Whether the run resumes from a checkpoint.
  bool is_resumed() const { return !resume_from_.empty(); }

  // Collective: trains to the end and returns true, or until a stop request and returns false. `reporter` receives this rank's events;
  // `hooks` are called at each step. Throws the errors of engine::TrainingLoop.
  bool train(reporting::Sink& reporter, const std::function<bool()>& should_stop, const std::vector<engine::TrainingHook*>& hooks = {});

 private:
  void build();
  // On rank 0. Returns the path of the checkpoint to resume from (empty: start at the first step), or kFinished.
  std::string open_run_directory();
  // On rank 0.
  void begin_run_directory(const device::Placement& placement, const std::vector<std::string>& class_names, const std::string& split);
  void open_log();
  // Returns the data set of the experiment, copied to a disk of this host if dataset.stage_to is set.
  data::DatasetFactory place_dataset();
  engine::Data open_data(engine::Network& network);
  void warn_of_plan(const engine::Plan& plan) const;
  void warn_of_autocast(engine::Network& network, const std::vector<int64_t>& sample_shape) const;
  void report_frozen(const engine::Network& network) const;
  void init_weights(engine::Network& network, const engine::Data& data) const;
  // Collective: returns `images`, or with training.cache_features their features.
  engine::Data take_features(engine::Network& network, engine::Data images);
  void open_saver();
  void check_sizes(const checkpoint::Store& store, const std::filesystem::path& folder) const;
  void bring_best(const checkpoint::Store& store) const;
  engine::RunCallbacks run_callbacks();

  RankContext& context_;
  SessionOptions options_;
  std::unique_ptr<run::RunDirectory> directory_;
  RunStart start_;                     // on rank 0
  bool has_begun_ = false;             // whether this run has changed the run directory
  std::string sampler_digest_;         // on rank 0
  std::string validation_samples_;     // on rank 0, their summary for environment.json; empty if the run does not validate
  std::string split_digest_;           // on rank 0, of dataset.split
  std::filesystem::path resume_from_;  // empty: start at the first step
  std::optional<datasets::StagedFolder> staged_;
  std::unique_ptr<engine::Parts> parts_;
  std::optional<checkpoint::Saver> saver_;
};

}  // namespace trainer::session
