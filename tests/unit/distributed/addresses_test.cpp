#include "distributed/addresses.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "trainer/error.h"

namespace trainer::distributed::test {
namespace {

using world::RendezvousAddress;

world::RankEnv two_ranks(int local_world_size) {
  world::RankEnv rank_env;
  rank_env.world_size = 2;
  rank_env.local_world_size = local_world_size;
  return rank_env;
}

RendezvousAddress at(const std::string& host, int port = 0) {
  return {.kind = RendezvousAddress::Kind::kTcp, .host = host, .port = port, .path = {}, .port_source = "a test"};
}

// The numeric address to which the socket is bound; empty if the listener has no socket.
std::string bound_address(const Listener& listener) {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  if (getsockname(listener.socket.number(), reinterpret_cast<sockaddr*>(&address), &size) != 0) return "";
  return inet_ntoa(address.sin_addr);
}

TEST(BindStore, ANumericAddressOfThisHost) {
  const auto listener = bind_store(two_ranks(1), at("127.0.0.1"));
  EXPECT_EQ(bound_address(listener), "127.0.0.1");
  EXPECT_EQ(listener.host, "127.0.0.1");
}

TEST(BindStore, ALoopbackNameOnlyIfAllRanksAreHere) {
  EXPECT_EQ(bound_address(bind_store(two_ranks(2), at("localhost"))), "127.0.0.1");
  EXPECT_EQ(bound_address(bind_store(two_ranks(1), at("localhost"))), "");
}

TEST(BindStore, AnAddressOfNoInterfaceMeansAll) {
  // No interface has this address, which is reserved for documentation. Nor does any interface have a public address that a router
  // translates to a private one.
  const auto listener = bind_store(two_ranks(1), at("192.0.2.1"));
  EXPECT_EQ(listener.socket.number(), -1);
  EXPECT_EQ(listener.host, "127.0.0.1");
}

TEST(BindStore, APortInUse) {
  const auto first = bind_store(two_ranks(1), at("127.0.0.1"));
  ASSERT_EQ(listen(first.socket.number(), 1), 0);
  sockaddr_in address{};
  socklen_t size = sizeof address;
  getsockname(first.socket.number(), reinterpret_cast<sockaddr*>(&address), &size);
  EXPECT_THROW(bind_store(two_ranks(1), at("127.0.0.1", ntohs(address.sin_port))), PeerError);
}

}  // namespace
}  // namespace trainer::distributed::test
