#include "launch/line_socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <string>
#include <utility>

#include "base/error.h"

namespace trainer::launch {
namespace {

// The end of a stranger, which does not wait, and a LineSocket.
std::pair<Descriptor, LineSocket> make_connection() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) throw Error("no sockets");
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return std::pair(Descriptor(ends[0]), LineSocket(Descriptor(ends[1]), KeepAlive{}));
}

// As a meeting does; returns the number of lines.
int read_lines(LineSocket& socket) {
  int num_lines = 0;
  socket.receive();
  while (socket.next_line()) ++num_lines;
  return num_lines;
}

TEST(LineSocket, ALineWithoutAnEndClosesTheConnectionAlsoBehindOthers) {
  for (const std::string begin : {"", "\n", "one\ntwo\n"}) {
    auto [stranger, socket] = make_connection();
    std::string bytes = begin + std::string(1 << 14, 'x');
    std::string_view rest = bytes;
    write_all(stranger.number(), rest);
    int num_calls = 0;
    while (socket.descriptor() >= 0 && num_calls < 10) {
      read_lines(socket);
      ++num_calls;
    }
    EXPECT_LT(num_calls, 10) << begin;
  }
}

TEST(LineSocket, LinesThatArriveTogetherAreReadInParts) {
  auto [stranger, socket] = make_connection();
  std::string bytes;
  for (int i = 0; i < 1000; ++i) bytes += "a line of some length\n";
  std::string_view rest = bytes;
  ASSERT_TRUE(write_all(stranger.number(), rest));
  const int first = read_lines(socket);
  EXPECT_LT(first, 1000);
  int num_lines = first;
  for (int more = read_lines(socket); more > 0; more = read_lines(socket)) num_lines += more;
  EXPECT_EQ(num_lines, 1000);
}

}  // namespace
}  // namespace trainer::launch
