// Training steps of one of several ranks that exchange gradients over gloo, for bench.py. Rank and world size are in the environment
// variables of torchrun or `trainer launch`. Rank 0 communicates with bench.py and sends the number of steps to the others.

#include <unistd.h>

#include <ctime>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "base/crash.h"
#include "bench/serve.h"
#include "bench/training.h"
#include "distributed/agreement.h"
#include "distributed/rendezvous.h"
#include "distributed/supervision/failure_detector.h"
#include "launch/world/host_resources.h"

namespace {

using namespace trainer;
using nlohmann::json;

struct RanksOptions {
  bench::TrainingOptions training;
  bool measures_overlap = false;
  bool measures_watch = false;
};

// Calls serve() on rank 0, which sends the number of steps to the other ranks; 0 ends them. Collective.
void serve_together(const distributed::ProcessGroup& world, const json& settings, const std::function<json(int64_t)>& run) {
  const auto count = torch::zeros({1}, torch::kInt64);
  if (world.rank() == 0) {
    bench::serve(settings, [&](int64_t value) {
      count.fill_(value);
      world.broadcast(count);
      return run(value);
    });
    count.zero_();
    world.broadcast(count);
    return;
  }
  while (true) {
    world.broadcast(count);
    const auto value = count.item<int64_t>();
    if (value == 0) return;
    run(value);
  }
}

// Nanoseconds of a clock shared by all processes of a host.
int64_t now() { return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Measures how long ranks wait for sums of gradients after the last gradient of a step is computed (`exposed`), and how long the exchange
// of the same buckets takes without other work (`alone`). Both begin when the last rank is ready and end when the last rank has all sums.
class Overlap : public engine::TrainingHook {
 public:
  Overlap(engine::Parts& parts, bench::Training& training)
      : world_(*parts.ranks.world),
        data_parallel_(*parts.data_parallel),
        training_(training),
        bucket_sizes_(data_parallel_.bucket_sizes()) {
    for (const auto& parameter : parts.network.model->parameters()) {
      parameter.register_hook([this](const torch::Tensor&) { last_gradient_ = now(); });
    }
    for (const int64_t size : bucket_sizes_) buckets_.push_back(torch::rand({size}));
  }

  const std::vector<int64_t>& bucket_sizes() const { return bucket_sizes_; }

  bool needs_gradients(int64_t) const override { return true; }
  void on_gradients(int64_t) override {
    ends_.push_back(now());
    starts_.push_back(last_gradient_);
  }

  // Collective. Returns seconds: `exposed` for each of `count` steps, `alone` for max(count, 10) exchanges.
  json run(int64_t count) {
    auto& starts = starts_;
    auto& ends = ends_;
    starts.clear();
    ends.clear();
    for (int64_t i = 0; i < count; ++i) {
      training_.step({this});
    }
    json result{{"exposed", durations(starts, ends)}};
    starts.clear();
    ends.clear();
    for (int64_t i = 0; i < std::max<int64_t>(count, 10); ++i) {
      world_.barrier();
      starts.push_back(now());
      exchange();
      ends.push_back(now());
    }
    result["alone"] = durations(starts, ends);
    training_.check();
    return result;
  }

 private:
  // Like the Reducer: starts all collectives, then waits for all.
  void exchange() const {
    if (data_parallel_.exchange() == distributed::GradientExchange::kSharedMemory) {
      for (const auto& bucket : buckets_) world_.begin_sum(bucket);
      return world_.finish_sums();
    }
    std::vector<c10::intrusive_ptr<c10d::Work>> works;
    for (const auto& bucket : buckets_) {
      std::vector<torch::Tensor> tensors{bucket};
      works.push_back(world_.c10d_group()->allreduce(tensors));
    }
    for (const auto& work : works) work->wait();
  }

  std::vector<double> durations(const std::vector<int64_t>& starts, const std::vector<int64_t>& ends) const {
    const auto last_rank = [&](const std::vector<int64_t>& times) { return world_.all_gather(torch::tensor(times)).amax(0); };
    const auto seconds = ((last_rank(ends) - last_rank(starts)).to(torch::kFloat64) * 1e-9).contiguous();
    const auto* data = seconds.const_data_ptr<double>();
    return {data, data + seconds.numel()};
  }

  const distributed::ProcessGroup& world_;
  const distributed::DataParallel& data_parallel_;
  bench::Training& training_;
  std::vector<int64_t> bucket_sizes_;
  std::vector<torch::Tensor> buckets_;
  std::vector<int64_t> starts_, ends_;
  int64_t last_gradient_ = 0;
};

// Measures the cost of failure detection and of the agreement to stop: the same number of steps with and without them, in turns.
class WatchCost {
 public:
  WatchCost(engine::Parts& parts, bench::Training& training, const distributed::Rendezvous& rendezvous)
      : parts_(parts), training_(training), rendezvous_(rendezvous), stop_consensus_(parts.ranks.control) {}

  // Collective. Returns the fraction of a processor that an idle rank uses with failure detection, minus the fraction without it.
  double idle_share() const {
    const double without = busy_share();
    const auto detector = make_detector(make_activity());
    return busy_share() - without;
  }

  // Collective. Returns the seconds per step for the agreement to stop and for recording the activity, when all ranks call at the same
  // time.
  double call_seconds() {
    constexpr int64_t kNumCalls = 2000;
    const auto activity = make_activity();
    const auto seconds = time([&] {
      for (int64_t step = 0; step < kNumCalls; ++step) agree_and_record(*activity, step);
    });
    stop_consensus_.finish();
    return seconds / kNumCalls;
  }

  // Collective. Returns the seconds of `count` steps with and without failure detection and the agreement to stop.
  json run(int64_t count) {
    watches_first_ = !watches_first_;
    json result;
    for (const bool watches : {watches_first_, !watches_first_}) {
      if (watches) {
        result["watched"] = run_watched(count);
      } else {
        result["plain"] = time([&] { training_.run(count); });
      }
    }
    return result;
  }

 private:
  // The processor time of all threads of an idle rank divided by the elapsed time.
  double busy_share() const {
    constexpr std::chrono::seconds kDuration{5};
    parts_.ranks.world->barrier();
    const auto start = std::clock();
    std::this_thread::sleep_for(kDuration);
    return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC / static_cast<double>(kDuration.count());
  }

  double time(const std::function<void()>& run) const {
    parts_.ranks.world->barrier();
    const auto start = now();
    run();
    return 1e-9 * static_cast<double>(now() - start);
  }

  double run_watched(int64_t count) {
    const auto activity = make_activity();
    const auto detector = make_detector(activity);
    return time([&] { training_.run(count, [&](int64_t step) { agree_and_record(*activity, step); }); });
  }

  void agree_and_record(distributed::Activity& activity, int64_t step) {
    stop_consensus_.any_requested(false);
    activity.enter(distributed::Phase::kLoading, step);
    activity.enter(distributed::Phase::kStep, step);
  }

  std::shared_ptr<distributed::Activity> make_activity() const {
    return std::make_shared<distributed::Activity>([this](const auto& state) {
      describe_process(fmt::format("rank {} of {}, in {}", parts_.ranks.world->rank(), rendezvous_.ranks.size(), describe(state)));
    });
  }

  std::unique_ptr<supervision::FailureDetector> make_detector(const std::shared_ptr<distributed::Activity>& activity) const {
    const supervision::FailureDetectorOptions options{.rank = parts_.ranks.world->rank(), .ranks = rendezvous_.ranks};
    return std::make_unique<supervision::FailureDetector>(*rendezvous_.store, activity, options,
                                                          [](const supervision::Failure&) { std::abort(); });
  }

  engine::Parts& parts_;
  bench::Training& training_;
  const distributed::Rendezvous& rendezvous_;
  distributed::StopConsensus stop_consensus_;
  bool watches_first_ = false;
};

distributed::Rendezvous join_run(const world::RankEnv& rank_env, const config::DistributedSection& section) {
  static const auto logger = make_quiet_logger();
  const distributed::Hello mine{.rank = distributed::this_process(), .version = {}, .config = {}, .problem = {}};
  return distributed::join_run(rank_env, world::rendezvous_address(rank_env, section.init_method), mine, rank_env.secret,
                               std::chrono::seconds(section.timeout_seconds), *logger);
}

void train(const RanksOptions& options, const config::Experiment& experiment, const distributed::Rendezvous& rendezvous,
           distributed::ProcessGroups& groups) {
  rank::RankContext context(experiment, {.num_threads = world::available_cpus(rendezvous.num_sharing_cpus)}, make_quiet_logger(),
                            engine::make_ranks(groups));
  auto recipe = rank::recipe_of(context);
  session::Session session(context.this_rank(), recipe);
  auto& parts = session.parts();
  bench::Training training(parts, options.training);
  json settings{{"network", options.training.network},
                {"input", options.training.source},
                {"ranks", parts.data.plan.world_size},
                {"placement", device::to_string(parts.network.placement)},
                {"bucket_sizes", parts.data_parallel->bucket_sizes()}};
  std::optional<Overlap> overlap;
  std::optional<WatchCost> watch_cost;
  if (options.measures_overlap) overlap.emplace(parts, training);
  if (options.measures_watch) {
    watch_cost.emplace(parts, training, rendezvous);
    settings["idle_share"] = watch_cost->idle_share();
    settings["call_seconds"] = watch_cost->call_seconds();
  }
  serve_together(*groups.world(), settings, [&](int64_t count) {
    if (overlap) return overlap->run(count);
    if (watch_cost) return watch_cost->run(count);
    training.run(count);
    return json::object();
  });
}

}  // namespace

int main(int argc, char** argv) {
  trainer::device::set_library_defaults();
  CLI::App app("Training steps of a rank, measured by bench.py");
  RanksOptions options;
  options.training.add_to(app);
  app.add_flag("--overlap", options.measures_overlap, "measure the exposed part of the gradient exchange, and the exchange alone");
  app.add_flag("--watch", options.measures_watch, "measure steps with and without failure detection");
  CLI11_PARSE(app, argc, argv);

  const auto experiment = bench::make_experiment(options.training);
  const auto rank_env = world::find_rank_env({}, world::process_environment());
  const auto rendezvous = join_run(rank_env, experiment.distributed);
  distributed::ProcessGroups groups(rendezvous.group_store, rank_env.rank, rank_env.world_size,
                                    {.gloo_address = rendezvous.address, .ranks = rendezvous.ranks});
  train(options, experiment, rendezvous, groups);
  groups.shutdown();
}
