#include <fmt/format.h>

#include <string_view>

#include "base/text.h"
#include "launch/world/rank_env.h"
#include "trainer/error.h"

namespace trainer::world {
namespace {

RendezvousAddress at_master(const RankEnv& rank_env) {
  if (!rank_env.master_addr.empty() && rank_env.master_port != 0) {
    return {RendezvousAddress::Kind::kTcp, rank_env.master_addr, rank_env.master_port, {}, rank_env.port_source};
  }
  const char* missing = !rank_env.master_addr.empty() ? "MASTER_PORT is"
                        : rank_env.master_port != 0   ? "MASTER_ADDR is"
                                                      : "MASTER_ADDR and MASTER_PORT are";
  throw UsageError(fmt::format(
      "rank {} of {} cannot join the other ranks, because {} not set; set MASTER_ADDR to the host of rank 0 and MASTER_PORT to a free port "
      "there, the same for all ranks (`mpirun -x MASTER_ADDR -x MASTER_PORT` passes them on), or give --init-method tcp://HOST:PORT, or "
      "--init-method file:///PATH on a disk that all hosts share",
      rank_env.rank, rank_env.world_size, missing));
}

// "HOST:PORT" or "[ADDRESS]:PORT"; kAlone when it is neither.
RendezvousAddress parse_host_and_port(std::string_view text) {
  const auto colon = text.rfind(':');
  if (colon == std::string_view::npos) return {};
  const std::string given(text.substr(0, colon));
  const auto host = without_brackets(given);
  if (host == given && host.find_first_of(":[]/@") != std::string::npos) return {};
  const auto port = parse_number<int>(text.substr(colon + 1));
  if (host.empty() || !port || *port < 1 || *port > 65535) return {};
  return {RendezvousAddress::Kind::kTcp, host, *port, {}};
}

}  // namespace

std::string without_brackets(std::string host) {
  return host.starts_with('[') && host.ends_with(']') ? host.substr(1, host.size() - 2) : host;
}

RendezvousAddress rendezvous_address(const RankEnv& rank_env, const std::string& configured_init_method) {
  if (rank_env.world_size == 1) return {};
  const std::string& init_method = rank_env.init_method ? *rank_env.init_method : configured_init_method;
  const std::string source = (rank_env.init_method ? "--init-method " : "distributed.init_method: ") + init_method;
  if (init_method.find('?') != std::string::npos) {
    throw UsageError(source + ": the rank and the world size cannot be set here; set them with --rank and --world-size");
  }
  constexpr std::string_view kTcp = "tcp://";
  constexpr std::string_view kFile = "file://";
  const std::string_view view = init_method;
  if (view == "env://") return at_master(rank_env);
  if (view.starts_with(kTcp)) {
    auto point = parse_host_and_port(view.substr(kTcp.size()));
    point.port_source = rank_env.init_method ? "--init-method" : "distributed.init_method";
    if (point.kind == RendezvousAddress::Kind::kTcp) return point;
    throw UsageError(source + ": expected tcp://HOST:PORT (tcp://[::1]:PORT for IPv6) with a port from 1 to 65535");
  }
  if (view.starts_with(kFile)) {
    const auto path = view.substr(kFile.size());
    if (path.starts_with('/') && !path.ends_with('/')) return {RendezvousAddress::Kind::kFile, {}, 0, std::string(path)};
    throw UsageError(source + ": expected file:///PATH, an absolute path with three slashes");
  }
  throw UsageError(source + ": expected env://, tcp://HOST:PORT (tcp://[::1]:PORT for IPv6) or file:///PATH");
}

}  // namespace trainer::world
