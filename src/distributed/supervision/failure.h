#pragma once
// A failure that ends a run, and how it is reported: in one sentence, and to torchrun.

#include <chrono>
#include <filesystem>
#include <string>

#include "trainer/error.h"

namespace trainer::supervision {

// Why a run of several ranks cannot continue.
struct Failure {
  enum class Kind {
    kFailed,   // the rank has reported it itself; its own log has the reason
    kEnded,    // it has ended without reporting an error
    kSilent,   // it does not answer: stopped, or its host or network is lost
    kStuck,    // it sends heartbeats, but its work makes no progress
    kLate,     // it needs too long for its part of the start-up
    kAllWait,  // every rank waits for others
  };
  Kind kind = Kind::kFailed;
  int rank = 0;              // unused for kAllWait
  std::string process = {};  // "process 31 on host-a"
  std::string where = {};    // what it was doing
  std::string detail = {};   // of kEnded: "was killed by signal 9 (Killed)"; of kSilent, kStuck, kLate and kAllWait: "10 s"
};

// "rank 2 (process 31 on host-a) was killed by signal 9 (Killed) in step 12"
std::string to_string(const Failure& failure);

// Atomically writes `text` to `file` in torchrun's format; does nothing if `file` is empty. A write error is ignored, because the text has
// been logged already. torchrun reports the earliest failure as the root cause, so a failure that another rank caused (kPeer, or an empty
// text because another rank reports it) gets a later time stamp. Not collective.
void write_error_file(const std::filesystem::path& file, const std::string& text, ExitCode exit_code);

// How long a rank may take to answer, or for one step, unless a run chooses another time.
inline constexpr std::chrono::seconds kDefaultHangLimit{300};

}  // namespace trainer::supervision
