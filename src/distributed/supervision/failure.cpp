#include "distributed/supervision/failure.h"

#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "base/file.h"

namespace trainer::supervision {

std::string to_string(const Failure& failure) {
  const auto who = failure.rank < 0 ? failure.process : fmt::format("rank {} ({})", failure.rank, failure.process);
  switch (failure.kind) {
    case Failure::Kind::kFailed:
      return fmt::format("{} failed in {}; see its own message for the reason", who, failure.where);
    case Failure::Kind::kEnded:
      return fmt::format("{} {} in {}", who, failure.detail.empty() ? "exited without reporting an error" : failure.detail, failure.where);
    case Failure::Kind::kSilent:
      return fmt::format(
          "{} has not answered for more than {}, last seen in {}; check whether its process is suspended, or its host or network is down",
          who, failure.detail, failure.where);
    case Failure::Kind::kStuck:
      return fmt::format("{} is stuck: no progress for {} in {}; if that may take longer, raise distributed.hang_seconds", who,
                         failure.detail, failure.where);
    case Failure::Kind::kLate:
      return fmt::format(
          "{} has not finished its part of the start-up within {}; see its output, or raise distributed.timeout_seconds if it needs longer",
          who, failure.detail);
    case Failure::Kind::kAllWait:
      return fmt::format(
          "all ranks have been waiting for each other for {} in {}; check that they run the same collectives in the same order",
          failure.detail, failure.where);
  }
  return "";
}

void write_error_file(const std::filesystem::path& file, const std::string& text, ExitCode exit_code) {
  // Added to the time of a failure that another rank caused; longer than it takes until all ranks have ended.
  constexpr std::chrono::seconds kConsequenceDelay{10};
  if (file.empty()) return;
  auto time = std::chrono::time_point_cast<std::chrono::seconds>(std::chrono::system_clock::now());
  if (text.empty() || exit_code == ExitCode::kPeer) time += kConsequenceDelay;
  const auto message = text.empty() ? "rank 0 reports the reason" : text;
  // torchrun prints only `py_callstack`, in which a Python process writes its call stack and the message.
  const nlohmann::json reply = {
      {"message",
       {{"message", message}, {"extraInfo", {{"py_callstack", message}, {"timestamp", std::to_string(time.time_since_epoch().count())}}}}}};
  try {
    // A path in a message may contain any bytes.
    write_file_atomically(file, reply.dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace));
  } catch (const Error&) {
  }
}

}  // namespace trainer::supervision
