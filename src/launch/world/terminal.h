#pragma once
// What the user's terminal can show, as far as the environment tells.

namespace trainer::world {

// Whether text may hold characters other than ASCII: the locale (LC_ALL, else LC_CTYPE, else LANG) is one of UTF-8, and TERM is not "dumb".
bool shows_unicode();

}  // namespace trainer::world
