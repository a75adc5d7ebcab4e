#include "distributed/store_json.h"

#include <fmt/format.h>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "base/text.h"

namespace trainer::distributed {
namespace {

using Json = nlohmann::json;

// How long the others wait for the decision of rank 0 beyond its timeout, and rank 0 until they have read that the start has failed.
constexpr std::chrono::seconds kDecisionGrace{10};
constexpr std::chrono::seconds kSecond{1};

Json decide_or_error(const std::function<Json()>& decide) {
  try {
    return {{"result", decide()}};
  } catch (const Error& error) {
    return {{"error", error.what()}, {"exit_code", static_cast<int>(error.exit_code())}};
  }
}

}  // namespace

std::vector<uint8_t> to_bytes(const Json& json) {
  const auto text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  return {text.begin(), text.end()};
}

Json from_bytes(const std::vector<uint8_t>& bytes) { return Json::parse(bytes.begin(), bytes.end()); }

bool wait_for(c10d::Store& store, const std::string& key, std::chrono::milliseconds timeout) {
  try {
    store.wait({key}, timeout);
    return true;
  } catch (const c10::DistStoreError&) {
    return false;
  } catch (const c10::DistNetworkError& error) {
    // Not every store has a separate exception type for a time-out.
    if (std::string_view(error.what()).find("imed out") == std::string_view::npos) throw;
    return false;
  }
}

LateRank::LateRank(int late_rank, std::chrono::milliseconds waited_for)
    : PeerError(fmt::format("rank {} has not done its part of the start-up within {}; see its output, or raise "
                            "distributed.timeout_seconds if it needs longer",
                            late_rank, format_duration(waited_for))),
      rank(late_rank),
      waited(waited_for) {}

Json share_decision(c10d::Store& store, const std::function<std::string(int rank)>& key_of, int rank, int world_size,
                    std::chrono::milliseconds timeout, const std::function<Json()>& decide, const std::function<void()>& while_waiting) {
  const auto decision_key = key_of(0) + "/decision";
  const auto received_key = [&](int other) { return key_of(other) + "/received"; };
  if (rank == 0) store.set(decision_key, to_bytes(decide_or_error(decide)));
  const auto deadline = std::chrono::steady_clock::now() + timeout + kDecisionGrace;
  while (!wait_for(store, decision_key, kSecond)) {
    if (std::chrono::steady_clock::now() >= deadline) throw LateRank(0, timeout + kDecisionGrace);
    while_waiting();
  }
  const auto decision = from_bytes(store.get(decision_key));
  if (!decision.contains("error")) return decision["result"];

  store.set(received_key(rank), std::vector<uint8_t>{1});
  // The store may end with rank 0.
  for (int other = 1; rank == 0 && other < world_size; ++other) {
    if (store.check({key_of(other)})) wait_for(store, received_key(other), kDecisionGrace);
  }
  throw AgreedError(rank == 0 ? decision["error"].get<std::string>() : "", static_cast<ExitCode>(decision["exit_code"].get<int>()));
}

}  // namespace trainer::distributed
