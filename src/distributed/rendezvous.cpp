#include "distributed/rendezvous.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "base/program.h"
#include "base/text.h"
#include "distributed/addresses.h"
#include "distributed/first_line.h"
#include "distributed/secret.h"
#include "distributed/stores.h"
#include "launch/world/host_resources.h"
#include "trainer/error.h"

namespace trainer::distributed {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Hello, rank, version, config, config_with_data, problem, world_size)

namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;
using std::chrono::milliseconds;

// Interval between checks for missing ranks.
constexpr milliseconds kJoinInterval{1000};
// Set by a rank that received a stop request.
constexpr const char* kStopKey = "stop";

std::string rank_key(int rank) { return fmt::format("rank/{}", rank); }

// Throws when another process has the same rank.
void claim(c10d::Store& store, const world::RankEnv& rank_env, const world::RendezvousAddress& point) {
  if (store.add(fmt::format("claim/{}", rank_env.rank), 1) == 1) return;
  const auto key = rank_key(rank_env.rank);
  const auto holder = wait_for(store, key, kJoinInterval) ? to_string(from_bytes(store.get(key)).get<Hello>().rank) : "another process";
  if (point.kind == world::RendezvousAddress::Kind::kFile) {
    throw PeerError(
        fmt::format("file://{} is in use by {} as rank {}, or was left by an earlier run; remove the file, or choose a different one",
                    point.path, holder, rank_env.rank));
  }
  throw PeerError(
      fmt::format("rank {} is already taken by {} in the run at {}:{}; give each process its own RANK, and each run its own port",
                  rank_env.rank, holder, point.host, point.port));
}

// "ranks 2, 3", and under Slurm "ranks 2, 3 on n02, 5 on n04".
std::string list_ranks(const std::vector<int>& ranks, const world::RankEnv& rank_env) {
  const auto* noun = ranks.size() == 1 ? "rank" : "ranks";
  const auto& hosts = rank_env.slurm_hosts;
  if (hosts.empty()) return fmt::format("{} {}", noun, fmt::join(ranks, ", "));
  std::string text;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const auto& host = hosts[static_cast<size_t>(ranks[i])];
    const bool is_last = i + 1 == ranks.size() || hosts[static_cast<size_t>(ranks[i + 1])] != host;
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ", ranks[i], is_last ? " on " + host : "");
  }
  return fmt::format("{} {}", noun, text);
}

// "1 of 2 nodes have joined; waiting for node 1 (ranks 2, 3)".
std::string describe_waiting(const std::vector<int>& missing, const world::RankEnv& rank_env) {
  const auto ranks = list_ranks(missing, rank_env);
  if (rank_env.num_nodes == 1 || rank_env.num_nodes * rank_env.local_world_size != rank_env.world_size) {
    return fmt::format("{} of {} ranks have joined; waiting for {}", rank_env.world_size - static_cast<int>(missing.size()),
                       rank_env.world_size, ranks);
  }
  std::set<int> nodes;
  for (const int rank : missing) nodes.insert(rank / rank_env.local_world_size);
  return fmt::format("{} of {} nodes have joined; waiting for {} {} ({})", rank_env.num_nodes - static_cast<int>(nodes.size()),
                     rank_env.num_nodes, nodes.size() == 1 ? "node" : "nodes", fmt::join(nodes, ", "), ranks);
}

// The attempts of a run that its launcher restarts use different prefixes if they share a store.
std::string prefix_of(const world::RankEnv& rank_env, const world::RendezvousAddress& point) {
  // If rank 0 serves a TCP store, it creates a new one for each attempt. The prefix must then be the same in all attempts, because a node
  // that was restarted by hand does not know the attempt's number.
  const bool is_kept = rank_env.launcher_serves_store || point.kind == world::RendezvousAddress::Kind::kFile;
  return fmt::format("trainer/{}", is_kept ? rank_env.restart_attempt : 0);
}

Hello read_hello(c10d::Store& store, int rank) {
  try {
    return from_bytes(store.get(rank_key(rank))).get<Hello>();
  } catch (const Json::exception&) {
    throw PeerError(
        fmt::format("cannot read the message with which rank {} joined: either that rank runs a different version of trainer, or another "
                    "program writes to the same store; start the same program on all hosts, and give each run its own port",
                    rank));
  }
}

