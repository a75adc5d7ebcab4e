#include "launch/meeting_client.h"

#include "launch/membership_messages.h"

namespace trainer::launch {

std::string MeetingClient::connect(std::chrono::milliseconds timeout, int wake_up) {
  std::string reason;
  auto socket = connect_to(host_, port_, timeout, wake_up, reason);
  if (socket.number() < 0) return reason;
  socket_ = LineSocket(std::move(socket), keep_alive_);
  return "";
}

void MeetingClient::join(const Join& join) { socket_.send(format_join(join)); }

void MeetingClient::report(const Ended& ended) { socket_.send(format_ended(ended)); }

std::optional<Order> MeetingClient::next_order() {
  if (is_finished_) return std::nullopt;
  socket_.receive();
  while (const auto line = socket_.next_line()) {
    const auto order = parse_order(*line);
    if (!order) {
      socket_.close();
      return std::nullopt;
    }
    if (order->kind == Order::Kind::kFinish) {
      is_finished_ = true;
      socket_.close();
    }
    return order;
  }
  return std::nullopt;
}

std::optional<Control::Request> MeetingClient::next_request() {
  const bool was_connected = is_connected();
  while (const auto order = next_order()) {
    if (!order->text.empty()) logger_.warn("{}", order->text);
    switch (order->kind) {
      case Order::Kind::kStop:
        return Request::kStop;
      case Order::Kind::kEnd:
        return Request::kEnd;
      case Order::Kind::kKill:
        return Request::kKill;
      default:
        break;
    }
  }
  if (!was_connected || is_connected() || is_finished_) return std::nullopt;
  logger_.warn("the connection to the launcher of node 0 at {}:{} is lost; ending the processes of this host", host_, port_);
  return Request::kKill;
}

}  // namespace trainer::launch
