#include "distributed/agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "base/text.h"
#include "distributed/first_line.h"
#include "distributed/stores.h"
#include "trainer/error.h"

namespace trainer::distributed {

void throw_if_any(const std::vector<Problem>& problems) {
  std::vector<std::string> lines;
  int exit_code = 0;
  for (size_t rank = 0; rank < problems.size(); ++rank) {
    const auto& problem = problems[rank];
    if (problem.text.empty()) continue;
    if (exit_code == 0) exit_code = problem.exit_code;
    const bool everywhere = std::ranges::all_of(problems, [&](const Problem& other) { return other.text == problem.text; });
    auto line = everywhere || rank == 0 ? problem.text : fmt::format("rank {}: {}", rank, problem.text);
    if (std::ranges::find(lines, line) == lines.end()) lines.push_back(std::move(line));
  }
  if (!lines.empty()) throw Error(join(lines, "\n"), static_cast<ExitCode>(exit_code));
}

namespace {

// The results of all ranks; throws their problems.
std::vector<std::string> results_of(const std::vector<nlohmann::json>& records) {
  std::vector<Problem> problems;
  std::vector<std::string> results;
  for (const auto& record : records) {
    problems.push_back(record["problem"]);
    results.push_back(record["result"]);
  }
  throw_if_any(problems);
  return results;
}

}  // namespace

std::vector<std::string> StartupBarrier::gather(const std::function<std::string()>& work) {
  if (world_size_ == 1) return {work()};
  Problem problem;
  std::string result;
  try {
    result = work();
  } catch (const PeerError&) {
    // Other ranks may still be waiting for this rank inside `work`; they must notice that it exits.
    throw;
  } catch (const Error& error) {
    problem = {error.what(), static_cast<int>(error.exit_code())};
  }
  const nlohmann::json record = {{"problem", problem}, {"result", result}};
  if (!group_) return gather_over_store(record);
  std::vector<nlohmann::json> records;
  for (const auto& text : group_->all_gather_bytes(record.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace))) {
    records.push_back(nlohmann::json::parse(text));
  }
  try {
    return results_of(records);
  } catch (const Error& error) {
    throw AgreedError(rank_ == 0 ? error.what() : "", error.exit_code());
  }
}

std::vector<std::string> StartupBarrier::gather_over_store(const nlohmann::json& mine) {
  const int step = num_steps_++;
  const auto key = [step](int rank) { return fmt::format("step{}/{}", step, rank); };
  try {
    store_->set(key(rank_), to_bytes(mine));
    if (rank_ == 0) wait_for_all(key);
    return share_decision(*store_, key, rank_, world_size_, timeout_, [&]() -> nlohmann::json {
      std::vector<nlohmann::json> records;
      for (int rank = 0; rank < world_size_; ++rank) records.push_back(from_bytes(store_->get(key(rank))));
      return results_of(records);
    });
  } catch (const c10::Error& error) {
    throw PeerError(fmt::format("rank {} lost the connection to another rank during start-up: {}; check whether another rank exited", rank_,
                                first_line(error)));
  }
}

void StartupBarrier::wait_for_all(const std::function<std::string(int rank)>& key) const {
  // A store interprets a shorter timeout as no timeout.
  constexpr std::chrono::milliseconds kShortestWait{1};
  const auto deadline = std::chrono::steady_clock::now() + timeout_;
  for (int rank = 1; rank < world_size_; ++rank) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (!wait_for(*store_, key(rank), std::max(left, kShortestWait))) throw LateRank(rank, timeout_);
  }
}

void StartupBarrier::on_all_ranks(const std::function<void()>& work) {
  gather([&] {
    work();
    return std::string();
  });
}

std::string StartupBarrier::on_rank0(const std::function<std::string()>& work) {
  return gather([&] { return rank_ == 0 ? work() : std::string(); }).front();
}

bool StopConsensus::any_requested(bool requested) {
  const auto& group = group_->c10d_group();
  if (!group) return requested;
  if (group_->shares_memory()) {
    const auto requests = torch::full({1}, requested ? 1 : 0, torch::kInt32);
    group_->sum_in_rank_order({&requests, 1});
    return requests.item<int32_t>() > 0;
  }
  finish();
  const bool agreed = requests_.defined() && requests_.item<int32_t>() > 0;
  requests_ = torch::full({1}, requested || agreed ? 1 : 0, torch::kInt32);
  std::vector<torch::Tensor> tensors{requests_};
  pending_ = group->allreduce(tensors);
  return agreed;
}

void StopConsensus::finish() {
  if (!pending_) return;
  group_->wait_for(*pending_);
  pending_.reset();
}

}  // namespace trainer::distributed
