#pragma once
// Errors for users, whose message says what is wrong and what to do. An error with an empty message is reported by another rank.
// Programming errors are TORCH_CHECK and std::logic_error.

#include <stdexcept>
#include <string>

namespace trainer {

enum class ExitCode : int {
  kDone = 0,
  kFailure = 1,     // failed while running
  kUsage = 2,       // command line or configuration
  kData = 3,        // missing, damaged or unreadable data
  kPeer = 4,        // another process of the run failed, or the connection to it, or it did not answer in time
  kCheckpoint = 5,  // a checkpoint is missing, damaged or not written by this program, or cannot be written
  kStopped = 75,    // stopped on request; EX_TEMPFAIL, by which a job script knows to start the run again
};

class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, ExitCode exit_code = ExitCode::kFailure)
      : std::runtime_error(message), exit_code_(exit_code) {}
  ExitCode exit_code() const { return exit_code_; }

 private:
  ExitCode exit_code_;
};

// An error that all ranks of a run have agreed on; only rank 0 needs to report it.
class AgreedError : public Error {
 public:
  using Error::Error;
};

// An error whose type determines its exit code.
template <ExitCode kCode>
class ErrorWithCode : public Error {
 public:
  explicit ErrorWithCode(const std::string& message) : Error(message, kCode) {}
};
using UsageError = ErrorWithCode<ExitCode::kUsage>;
using DataError = ErrorWithCode<ExitCode::kData>;
using CheckpointError = ErrorWithCode<ExitCode::kCheckpoint>;
using PeerError = ErrorWithCode<ExitCode::kPeer>;

// An option of the library has an invalid value.
class OptionError : public UsageError {
 public:
  // `member`: the name of a member of the options.
  OptionError(const std::string& member, const std::string& problem)
      : UsageError(member + ": " + problem), member_(member), problem_(problem) {}

  const std::string& member() const { return member_; }
  const std::string& problem() const { return problem_; }

 private:
  std::string member_;
  std::string problem_;
};

}  // namespace trainer
