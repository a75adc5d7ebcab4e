#include "distributed/rendezvous.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>
#include <random>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <tuple>

#include "tests/testing/temporary_folder.h"
#include "trainer/error.h"

namespace trainer::distributed::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using world::RendezvousAddress;

constexpr seconds kLong{60};  // catches hangs only

// A free port below the range from which the system assigns ports to connections, which other tests open at the same time. If `listener` is
// not null, `*listener` gets a socket that listens on the port.
int free_port(int* listener = nullptr) {
  std::random_device random;
  std::uniform_int_distribution<int> ports(15000, 32000);
  while (true) {
    const int port = ports(random);
    const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    const bool is_free = bind(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 && listen(descriptor, 1) == 0;
    if (is_free && listener != nullptr) {
      *listener = descriptor;
    } else {
      close(descriptor);
    }
    if (is_free) return port;
  }
}

RendezvousAddress tcp_point() { return {.kind = RendezvousAddress::Kind::kTcp, .host = "127.0.0.1", .port = free_port(), .path = {}}; }
RendezvousAddress file_point(const std::filesystem::path& path) {
  return {.kind = RendezvousAddress::Kind::kFile, .host = {}, .port = 0, .path = path.string()};
}

world::RankEnv place_of(int rank, int world_size) {
  world::RankEnv rank_env;
  rank_env.rank = rank;
  rank_env.world_size = world_size;
  return rank_env;
}

Hello hello() {
  Hello mine;
  mine.rank.host = "here";
  mine.rank.process_id = 123;
  mine.version = "trainer 1";
  mine.config = "lr 0.1";
  return mine;
}

struct Outcome {
  Rendezvous rendezvous;
  std::string error;
  ExitCode exit_code = ExitCode::kDone;
};

Outcome attempt(const world::RankEnv& rank_env, const RendezvousAddress& point, const Hello& mine, milliseconds timeout = kLong,
                const world::RunSecret& secret = {}) {
  Outcome outcome;
  const auto logger = make_quiet_logger();
  try {
    outcome.rendezvous = join_run(rank_env, point, mine, secret, timeout, *logger);
  } catch (const Error& error) {
    outcome.error = error.what();
    outcome.exit_code = error.exit_code();
  }
  return outcome;
}

// Lets as many ranks join as there are hellos; rank r sends hellos[r].
std::vector<Outcome> join_all(const RendezvousAddress& point, const std::vector<Hello>& hellos) {
  std::vector<std::future<Outcome>> ranks;
  for (size_t rank = 0; rank < hellos.size(); ++rank) {
    ranks.push_back(std::async(std::launch::async, [&, rank] {
      return attempt(place_of(static_cast<int>(rank), static_cast<int>(hellos.size())), point, hellos[rank]);
    }));
  }
  std::vector<Outcome> outcomes;
  for (auto& rank : ranks) outcomes.push_back(rank.get());
  return outcomes;
}

TEST(Rendezvous, RanksMeetOverTcpAndFile) {
  const testing::TemporaryFolder folder;
  for (const auto& point : {tcp_point(), file_point(folder.path() / "meet")}) {
    auto hellos = std::vector(3, hello());
    hellos[1].rank.process_id = 7;
    const auto outcomes = join_all(point, hellos);
    for (size_t rank = 0; rank < 3; ++rank) {
      ASSERT_EQ(outcomes[rank].error, "");
      ASSERT_EQ(outcomes[rank].rendezvous.ranks.size(), 3U);
      EXPECT_EQ(outcomes[rank].rendezvous.ranks[1].process_id, 7);
      // The local ranks are computed, because no launcher has set them.
      EXPECT_EQ(outcomes[rank].rendezvous.local_rank, static_cast<int>(rank));
      EXPECT_EQ(outcomes[rank].rendezvous.local_world_size, 3);
      EXPECT_EQ(outcomes[rank].rendezvous.num_sharing_cpus, 3);
      EXPECT_EQ(outcomes[rank].rendezvous.address, "127.0.0.1");
    }
    outcomes[2].rendezvous.store->set("key", std::vector<uint8_t>{42});
    EXPECT_EQ(outcomes[0].rendezvous.store->get("key"), std::vector<uint8_t>{42});
  }
}

TEST(Rendezvous, LocalRanksAreCountedPerHost) {
  auto hellos = std::vector(3, hello());
  hellos[1].rank.host = "there";
  hellos[2].rank.cpu_mask = "4,5";
  const auto outcomes = join_all(tcp_point(), hellos);
  EXPECT_EQ(outcomes[1].rendezvous.local_rank, 0);
  EXPECT_EQ(outcomes[1].rendezvous.local_world_size, 1);
  EXPECT_EQ(outcomes[2].rendezvous.local_rank, 1);
  EXPECT_EQ(outcomes[2].rendezvous.local_world_size, 2);
  EXPECT_EQ(outcomes[2].rendezvous.num_sharing_cpus, 1);
}

TEST(Rendezvous, AnAttemptIgnoresKeysOfTheAttemptBefore) {
  const testing::TemporaryFolder folder;
  const auto point = file_point(folder.path() / "meet");
  auto rank_env = place_of(0, 1);
  const auto first = attempt(rank_env, point, hello());
  ASSERT_EQ(first.error, "");
  rank_env.restart_attempt = 1;
  const auto second = attempt(rank_env, point, hello());
  EXPECT_EQ(second.error, "");
}

TEST(Rendezvous, ARestartedNodeMeetsRestartedRanks) {
  const auto point = tcp_point();
  auto restarted = place_of(0, 2);
  restarted.restart_attempt = 1;
  auto first = std::async(std::launch::async, [&] { return attempt(restarted, point, hello()); });
  EXPECT_EQ(attempt(place_of(1, 2), point, hello()).error, "");
  EXPECT_EQ(first.get().error, "");
}

TEST(Rendezvous, RanksOfAnotherWorldSizeAreRefused) {
  const auto point = tcp_point();
  auto first = std::async(std::launch::async, [&] { return attempt(place_of(0, 2), point, hello()); });
  const auto other = attempt(place_of(1, 3), point, hello());
  const auto outcome = first.get();
  EXPECT_THAT(outcome.error, HasSubstr("rank 1 on here is one of 3 ranks, but rank 0 on here is one of 2"));
  EXPECT_EQ(outcome.exit_code, ExitCode::kUsage);
  EXPECT_EQ(other.exit_code, ExitCode::kUsage);
  // The third rank joins after the others have met.
  const auto other_point = tcp_point();
  const auto outcomes = join_all(other_point, std::vector(2, hello()));
  const auto late = attempt(place_of(2, 3), other_point, hello());
  EXPECT_THAT(late.error, HasSubstr("rank 2 is one of 3 ranks, but 2 ranks joined at 127.0.0.1:"));
  EXPECT_EQ(late.exit_code, ExitCode::kPeer);
}

TEST(Rendezvous, MissingRanksAreNamedEverywhere) {
  const auto point = tcp_point();
  auto first = std::async(std::launch::async, [&] { return attempt(place_of(0, 4), point, hello(), seconds(1)); });
  auto other = std::async(std::launch::async, [&] { return attempt(place_of(2, 4), point, hello()); });
  const auto outcome = first.get();
  EXPECT_THAT(outcome.error,
              AllOf(HasSubstr("2 of 4 ranks did not join within 1.0s: ranks 1, 3"), HasSubstr("distributed.timeout_seconds")));
  EXPECT_EQ(outcome.exit_code, ExitCode::kPeer);
  const auto silent = other.get();
  EXPECT_THAT(silent.error, IsEmpty());
  EXPECT_EQ(silent.exit_code, ExitCode::kPeer);
}

TEST(Rendezvous, MissingRanksAreNamedWithTheirSlurmNodes) {
  auto rank_env = place_of(0, 5);
  rank_env.slurm_hosts = {"n1", "n1", "n2", "n2", "m"};
  const auto outcome = attempt(rank_env, tcp_point(), hello(), seconds(1));
  EXPECT_THAT(outcome.error, HasSubstr("4 of 5 ranks did not join within 1.0s: ranks 1 on n1, 2, 3 on n2, 4 on m; check why"));
}

TEST(Rendezvous, AnotherConfigurationIsRefusedWithTheDifference) {
  auto hellos = std::vector(2, hello());
  hellos[1].config = "lr 0.2";
  const auto outcomes = join_all(tcp_point(), hellos);
  EXPECT_THAT(outcomes[0].error, HasSubstr("rank 1 on here has a different configuration from rank 0: lr 0.1 on rank 0 and lr 0.2 on the "
                                           "other rank; start all ranks with the same file and overrides"));
  EXPECT_EQ(outcomes[0].exit_code, ExitCode::kUsage);
  EXPECT_EQ(outcomes[1].exit_code, ExitCode::kUsage);
}

TEST(Rendezvous, AnotherVersionIsRefused) {
  auto hellos = std::vector(2, hello());
  hellos[1].version = "trainer 2";
  const auto outcomes = join_all(tcp_point(), hellos);
  EXPECT_THAT(outcomes[0].error, HasSubstr("rank 1 on here runs trainer 2, but rank 0 on here runs trainer 1"));
}

TEST(Rendezvous, ProblemsAreReportedOnce) {
  auto hellos = std::vector(3, hello());
  for (auto& mine : hellos) mine.problem = {"x.yaml:1: lr: unknown key", 2};
  auto outcomes = join_all(tcp_point(), hellos);
  EXPECT_EQ(outcomes[0].error, "x.yaml:1: lr: unknown key");
  for (const auto& outcome : outcomes) EXPECT_EQ(outcome.exit_code, ExitCode::kUsage);
  EXPECT_THAT(outcomes[2].error, IsEmpty());

  hellos[0].problem = {};
  hellos[2].problem = {};
  outcomes = join_all(tcp_point(), hellos);
  EXPECT_EQ(outcomes[0].error, "rank 1: x.yaml:1: lr: unknown key");
}

TEST(Rendezvous, ARankThatJoinsTwiceIsRefused) {
  const auto point = tcp_point();
  auto first = std::async(std::launch::async, [&] { return attempt(place_of(0, 2), point, hello()); });
  // Of two processes with rank 1, the second to join is refused; the other meets rank 0.
  auto one = std::async(std::launch::async, [&] { return attempt(place_of(1, 2), point, hello()); });
  auto two = std::async(std::launch::async, [&] { return attempt(place_of(1, 2), point, hello()); });
  const auto a = one.get().error;
  const auto b = two.get().error;
  EXPECT_EQ(first.get().error, "");
  EXPECT_NE(a.empty(), b.empty());
  EXPECT_THAT(a + b, HasSubstr("rank 1 is already taken by process 123 on here"));
}

TEST(Rendezvous, AFileOfAnEarlierRunIsNamed) {
  const testing::TemporaryFolder folder;
  const auto point = file_point(folder.path() / "meet");
  // The file is removed when the last process that has it open ends.
  const auto earlier = attempt(place_of(0, 1), point, hello());
  const auto again = attempt(place_of(0, 2), point, hello());
  EXPECT_THAT(again.error, AllOf(HasSubstr("file://" + point.path), HasSubstr("or was left by an earlier run; remove the file")));
  EXPECT_EQ(again.exit_code, ExitCode::kPeer);
}

TEST(Rendezvous, AMissingFolder) {
  const auto outcome = attempt(place_of(0, 2), file_point("/no/such/folder/meet"), hello());
  EXPECT_THAT(outcome.error, HasSubstr("the folder of init_method file:///no/such/folder/meet does not exist"));
}

TEST(Rendezvous, ATakenPortIsNamed) {
  int listener = -1;
  auto point = tcp_point();
  point.port = free_port(&listener);
  point.port_source = "computed from a test";
  const auto outcome = attempt(place_of(0, 2), point, hello());
  close(listener);
  EXPECT_THAT(outcome.error, HasSubstr("rank 0 cannot listen on port " + std::to_string(point.port) +
                                       " (computed from a test), because another program uses it"));
  EXPECT_EQ(outcome.exit_code, ExitCode::kPeer);
}

TEST(Rendezvous, AnUnknownHost) {
  const auto point = tcp_point();
  const auto outcome = attempt(place_of(1, 2), point, hello(), seconds(1));
  EXPECT_THAT(outcome.error, HasSubstr("rank 1 could not reach rank 0 at 127.0.0.1:" + std::to_string(point.port) + " within 1.0s"));
  EXPECT_EQ(outcome.exit_code, ExitCode::kPeer);
}

world::RunSecret from_file(const std::string& text) { return {world::RunSecret::Source::kFile, text}; }

TEST(Rendezvous, RanksWithASecretMeetAndHideWhatTheySay) {
  const auto point = tcp_point();
  const auto secret = from_file("sixteen characters");
  auto first = std::async(std::launch::async, [&] { return attempt(place_of(0, 2), point, hello(), kLong, secret); });
  const auto other = attempt(place_of(1, 2), point, hello(), kLong, secret);
  const auto outcome = first.get();
  ASSERT_EQ(outcome.error, "");
  ASSERT_EQ(other.error, "");
  other.rendezvous.store->set("key", std::vector<uint8_t>{42});
  EXPECT_EQ(outcome.rendezvous.store->get("key"), std::vector<uint8_t>{42});
  // Connects to the store like a program that is not part of the run.
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(point.port);
  options.waitWorkers = false;
  c10d::TCPStore stranger(point.host, options);
  int num_values = 0;
  for (const auto& key : stranger.listKeys()) {
    if (key.find("claim") != std::string::npos || key.find("init/") != std::string::npos) continue;
    const auto value = stranger.get(key);
    EXPECT_THAT(std::string(value.begin(), value.end()), ::testing::Not(HasSubstr("optimizer"))) << key;
    ++num_values;
  }
  EXPECT_GT(num_values, 2);
  EXPECT_FALSE(stranger.check({"trainer/0/rank/0"}));
}

TEST(Rendezvous, RanksWithDifferentSecretsAreTold) {
  using Source = world::RunSecret::Source;
  const std::vector<std::tuple<world::RunSecret, world::RunSecret, const char*>> cases = {
      {from_file("sixteen characters"), from_file("other characters"),
       "rank 1 and rank 0 have different secrets (distributed.secret_file differs)"},
      {from_file("sixteen characters"), {}, "rank 1 has no secret, but rank 0 has distributed.secret_file"},
      {{}, {Source::kSlurm, "12"}, "rank 1 has Slurm's job id (SLURM_JOB_ID), but rank 0 has no secret"}};
  std::vector<std::future<std::pair<Outcome, Outcome>>> pairs;
  for (const auto& [of_rank0, of_rank1, error] : cases) {
    pairs.push_back(std::async(std::launch::async, [of_rank0, of_rank1] {
      const auto point = tcp_point();
      auto first = std::async(std::launch::async, [&] { return attempt(place_of(0, 2), point, hello(), seconds(4), of_rank0); });
      auto other = attempt(place_of(1, 2), point, hello(), kLong, of_rank1);
      return std::pair(first.get(), std::move(other));
    }));
  }
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto [first, other] = pairs[i].get();
    EXPECT_THAT(other.error, HasSubstr(std::get<2>(cases[i])));
    EXPECT_EQ(other.exit_code, ExitCode::kUsage);
    EXPECT_THAT(first.error, HasSubstr("1 of 2 ranks did not join"));
  }
}

