#include "supervision/failure.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace trainer::supervision {

std::string to_string(const Failure& failure) {
  const auto who = fmt::format("rank {} ({})", failure.rank, failure.process);
  switch (failure.kind) {
    case Failure::Kind::kFailed:
      return fmt::format("{} failed in {}; see its own message for the reason", who, failure.where);
    case Failure::Kind::kEnded:
      return fmt::format("{} {} in {}", who, failure.detail.empty() ? "exited without reporting an error" : failure.detail, failure.where);
    case Failure::Kind::kSilent:
      return fmt::format("{} has not answered for more than {}, last seen in {}; it is stopped, or its host or network is lost", who,
                         failure.detail, failure.where);
    case Failure::Kind::kStuck:
      return fmt::format("{} is stuck: no progress for {} in {}", who, failure.detail, failure.where);
    case Failure::Kind::kAllWait:
      return fmt::format("all ranks have been waiting for each other for {}, in {}; they do not run the same collectives in the same order",
                         failure.detail, failure.where);
  }
  return "";
}

void to_json(nlohmann::json& json, const Failure& failure) {
  json = {{"kind", static_cast<int>(failure.kind)},
          {"rank", failure.rank},
          {"process", failure.process},
          {"where", failure.where},
          {"detail", failure.detail}};
}

void from_json(const nlohmann::json& json, Failure& failure) {
  failure.kind = static_cast<Failure::Kind>(json.at("kind").get<int>());
  json.at("rank").get_to(failure.rank);
  json.at("process").get_to(failure.process);
  json.at("where").get_to(failure.where);
  json.at("detail").get_to(failure.detail);
}

}  // namespace trainer::supervision
