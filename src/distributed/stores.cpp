#include "distributed/stores.h"

#include <fmt/format.h>

#include <filesystem>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "base/error.h"
#include "base/text.h"
#include "distributed/first_line.h"

namespace trainer::distributed {
namespace {

c10::intrusive_ptr<c10d::Store> open_tcp(const world::Place& place, const world::MeetingPoint& point, std::chrono::milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(point.port);
  options.isServer = place.rank == 0 && !place.launcher_serves_store;
  options.waitWorkers = false;
  options.timeout = timeout;
  if (options.isServer && place.listen_descriptor >= 0) options.masterListenFd = place.listen_descriptor;
  try {
    return c10::make_intrusive<c10d::TCPStore>(point.host, options);
  } catch (const std::exception& error) {
    const auto reason = first_line(error);
    if (reason.find("EADDRINUSE") != std::string::npos) {
      throw PeerError(
          fmt::format("rank 0 cannot listen on port {}, which another program uses (a second run on this host?); choose another "
                      "MASTER_PORT",
                      point.port));
    }
    throw PeerError(
        fmt::format("rank {} did not reach rank 0 at {}:{} within {} ({}); check that rank 0 runs there, MASTER_ADDR and "
                    "MASTER_PORT, and firewalls",
                    place.rank, point.host, point.port, format_duration(timeout), reason));
  }
}

c10::intrusive_ptr<c10d::Store> open_file(const world::Place& place, const world::MeetingPoint& point) {
  const auto folder = std::filesystem::path(point.path).parent_path();
  if (!std::filesystem::is_directory(folder)) {
    throw PeerError(
        fmt::format("the folder of init_method file://{} does not exist on this host; name a file in a folder that all hosts "
                    "share",
                    point.path));
  }
  try {
    return c10::make_intrusive<c10d::FileStore>(point.path, place.world_size);
  } catch (const std::exception& error) {
    throw PeerError(fmt::format("rank {} cannot use init_method file://{}: {}", place.rank, point.path, first_line(error)));
  }
}

}  // namespace

c10::intrusive_ptr<c10d::Store> open_store(const world::Place& place, const world::MeetingPoint& point, std::chrono::milliseconds timeout) {
  return point.kind == world::MeetingPoint::Kind::kFile ? open_file(place, point) : open_tcp(place, point, timeout);
}

}  // namespace trainer::distributed
