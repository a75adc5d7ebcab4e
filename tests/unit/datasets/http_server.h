#pragma once

#include <arpa/inet.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

namespace trainer::datasets::test {

// Serves HTTP on a free port of 127.0.0.1, one connection after the other; the test's function answers each.
class HttpServer {
 public:
  // One request, whose header has been read.
  class Connection {
   public:
    Connection(int descriptor, int stop, std::string path) : descriptor_(descriptor), stop_(stop), path_(std::move(path)) {}
    const std::string& path() const { return path_; }

    void send(std::string_view bytes) {
      while (!bytes.empty()) {
        const ssize_t sent = ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (sent <= 0) return;
        bytes.remove_prefix(static_cast<size_t>(sent));
      }
    }
    void reply(const std::string& body) {
      send(fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.size()));
      send(body);
    }
    // Returns when the client has closed the connection or the server is being stopped.
    void wait_for_hang_up() const {
      std::array polled = {pollfd{descriptor_, POLLRDHUP, 0}, pollfd{stop_, POLLIN, 0}};
      while (::poll(polled.data(), polled.size(), -1) < 0 && errno == EINTR) {
      }
    }

   private:
    int descriptor_;
    int stop_;
    std::string path_;
  };

  explicit HttpServer(std::function<void(Connection&)> answer)
      : answer_(std::move(answer)), listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), stop_(::eventfd(0, EFD_CLOEXEC)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (::bind(listener_, generic, size) != 0 || ::listen(listener_, 16) != 0 || ::getsockname(listener_, generic, &size) != 0) {
      throw std::runtime_error("the test's HTTP server cannot listen");
    }
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~HttpServer() {
    ::eventfd_write(stop_, 1);
    thread_.join();
    ::close(listener_);
    ::close(stop_);
  }
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::string url(const std::string& path) const { return fmt::format("http://127.0.0.1:{}{}", port_, path); }
  int num_requests() const { return num_requests_; }

 private:
  void serve() {
    std::array polled = {pollfd{listener_, POLLIN, 0}, pollfd{stop_, POLLIN, 0}};
    while (true) {
      if (::poll(polled.data(), polled.size(), -1) < 0 && errno == EINTR) continue;
      if ((polled[1].revents & POLLIN) != 0) return;
      const int descriptor = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (descriptor < 0) continue;
      const auto path = read_request(descriptor);
      if (!path.empty()) {
        ++num_requests_;
        Connection connection(descriptor, stop_, path);
        answer_(connection);
      }
      ::close(descriptor);
    }
  }

  // The path of the request "GET /path HTTP/1.1". Empty if the client closes the connection first.
  static std::string read_request(int descriptor) {
    std::string header;
    std::array<char, 4096> buffer{};
    while (header.find("\r\n\r\n") == std::string::npos) {
      const ssize_t received = ::recv(descriptor, buffer.data(), buffer.size(), 0);
      if (received <= 0) return "";
      header.append(buffer.data(), static_cast<size_t>(received));
    }
    const auto start = header.find(' ') + 1;
    return header.substr(start, header.find(' ', start) - start);
  }

  std::function<void(Connection&)> answer_;
  int listener_;
  int stop_;
  uint16_t port_ = 0;
  std::atomic<int> num_requests_{0};
  std::thread thread_;
};

}  // namespace trainer::datasets::test
