#pragma once
// A launcher's connection to the meeting of an elastic run.

#include <chrono>
#include <optional>
#include <string>

#include "base/log.h"
#include "launch/launcher.h"
#include "launch/line_socket.h"
#include "launch/membership.h"

namespace trainer::launch {

class MeetingClient : public Control {
 public:
  MeetingClient(std::string host, int port, const KeepAlive& keep_alive, Logger& logger)
      : host_(std::move(host)), port_(port), keep_alive_(keep_alive), logger_(logger) {}

  // Waits up to `timeout`, or until `wake_up` is readable. Returns the reason if there is no connection, else "".
  std::string connect(std::chrono::milliseconds timeout, int wake_up);
  bool is_connected() const { return socket_.descriptor() >= 0; }
  void close() { socket_.close(); }

  void join(const Join& join);
  void report(const Ended& ended);
  // The next order that has arrived; does not wait. After kFinish there are no more.
  std::optional<Order> next_order();

  // While processes run: the connection's descriptor, and what its orders ask for. If it is lost, the processes have to end, because the
  // other hosts continue without this one.
  int descriptor() const override { return socket_.descriptor(); }
  std::optional<Request> next_request() override;
  bool is_finished() const { return is_finished_; }

 private:
  const std::string host_;
  const int port_;
  const KeepAlive keep_alive_;
  Logger& logger_;
  LineSocket socket_;
  bool is_finished_ = false;
};

}  // namespace trainer::launch
