#pragma once
// Texts of files, embedded by CMake.

#include <string_view>

namespace trainer::commands {

// image_page.html: the page of make_image_page() (commands/pictures.h), with the names of its parts in braces.
extern const std::string_view kImagePage;
// THIRD_PARTY_NOTICES.md
extern const std::string_view kThirdPartyNotices;

}  // namespace trainer::commands
