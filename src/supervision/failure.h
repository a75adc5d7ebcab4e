#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace trainer::supervision {

// Why a run of several ranks cannot continue.
struct Failure {
  enum class Kind {
    kFailed,   // the rank has reported it itself; its own log has the reason
    kEnded,    // it has ended without reporting an error
    kSilent,   // it does not answer: stopped, or its host or network is lost
    kStuck,    // it sends heartbeats, but its work makes no progress
    kAllWait,  // every rank waits for others
  };
  Kind kind = Kind::kFailed;
  int rank = 0;              // unused for kAllWait
  std::string process = {};  // "process 31 on host-a"
  std::string where = {};    // what it was doing
  std::string detail = {};   // of kEnded: "was killed by signal 9 (Killed)"; of kSilent, kStuck and kAllWait: "10 s"
};

// "rank 2 (process 31 on host-a) was killed by signal 9 (Killed) in step 12"
std::string to_string(const Failure& failure);

void to_json(nlohmann::json& json, const Failure& failure);
void from_json(const nlohmann::json& json, Failure& failure);

}  // namespace trainer::supervision
