#include "distributed/rank_info.h"

#include <fmt/format.h>
#include <unistd.h>

#include "world/host_resources.h"

namespace trainer::distributed {

RankInfo this_process() { return {.host = world::host_name(), .process_id = getpid(), .cpu_mask = world::cpu_mask()}; }

bool same_host(const RankInfo& a, const RankInfo& b) { return a.host == b.host && a.address == b.address; }

std::string to_string(const RankInfo& rank) { return fmt::format("process {} on {}", rank.process_id, rank.host); }

}  // namespace trainer::distributed
