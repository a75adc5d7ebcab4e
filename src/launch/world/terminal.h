#pragma once
// What the user's terminal can show, according to the environment.

namespace trainer::world {

// Whether output may contain characters other than ASCII: the locale (LC_ALL, else LC_CTYPE, else LANG) uses UTF-8, and TERM is not "dumb".
bool shows_unicode();

}  // namespace trainer::world
