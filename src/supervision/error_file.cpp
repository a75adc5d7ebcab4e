#include "supervision/error_file.h"

#include <chrono>
#include <nlohmann/json.hpp>

#include "base/file.h"

namespace trainer::supervision {
namespace {

// Longer than all ranks need to end.
constexpr std::chrono::seconds kConsequenceDelay{10};

}  // namespace

void write_error_file(const std::filesystem::path& file, const std::string& text, ExitCode exit_code) {
  if (file.empty()) return;
  auto time = std::chrono::time_point_cast<std::chrono::seconds>(std::chrono::system_clock::now());
  if (text.empty() || exit_code == ExitCode::kPeer) time += kConsequenceDelay;
  const auto message = text.empty() ? "rank 0 reports the reason" : text;
  // torchrun prints the call stack, which in a Python process contains the message.
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