std::vector<Hello> collect(c10d::Store& store, SecretCheck& secret_check, const world::RankEnv& rank_env, milliseconds timeout,
                           RendezvousStop& stop, Logger& logger) {
  const auto start = Clock::now();
  auto next_report = start + kFirstWaitReport;
  std::vector<Hello> ranks(static_cast<size_t>(rank_env.world_size));
  std::vector<int> missing;
  for (int rank = 0; rank < rank_env.world_size; ++rank) missing.push_back(rank);
  while (true) {
    std::erase_if(missing, [&](int rank) {
      if (!store.check({rank_key(rank)})) return false;
      ranks[static_cast<size_t>(rank)] = read_hello(store, rank);
      return true;
    });
    if (missing.empty()) return ranks;
    if (stop.is_due() || store.check({kStopKey})) throw StoppedDuringRendezvous(describe_waiting(missing, rank_env));
    const auto now = Clock::now();
    if (now - start >= timeout) {
      throw PeerError(
          fmt::format("{} of {} ranks did not join within {}: {}; check why they did not start, or raise "
                      "distributed.timeout_seconds",
                      missing.size(), rank_env.world_size, format_duration(timeout), list_ranks(missing, rank_env)));
    }
    if (now >= next_report) {
      logger.info("{}", describe_waiting(missing, rank_env));
      secret_check.report(missing, logger);
      next_report = now + 2 * (next_report - start);
    }
    wait_for(store, rank_key(missing.front()), std::min(kJoinInterval, std::chrono::duration_cast<milliseconds>(start + timeout - now)));
  }
}

void check_equal(const std::vector<Hello>& ranks, const DescribeDifferences& describe_differences) {
  const auto& first = ranks.front();
  for (size_t rank = 1; rank < ranks.size(); ++rank) {
    const auto& other = ranks[rank];
    if (other.world_size != first.world_size) {
      throw UsageError(fmt::format("rank {} on {} is one of {} ranks, but rank 0 on {} is one of {}; set the same WORLD_SIZE for all", rank,
                                   other.rank.host, other.world_size, first.rank.host, first.world_size));
    }
    if (other.version != first.version) {
      throw UsageError(fmt::format("rank {} on {} runs {}, but rank 0 on {} runs {}; start the same program on all hosts", rank,
                                   other.rank.host, other.version, first.rank.host, first.version));
    }
    if (other.config != first.config) {
      throw UsageError(
          fmt::format("rank {} on {} has a different configuration from rank 0: {}; start all ranks with the same file and "
                      "overrides",
                      rank, other.rank.host, describe_differences(first.config, other.config)));
    }
    if (other.config_with_data != first.config_with_data) {
      throw DataError(
          fmt::format("rank {} on {} has different data from rank 0, so their configurations differ: {}; give all ranks the same data",
                      rank, other.rank.host, describe_differences(first.config_with_data, other.config_with_data)));
    }
  }
}

// Called on rank 0: waits for all ranks, and returns them if they may continue together; throws if not.
Json decide(c10d::Store& store, SecretCheck& secret_check, const world::RankEnv& rank_env, milliseconds timeout, RendezvousStop& stop,
            Logger& logger, const DescribeDifferences& describe_differences) {
  const auto hellos = collect(store, secret_check, rank_env, timeout, stop, logger);
  std::vector<Problem> problems;
  std::vector<RankInfo> ranks;
  for (const auto& hello : hellos) {
    problems.push_back(hello.problem);
    ranks.push_back(hello.rank);
  }
  throw_if_any(problems);
  check_equal(hellos, describe_differences);
  return ranks;
}

void open_stores(Rendezvous& rendezvous, const c10::intrusive_ptr<c10d::Store>& store, const std::string& prefix,
                 const world::RunSecret& secret, Logger& logger) {
  if (secret.text.empty()) {
    rendezvous.store = rendezvous.group_store = c10::make_intrusive<c10d::PrefixStore>(prefix, store);
    return;
  }
  const auto seal = std::make_shared<const Seal>(secret.text);
  const auto own_prefix = fmt::format("{}/{}", prefix, seal->name());
  rendezvous.group_store = c10::make_intrusive<c10d::PrefixStore>(own_prefix + "/groups", store);
  rendezvous.store = c10::make_intrusive<SealedStore>(store, own_prefix, seal, [&logger](const std::string& key) {
    logger.warn(
        "ignored a value in the store ({}) that was not encrypted with this run's secret; a program outside this run can write to "
        "the store: see \"Trust\" in docs/running.md",
        key);
  });
}

