#include "base/url.h"

#include <algorithm>

namespace trainer {
namespace {

constexpr std::string_view kMask = "***";
constexpr std::string_view kSchemeEnd = "://";
constexpr std::string_view kSpace = " \t\r\n";

// The parts of the first URL in a text that may be secret.
struct SecretParts {
  size_t user_info = 0;  // where it begins; it ends before the @, if there is one
  size_t at = std::string_view::npos;
  size_t query = std::string_view::npos;  // where it begins, after the ?
  size_t end = std::string_view::npos;    // of the URL; npos: the text has no URL

  // Where to search for the next URL, which may be in the path of this one.
  size_t next() const { return query == std::string_view::npos ? user_info : end; }
};

SecretParts find_secrets(std::string_view text, size_t begin) {
  const auto scheme_end = text.find(kSchemeEnd, begin);
  if (scheme_end == text.npos) return {};
  SecretParts parts{.user_info = scheme_end + kSchemeEnd.size()};
  const auto end = std::min(text.find_first_of(kSpace, parts.user_info), text.size());
  const auto authority = text.substr(0, std::min(text.find_first_of("/?#", parts.user_info), end));
  const auto at = authority.rfind('@');
  if (at != text.npos && at >= parts.user_info) parts.at = at;
  // The text after the URL may begin with the quote that was opened before it, or with punctuation. Other quotes belong to the URL.
  parts.end = end;
  const auto opening = text.find_first_of("\"'`<", text.find_last_of(kSpace, scheme_end) + 1);
  if (opening < scheme_end) parts.end = std::min(text.find(text[opening] == '<' ? '>' : text[opening], authority.size()), end);
  parts.end = text.substr(0, parts.end).find_last_not_of(".,;:!)]}") + 1;
  parts.end = std::max(parts.end, authority.size());
  const auto query = text.find('?', authority.size());
  if (query < parts.end - 1) parts.query = query + 1;
  return parts;
}

}  // namespace

std::string without_secrets(std::string_view text) {
  std::string result;
  size_t copied = 0;
  const auto replace = [&](size_t begin, size_t end) {
    result += text.substr(copied, begin - copied);
    result += kMask;
    copied = end;
  };
  for (auto parts = find_secrets(text, 0); parts.end != text.npos; parts = find_secrets(text, parts.next())) {
    if (parts.at != text.npos) replace(parts.user_info, parts.at);
    if (parts.query != text.npos) replace(parts.query, parts.end);
  }
  return result += text.substr(copied);
}

bool lacks_secrets(std::string_view text) {
  for (auto parts = find_secrets(text, 0); parts.end != text.npos; parts = find_secrets(text, parts.next())) {
    if (parts.at != text.npos && text.substr(parts.user_info, parts.at - parts.user_info) == kMask) return true;
    if (parts.query != text.npos && text.substr(parts.query, parts.end - parts.query) == kMask) return true;
  }
  return false;
}

std::string without_user_info(const std::string& url) {
  const auto parts = find_secrets(url, 0);
  auto result = url;
  if (parts.end != url.npos && parts.at != url.npos) result.erase(parts.user_info, parts.at + 1 - parts.user_info);
  return result;
}

}  // namespace trainer
