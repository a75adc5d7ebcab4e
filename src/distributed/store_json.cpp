#include "distributed/store_json.h"

#include <fmt/format.h>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "base/error.h"

namespace trainer::distributed {
namespace {

using Json = nlohmann::json;

// How long the others wait for rank 0's word beyond its own patience, and rank 0 until they have heard that the start has failed.
constexpr std::chrono::seconds kVerdictGrace{10};
constexpr std::chrono::seconds kSecond{1};

Json judge_or_error(const std::function<Json()>& judge) {
  try {
    return {{"word", judge()}};
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

bool wait_for(c10d::Store& store, const std::string& key, std::chrono::milliseconds patience) {
  try {
    store.wait({key}, patience);
    return true;
  } catch (const c10::DistStoreError&) {
    return false;
  } catch (const c10::DistNetworkError& error) {
    // A time-out has no type of its own in every store.
    if (std::string_view(error.what()).find("imed out") == std::string_view::npos) throw;
    return false;
  }
}

Json share_verdict(c10d::Store& store, const std::function<std::string(int rank)>& key_of, int rank, int world_size,
                   std::chrono::milliseconds timeout, const std::function<Json()>& judge, const std::function<void()>& while_waiting) {
  const auto verdict_key = key_of(0) + "/verdict";
  const auto heard_key = [&](int other) { return key_of(other) + "/heard"; };
  if (rank == 0) store.set(verdict_key, to_bytes(judge_or_error(judge)));
  const auto deadline = std::chrono::steady_clock::now() + timeout + kVerdictGrace;
  while (!wait_for(store, verdict_key, kSecond) && std::chrono::steady_clock::now() < deadline) while_waiting();
  store.wait({verdict_key}, kSecond);
  const auto verdict = from_bytes(store.get(verdict_key));
  if (!verdict.contains("error")) return verdict["word"];

  store.set(heard_key(rank), std::vector<uint8_t>{1});
  // The store may end with rank 0.
  for (int other = 1; rank == 0 && other < world_size; ++other) {
    if (store.check({key_of(other)})) wait_for(store, heard_key(other), kVerdictGrace);
  }
  throw AgreedError(rank == 0 ? verdict["error"].get<std::string>() : "", static_cast<ExitCode>(verdict["exit_code"].get<int>()));
}

}  // namespace trainer::distributed
