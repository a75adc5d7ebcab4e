#pragma once
// Texts of files, embedded by CMake.

#include <string_view>

namespace trainer::commands {

// audit_page.html: the page of `trainer data audit`, with the names of its parts in braces.
extern const std::string_view kImagePage;
// THIRD_PARTY_NOTICES.md
extern const std::string_view kThirdPartyNotices;

}  // namespace trainer::commands
