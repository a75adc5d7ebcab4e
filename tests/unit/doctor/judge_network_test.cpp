#include <gmock/gmock.h>

#include "commands/doctor/judge.h"
#include "tests/testing/finding.h"

namespace trainer::doctor {
namespace {

const std::vector<Interface> kInterfaces = {{"lo", "127.0.0.1", true}, {"eth0", "10.0.0.5", false}};

TEST(JudgeNetwork, HostName) {
  EXPECT_THAT(judge_host_name("node1", {"10.0.0.5"}), IsOk("node1 is 10.0.0.5"));
  EXPECT_THAT(judge_host_name("node1", {"127.0.1.1"}), IsOk("node1 is 127.0.1.1, a loopback address: for runs on several hosts"));
  EXPECT_THAT(judge_host_name("node1", {}), IsWarning("node1 has no address", "add this name to /etc/hosts"));
}

TEST(JudgeNetwork, Interfaces) {
  EXPECT_THAT(judge_network({.interfaces = kInterfaces, .chosen_interface = "", .master_addr = "", .source = "10.0.0.5"}),
              IsOk("lo 127.0.0.1, eth0 10.0.0.5; for runs on one host, gloo uses lo, and for runs on several hosts the interface that "
                   "leads to MASTER_ADDR (eth0"));
  EXPECT_THAT(judge_network({.interfaces = kInterfaces, .chosen_interface = "", .master_addr = "", .source = ""}),
              IsOk("for runs on one host, gloo uses lo; there is no route to other hosts"));
  EXPECT_THAT(judge_network({.interfaces = {{"eth0", "10.0.0.5", false}}, .chosen_interface = "", .master_addr = "", .source = ""}),
              IsFailed("eth0 10.0.0.5; no loopback interface", "ip link set lo up"));
  EXPECT_THAT(judge_network({.interfaces = {}, .chosen_interface = "", .master_addr = "", .source = ""}),
              IsFailed("none; no loopback interface", "ip link set lo up"));
}

TEST(JudgeNetwork, Variables) {
  EXPECT_THAT(judge_network({.interfaces = kInterfaces, .chosen_interface = "eth0", .master_addr = "", .source = ""}),
              IsOk("gloo uses eth0 (GLOO_SOCKET_IFNAME)"));
  EXPECT_THAT(judge_network({.interfaces = kInterfaces, .chosen_interface = "ib0", .master_addr = "", .source = ""}),
              IsFailed("GLOO_SOCKET_IFNAME=ib0, but this host has lo 127.0.0.1, eth0 10.0.0.5", "to one of these interfaces"));
  EXPECT_THAT(judge_network({.interfaces = kInterfaces, .chosen_interface = "", .master_addr = "node0", .source = "10.0.0.5"}),
              IsOk("gloo uses eth0, from which MASTER_ADDR=node0 is reached"));
  EXPECT_THAT(judge_network({.interfaces = kInterfaces, .chosen_interface = "", .master_addr = "node0", .source = ""}),
              IsFailed("none leads to MASTER_ADDR=node0", "correct MASTER_ADDR"));
}

TEST(JudgeNetwork, AllReduce) {
  const Measurement fast{.latency = 5e-5, .seconds = 0.01, .num_bytes = 16 << 20, .shared_memory_seconds = 0.005};
  EXPECT_THAT(judge_gloo(fast), IsOk("gloo: 16.0 MiB in 10.0 ms (1.68 GB/s), latency 50 µs"));
  EXPECT_THAT(judge_shared_sums(fast), IsOk("in shared memory: 16.0 MiB in 5.0 ms (3.36 GB/s)"));
  auto late = fast;
  late.latency = 0.006;
  EXPECT_THAT(judge_gloo(late), IsWarning("latency 6000 µs: slow", "other programs on these cores"));
  auto slow = fast;
  slow.seconds = 0.2;
  slow.shared_memory_seconds = 0;
  EXPECT_THAT(judge_gloo(slow), IsWarning("(0.08 GB/s), latency 50 µs: slow", "other programs on these cores"));
  EXPECT_THAT(judge_shared_sums(slow), IsWarning("cannot map each other's memory", "mount /proc"));
  const Measurement broken{.problem = "gloo cannot listen"};
  EXPECT_THAT(judge_gloo(broken), IsFailed("two processes cannot train together: gloo cannot listen", "firewall"));
  EXPECT_THAT(judge_shared_sums(broken), IsFailed("because gloo has failed", "see the line above"));
}

TEST(JudgeNetwork, Nccl) {
  const Measurement fast{.latency = 2e-5, .seconds = 0.001, .num_bytes = 16 << 20};
  EXPECT_THAT(judge_nccl(fast, 2), IsOk("NCCL: 16.0 MiB in 1.0 ms (16.78 GB/s), latency 20 µs"));
  EXPECT_THAT(judge_nccl(fast, 1), IsOk("NCCL starts; with one GPU there is nothing to measure"));
  auto slow = fast;
  slow.seconds = 0.01;
  EXPECT_THAT(judge_nccl(slow, 2), IsWarning("(1.68 GB/s), latency 20 µs: slow", "nvidia-smi topo -m"));
  EXPECT_THAT(judge_nccl({.problem = "NCCL cannot connect"}, 2), IsFailed("NCCL does not work: NCCL cannot connect", "NCCL_DEBUG=INFO"));
}

}  // namespace
}  // namespace trainer::doctor
