#pragma once
// URLs whose user info (user:password@) or query (?token=…) may be secret. Requests use them as given; texts and files have
// without_secrets().

#include <string>
#include <string_view>

namespace trainer {

// `text` with the user info and the query of each URL in it (of any scheme) replaced by ***. A text without them, or in which they are
// replaced already, is returned unchanged.
std::string without_secrets(std::string_view text);

// Whether a URL in `text` has *** in place of its user info or query, so that it cannot be requested.
bool lacks_secrets(std::string_view text);

// The URL without its user info.
std::string without_user_info(const std::string& url);

}  // namespace trainer
