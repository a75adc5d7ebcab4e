#pragma once
// JSON through a store, and a decision of rank 0 for all ranks.

#include <chrono>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace c10d {
class Store;
}

namespace trainer::distributed {

std::vector<uint8_t> to_bytes(const nlohmann::json& json);
nlohmann::json from_bytes(const std::vector<uint8_t>& bytes);

// Whether the key is there within `patience`.
bool wait_for(c10d::Store& store, const std::string& key, std::chrono::milliseconds patience);

// Collective: calls `decide` on rank 0 and gives what it returns to all ranks, which wait `timeout` and a little more. An Error that
// `decide` throws is thrown on all ranks: with its text on rank 0, without on the others, so that it is said once. Every rank that is
// there has set its `key_of`(rank) before; further keys begin with it. `while_waiting` is called every second on the other ranks.
nlohmann::json share_decision(
    c10d::Store& store, const std::function<std::string(int rank)>& key_of, int rank, int world_size, std::chrono::milliseconds timeout,
    const std::function<nlohmann::json()>& decide, const std::function<void()>& while_waiting = [] {});

}  // namespace trainer::distributed
