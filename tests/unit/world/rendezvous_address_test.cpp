#include <gmock/gmock.h>

#include <string>

#include "launch/world/rank_env.h"
#include "trainer/error.h"

namespace trainer::world {
namespace {

using ::testing::HasSubstr;

RankEnv two_processes(std::optional<std::string> init_method = {}) {
  RankEnv rank_env{.rank = 1, .world_size = 2};
  rank_env.init_method = std::move(init_method);
  return rank_env;
}

TEST(RendezvousAddress, AloneWhateverElseIsSaid) {
  auto rank_env = two_processes("nonsense");
  rank_env.world_size = 1;
  EXPECT_EQ(rendezvous_address(rank_env, "nonsense").kind, RendezvousAddress::Kind::kAlone);
}

TEST(RendezvousAddress, FlagThenConfigurationThenMaster) {
  auto rank_env = two_processes();
  rank_env.master_addr = "h0";
  rank_env.master_port = 29500;
  rank_env.port_source = "MASTER_PORT";
  auto point = rendezvous_address(rank_env, "env://");
  EXPECT_EQ(point.kind, RendezvousAddress::Kind::kTcp);
  EXPECT_EQ(point.host, "h0");
  EXPECT_EQ(point.port, 29500);
  EXPECT_EQ(point.port_source, "MASTER_PORT");

  point = rendezvous_address(rank_env, "tcp://h1.example.org:1234");
  EXPECT_EQ(point.host, "h1.example.org");
  EXPECT_EQ(point.port_source, "distributed.init_method");
  EXPECT_EQ(point.port, 1234);

  rank_env.init_method = "file:///shared/meet here";
  point = rendezvous_address(rank_env, "tcp://h1:1234");
  EXPECT_EQ(point.kind, RendezvousAddress::Kind::kFile);
  EXPECT_EQ(point.path, "/shared/meet here");

  rank_env.init_method = "env://";
  EXPECT_EQ(rendezvous_address(rank_env, "tcp://h1:1234").host, "h0");

  point = rendezvous_address(two_processes("tcp://[fe80::1%eth0]:65535"), "env://");
  EXPECT_EQ(point.host, "fe80::1%eth0");
  EXPECT_EQ(point.port, 65535);
  EXPECT_EQ(point.port_source, "--init-method");
}

TEST(RendezvousAddress, BracketsOfMasterAddrAreRemoved) {
  const std::map<std::string, std::string> variables = {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "[::1]"}, {"MASTER_PORT", "9"}};
  const auto by_variables = find_rank_env({}, [&variables](const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
  EXPECT_EQ(rendezvous_address(by_variables, "env://").host, "::1");
}

std::string refusal(const RankEnv& rank_env, const std::string& configured) {
  try {
    rendezvous_address(rank_env, configured);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "not refused";
}

TEST(RendezvousAddress, MissingMaster) {
  auto rank_env = two_processes();
  const auto both = refusal(rank_env, "env://");
  EXPECT_THAT(both, HasSubstr("rank 1 of 2 cannot join the other ranks, because MASTER_ADDR and MASTER_PORT are not set; set MASTER_ADDR"));
  EXPECT_THAT(both, HasSubstr("mpirun -x MASTER_ADDR -x MASTER_PORT"));
  EXPECT_THAT(both, HasSubstr("--init-method file:///PATH"));
  rank_env.master_addr = "h0";
  EXPECT_THAT(refusal(rank_env, "env://"), HasSubstr("because MASTER_PORT is not set"));
  rank_env.master_addr = "";
  rank_env.master_port = 1;
  EXPECT_THAT(refusal(rank_env, "env://"), HasSubstr("because MASTER_ADDR is not set"));
}

TEST(RendezvousAddress, OtherFormsAreRefusedByTheirPlace) {
  for (const char* bad : {"tcp://h", "tcp://:1", "tcp://h:", "tcp://h:x", "tcp://h:0", "tcp://h:65536", "tcp://::1:5", "tcp://[]:5",
                          "tcp://h:1/", "tcp://"}) {
    EXPECT_EQ(refusal(two_processes(bad), "env://"),
              std::string("--init-method ") + bad + ": expected tcp://HOST:PORT (tcp://[::1]:PORT for IPv6) with a port from 1 to 65535");
  }
  for (const char* bad : {"file://relative", "file://", "file:///", "file:///folder/"}) {
    EXPECT_THAT(refusal(two_processes(), bad), HasSubstr(std::string("distributed.init_method: ") + bad + ": expected file:///PATH"));
  }
  for (const char* bad : {"", "h:1", "udp://h:1", "env:", "env://x", "/path"}) {
    EXPECT_THAT(refusal(two_processes(bad), "env://"),
                HasSubstr(std::string("--init-method ") + bad + ": expected env://, tcp://HOST:PORT"));
  }
  EXPECT_THAT(refusal(two_processes(), "tcp://h:1?rank=0&world_size=2"),
              HasSubstr("distributed.init_method: tcp://h:1?rank=0&world_size=2: the rank and the world size cannot be set here"));
}

}  // namespace
}  // namespace trainer::world
