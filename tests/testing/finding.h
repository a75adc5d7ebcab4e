#pragma once
// Matchers of a finding's status and of a part of its texts.

#include <gmock/gmock.h>

#include <string>

#include "commands/doctor/checks.h"

namespace trainer::doctor {

inline ::testing::Matcher<Finding> is_finding(Status status, const ::testing::Matcher<std::string>& text,
                                              const ::testing::Matcher<std::string>& fix) {
  return ::testing::AllOf(::testing::Field("status", &Finding::status, status), ::testing::Field("text", &Finding::text, text),
                          ::testing::Field("fix", &Finding::fix, fix));
}

inline ::testing::Matcher<Finding> IsOk(const std::string& text) { return is_finding(Status::kOk, ::testing::HasSubstr(text), ""); }
inline ::testing::Matcher<Finding> IsWarning(const std::string& text, const std::string& fix) {
  return is_finding(Status::kWarning, ::testing::HasSubstr(text), ::testing::HasSubstr(fix));
}
inline ::testing::Matcher<Finding> IsFailed(const std::string& text, const std::string& fix) {
  return is_finding(Status::kFailed, ::testing::HasSubstr(text), ::testing::HasSubstr(fix));
}

}  // namespace trainer::doctor
