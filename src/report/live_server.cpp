#include "report/live_server.h"

#include <fmt/format.h>
#include <httplib.h>
#include <sys/socket.h>

#include <chrono>
#include <mutex>
#include <thread>

#include "base/error.h"

namespace trainer::report {
namespace {

constexpr const char* kAddress = "127.0.0.1";

// The port may be another one, that of a tunnel from a user's computer.
bool names_this_computer(const httplib::Request& request) {
  const auto host = request.get_header_value("Host");
  const auto name = host.substr(0, host.find(':'));
  return name == kAddress || name == "localhost";
}

void refuse(httplib::Response& response, int status, const char* reason) {
  response.status = status;
  response.set_content(std::string(reason) + '\n', "text/plain");
}

}  // namespace

struct LiveServer::Impl {
  explicit Impl(LiveContent given) : content(std::move(given)) {
    // Connections of browsers stay open; each keeps a thread.
    server.set_keep_alive_max_count(1);
    // By default another server could listen on the same port.
    server.set_socket_options([](socket_t socket) {
      const int yes = 1;
      ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    });
    server.set_default_headers({{"Cache-Control", "no-store"},
                                {"X-Content-Type-Options", "nosniff"},
                                {"Cross-Origin-Resource-Policy", "same-origin"},
                                {"X-Frame-Options", "DENY"}});
    server.set_pre_routing_handler([](const httplib::Request& request, httplib::Response& response) {
      if (!names_this_computer(request)) {
        refuse(response, 403, "only requests to 127.0.0.1 or localhost are answered");
        return httplib::Server::HandlerResponse::Handled;
      }
      if (request.method != "GET") {
        refuse(response, 405, "only GET is answered");
        return httplib::Server::HandlerResponse::Handled;
      }
      return httplib::Server::HandlerResponse::Unhandled;
    });
    server.set_exception_handler([](const httplib::Request&, httplib::Response& response, const std::exception_ptr& error) {
      try {
        std::rethrow_exception(error);
      } catch (const std::exception& known) {
        refuse(response, 500, known.what());
      } catch (...) {
        refuse(response, 500, "unknown error");
      }
    });
    server.Get("/", [this](const httplib::Request&, httplib::Response& response) {
      const std::lock_guard lock(mutex);
      response.set_content(content.page(), "text/html; charset=utf-8");
    });
    server.Get("/data", [this](const httplib::Request& request, httplib::Response& response) {
      const std::lock_guard lock(mutex);
      const auto tag = '"' + content.version() + '"';
      response.set_header("ETag", tag);
      if (request.get_header_value("If-None-Match") == tag) {
        response.status = 304;
      } else {
        response.set_content(content.data(), "application/json");
      }
    });
  }

  LiveContent content;
  std::mutex mutex;  // of `content`
  httplib::Server server;
  int port = 0;
};

LiveServer::LiveServer(int port, LiveContent content) : impl_(std::make_unique<Impl>(std::move(content))) {
  auto& server = impl_->server;
  impl_->port = port == 0 ? server.bind_to_any_port(kAddress) : (server.bind_to_port(kAddress, port) ? port : -1);
  if (impl_->port < 0) {
    throw UsageError(
        fmt::format("--port {}: another program uses this port, or it needs other rights; choose another one, or omit --port", port));
  }
}

LiveServer::~LiveServer() = default;

int LiveServer::port() const { return impl_->port; }

void LiveServer::serve(const std::function<bool()>& should_stop) {
  std::thread listener([this] { impl_->server.listen_after_bind(); });
  while (!should_stop()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  impl_->server.stop();
  listener.join();
}

}  // namespace trainer::report
