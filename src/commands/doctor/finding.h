#pragma once

#include <string>
#include <utility>
#include <vector>

namespace trainer::doctor {

// What would make training fail is kFailed; what would make it slow, or fail in some set-ups only, is kWarning.
enum class Status { kOk, kWarning, kFailed };

struct Finding {
  Status status = Status::kOk;
  std::string text;
  std::string cure = {};  // empty if the status is kOk
};

inline Finding ok(std::string text) { return {Status::kOk, std::move(text)}; }
inline Finding warning(std::string text, std::string cure) { return {Status::kWarning, std::move(text), std::move(cure)}; }
inline Finding failed(std::string text, std::string cure) { return {Status::kFailed, std::move(text), std::move(cure)}; }

}  // namespace trainer::doctor
