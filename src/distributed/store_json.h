#pragma once
// JSON through a store, and a decision of rank 0 for all ranks.

#include <chrono>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "trainer/error.h"

namespace c10d {
class Store;
}

namespace trainer::distributed {

std::vector<uint8_t> to_bytes(const nlohmann::json& json);
nlohmann::json from_bytes(const std::vector<uint8_t>& bytes);

// Whether the key exists within `timeout`.
bool wait_for(c10d::Store& store, const std::string& key, std::chrono::milliseconds timeout);

// Another rank has not done its part of the start-up in time.
struct LateRank : PeerError {
  LateRank(int late_rank, std::chrono::milliseconds waited_for);
  int rank;
  std::chrono::milliseconds waited;
};

// Collective: calls `decide` on rank 0 and returns its result on all ranks; the others wait slightly longer than `timeout`, and throw
// LateRank if there is no decision then. An Error that `decide` throws is thrown on all ranks, with its text only on rank 0, so that it is
// reported once. Every rank that has joined has set its `key_of`(rank) before; further keys have it as prefix. `while_waiting` is called
// every second on the other ranks.
nlohmann::json share_decision(
    c10d::Store& store, const std::function<std::string(int rank)>& key_of, int rank, int world_size, std::chrono::milliseconds timeout,
    const std::function<nlohmann::json()>& decide, const std::function<void()>& while_waiting = [] {});

}  // namespace trainer::distributed
