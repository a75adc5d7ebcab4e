#pragma once
// Text from outside (values of files, names of files, messages of other processes) as a terminal may receive it.

#include <string>
#include <string_view>

namespace trainer {

// `text` with each byte of a control character, and each byte that is not valid UTF-8, written as "\x1b"; tabs and line breaks stay. A
// terminal would execute control characters: they can move the cursor, erase lines and set the window's title.
std::string printable(std::string_view text);
// The same for a name in a table or message of one line: tabs and line breaks are written as "\x0a" too.
std::string printable_line(std::string_view text);

}  // namespace trainer
