#pragma once
// The errors that a user reads. Each says what is wrong, where, with which value and what to do, in one sentence; main prints it
// once and ends with its exit code; without a text another rank says it. Mistakes of the programmer are asserts (TORCH_CHECK or
// std::logic_error), not these.

#include <stdexcept>
#include <string>

namespace trainer {

enum class ExitCode : int {
  kDone = 0,
  kFailure = 1,     // failed while running
  kUsage = 2,       // command line or configuration
  kData = 3,        // missing, damaged or unreadable data
  kPeer = 4,        // another process of the run, the network, or a time-out
  kCheckpoint = 5,  // a checkpoint that is missing, damaged or foreign, or cannot be written
  kStopped = 75,    // stopped on request; EX_TEMPFAIL, so that schedulers start it again
};

class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, ExitCode exit_code = ExitCode::kFailure)
      : std::runtime_error(message), exit_code_(exit_code) {}
  ExitCode exit_code() const { return exit_code_; }

 private:
  ExitCode exit_code_;
};

// What all ranks of a run have agreed on, and one of them says: rank 0 has the text, the others have none.
class AgreedError : public Error {
 public:
  using Error::Error;
};

class UsageError : public Error {
 public:
  explicit UsageError(const std::string& message) : Error(message, ExitCode::kUsage) {}
};

class DataError : public Error {
 public:
  explicit DataError(const std::string& message) : Error(message, ExitCode::kData) {}
};

class CheckpointError : public Error {
 public:
  explicit CheckpointError(const std::string& message) : Error(message, ExitCode::kCheckpoint) {}
};

class PeerError : public Error {
 public:
  explicit PeerError(const std::string& message) : Error(message, ExitCode::kPeer) {}
};

}  // namespace trainer