void count_local_ranks(Rendezvous& rendezvous, const world::RankEnv& rank_env) {
  const auto& mine = rendezvous.ranks[static_cast<size_t>(rank_env.rank)];
  int num_before = 0;
  int num_on_host = 0;
  bool clash = false;
  std::vector<int> seen;
  rendezvous.num_sharing_cpus = 0;
  for (size_t rank = 0; rank < rendezvous.ranks.size(); ++rank) {
    const auto& other = rendezvous.ranks[rank];
    if (!same_host(mine, other)) continue;
    ++num_on_host;
    if (other.cpu_mask == mine.cpu_mask) ++rendezvous.num_sharing_cpus;
    if (rank < static_cast<size_t>(rank_env.rank)) ++num_before;
    clash = clash || std::ranges::find(seen, other.local_rank) != seen.end();
    seen.push_back(other.local_rank);
  }
  rendezvous.local_rank = clash ? num_before : rank_env.local_rank;
  rendezvous.local_world_size = std::max(num_on_host, rank_env.local_world_size);
}

// The address at which other ranks reach this rank. A host's own name often resolves to a loopback address, which no other host can reach;
// the ranks on that host then use their address on the route to a rank on another host.
std::string reachable_address(const std::vector<RankInfo>& ranks, const RankInfo& mine) {
  const bool one_host = std::ranges::all_of(ranks, [&](const RankInfo& other) { return same_host(mine, other); });
  if (one_host || !is_loopback(mine.address)) return mine.address;
  for (const auto& other : ranks) {
    if (is_loopback(other.address)) continue;
    const auto address = address_towards(other.address);
    if (!address.empty()) return address;
  }
  return mine.host;
}

}  // namespace

std::string describe_both(const std::string& of_rank0, const std::string& of_other) {
  return fmt::format("{} on rank 0 and {} on the other rank", of_rank0, of_other);
}

Rendezvous join_run(const world::RankEnv& rank_env, const world::RendezvousAddress& point, const Hello& hello,
                    const world::RunSecret& secret, milliseconds timeout, Logger& logger, const DescribeDifferences& describe_differences) {
  world::check_open_files(rank_env.world_size);
  auto mine = hello;
  mine.world_size = rank_env.world_size;
  mine.rank.local_rank = rank_env.local_rank;

  Rendezvous rendezvous;
  RendezvousStop stop(logger);
  try {
    const auto prefix = prefix_of(rank_env, point);
    const auto root = open_store(rank_env, point, timeout, stop, logger);
    // The host name of rank 0 may not have been resolvable before the store was open.
    auto& address = mine.rank.address;
    address = address_towards(point.kind == world::RendezvousAddress::Kind::kTcp ? point.host : mine.rank.host);
    if (address.empty()) address = "127.0.0.1";
    open_stores(rendezvous, root, prefix, secret, logger);
    auto& store = *rendezvous.store;
    SecretCheck secret_check(c10::make_intrusive<c10d::PrefixStore>(prefix, root), secret.source, rank_env.rank);
    claim(store, rank_env, point);
    store.set(rank_key(rank_env.rank), to_bytes(mine));
    if (rank_env.rank == 0) secret_check.announce();
    rendezvous.ranks = share_decision(
                           store, rank_key, rank_env.rank, rank_env.world_size, timeout,
                           [&] { return decide(store, secret_check, rank_env, timeout, stop, logger, describe_differences); },
                           [&, is_told = false]() mutable {
                             const auto difference = secret_check.find_difference(store, rank_key(0));
                             if (!difference.empty()) {
                               throw_if_any({mine.problem});
                               throw UsageError(difference);
                             }
                             if (is_told || !stop.is_due()) return;
                             logger.warn("stop requested before all ranks have joined; ending the run");
                             store.set(kStopKey, std::vector<uint8_t>{1});
                             is_told = true;
                           })
                           .get<std::vector<RankInfo>>();
    if (rendezvous.ranks.size() != static_cast<size_t>(rank_env.world_size)) {
      const bool is_file = point.kind == world::RendezvousAddress::Kind::kFile;
      throw PeerError(fmt::format(
          "rank {} is one of {} ranks, but {} ranks joined at {}; set the same WORLD_SIZE for all, and give each run its own {}",
          rank_env.rank, rank_env.world_size, rendezvous.ranks.size(),
          is_file ? "file://" + point.path : fmt::format("{}:{}", point.host, point.port), is_file ? "file" : "port"));
    }
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw PeerError(
        fmt::format("rank {} {} during the rendezvous: {}; see the message of rank 0", rank_env.rank, kLostRank0, first_line(error)));
  }
  count_local_ranks(rendezvous, rank_env);
  rendezvous.address = reachable_address(rendezvous.ranks, mine.rank);
  return rendezvous;
}

RankInfo this_process() { return {.host = host_name(), .process_id = getpid(), .cpu_mask = world::cpu_mask()}; }

bool same_host(const RankInfo& a, const RankInfo& b) { return a.host == b.host && a.address == b.address; }

std::string to_string(const RankInfo& rank) { return fmt::format("process {} on {}", rank.process_id, rank.host); }

}  // namespace trainer::distributed
