#include "launch/membership_messages.h"

#include <nlohmann/json.hpp>

namespace trainer::launch {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Join, node, min_nodes, max_nodes, host, process_id, num_processes, port)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Ended, exit_code, was_asked_to_stop, port)
NLOHMANN_JSON_SERIALIZE_ENUM(Order::Kind, {{Order::Kind::kWait, "wait"},
                                           {Order::Kind::kStart, "start"},
                                           {Order::Kind::kStop, "stop"},
                                           {Order::Kind::kEnd, "end"},
                                           {Order::Kind::kKill, "kill"},
                                           {Order::Kind::kFinish, "finish"},
                                           {Order::Kind::kRetry, "retry"}})
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Order, kind, node, text, attempt, group_rank, num_nodes, port, exit_code, is_error)

namespace {

// A message is an object with one member, whose name is its type: {"join": {...}}.
template <class Message>
std::string format(const char* type, const Message& message) {
  // Text that is not UTF-8 must not throw.
  return nlohmann::json{{type, message}}.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + '\n';
}

template <class Message>
std::optional<Message> parse(const char* type, const std::string& line) {
  try {
    return nlohmann::json::parse(line).at(type).get<Message>();
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

}  // namespace

std::string format_join(const Join& join) { return format("join", join); }
std::string format_ended(const Ended& ended) { return format("ended", ended); }
std::string format_order(const Order& order) { return format("order", order); }

std::optional<Join> parse_join(const std::string& line) { return parse<Join>("join", line); }
std::optional<Ended> parse_ended(const std::string& line) { return parse<Ended>("ended", line); }
std::optional<Order> parse_order(const std::string& line) { return parse<Order>("order", line); }

}  // namespace trainer::launch
