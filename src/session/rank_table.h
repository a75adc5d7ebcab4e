#pragma once
// Where each rank of a run works, as it is reported.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "distributed/rank_info.h"

namespace trainer::session {

// The `ranks` of environment.json.
nlohmann::ordered_json environment_of(const std::vector<distributed::RankInfo>& ranks);

// Throws UsageError when two ranks have the same GPU, which NCCL cannot serve.
void refuse_shared_gpus(const std::vector<distributed::RankInfo>& ranks);

// "rank 0  host  cuda:0 (0000:3b:00.0)  8 threads" for each.
std::vector<std::string> table_lines(const std::vector<distributed::RankInfo>& ranks);

}  // namespace trainer::session
