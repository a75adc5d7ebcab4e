#pragma once
// A failure that ends a run, and how it is reported to the user and to torchrun.

#include <chrono>
#include <filesystem>
#include <string>

#include "trainer/error.h"

namespace trainer::supervision {

// Why a run of several ranks cannot continue.
struct Failure {
  enum class Kind {
    kFailed,   // the rank has reported its own failure; its log has the reason
    kEnded,    // the rank has exited without reporting an error
    kSilent,   // the rank does not answer: it is suspended, or its host or network is down
    kStuck,    // the rank sends heartbeats, but its work makes no progress
    kLate,     // the rank takes too long for its part of the start-up
    kAllWait,  // every rank waits for other ranks
  };
  Kind kind = Kind::kFailed;
  int rank = 0;              // -1: `process` is not a rank; unused for kAllWait
  std::string process = {};  // "process 31 on host-a"
  std::string where = {};    // what the rank was doing
  std::string detail = {};   // for kEnded: "was killed by signal 9 (Killed)"; for kSilent, kStuck, kLate and kAllWait: "10 s"
};

// "rank 2 (process 31 on host-a) was killed by signal 9 (Killed) in step 12"
std::string to_string(const Failure& failure);

// Writes `text`, which has been logged, to `file` in torchrun's format; does nothing if `file` is empty, and ignores write errors. torchrun
// reports the earliest failure as the root cause, so one that another rank caused (kPeer, or an empty text) gets a later timestamp.
void write_error_file(const std::filesystem::path& file, const std::string& text, ExitCode exit_code);

// The default for how long a rank may take to answer or to complete one step.
inline constexpr std::chrono::seconds kDefaultHangLimit{300};

}  // namespace trainer::supervision