TEST(Rendezvous, ARankWhoseConfigurationIsWrongReportsThatRatherThanItsSecret) {
  const auto point = tcp_point();
  auto first =
      std::async(std::launch::async, [&] { return attempt(place_of(0, 2), point, hello(), seconds(2), from_file("sixteen characters")); });
  auto mine = hello();
  mine.problem = {"x.yaml:1: lr: unknown key", 2};
  EXPECT_EQ(attempt(place_of(1, 2), point, mine).error, "x.yaml:1: lr: unknown key");
  first.get();
}

TEST(Rendezvous, ABrokenHelloIsReportedAtOnce) {
  const auto point = tcp_point();
  auto first = std::async(std::launch::async, [&] { return attempt(place_of(0, 3), point, hello()); });
  auto other = std::async(std::launch::async, [&] { return attempt(place_of(2, 3), point, hello()); });
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(point.port);
  options.waitWorkers = false;
  c10d::TCPStore stranger(point.host, options);
  stranger.wait({"trainer/0/rank/2"}, kLong);
  stranger.set("trainer/0/rank/1", std::vector<uint8_t>{'{', '}'});
  stranger.set("trainer/0/rank/1/received", std::vector<uint8_t>{1});
  const auto outcome = first.get();
  EXPECT_THAT(outcome.error, HasSubstr("cannot read the message with which rank 1 joined"));
  EXPECT_EQ(outcome.exit_code, ExitCode::kPeer);
  const auto silent = other.get();
  EXPECT_THAT(silent.error, IsEmpty());
  EXPECT_EQ(silent.exit_code, ExitCode::kPeer);
}

}  // namespace
}  // namespace trainer::distributed::test
