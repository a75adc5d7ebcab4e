#pragma once
// What launchers send each other: one JSON object a line.

#include <optional>
#include <string>

#include "launch/membership.h"

namespace trainer::launch {

// Lines, with their newline.
std::string format_join(const Join& join);
std::string format_ended(const Ended& ended);
std::string format_order(const Order& order);

// Of a line without its newline; empty if it is not such a message.
std::optional<Join> parse_join(const std::string& line);
std::optional<Ended> parse_ended(const std::string& line);
std::optional<Order> parse_order(const std::string& line);

}  // namespace trainer::launch
