#include "launch/membership.h"

#include <gmock/gmock.h>

#include <functional>

#include "launch/membership_messages.h"

namespace trainer::launch {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Texts = std::vector<std::string>;

// Up to four nodes, of which two suffice. Each call returns the orders as texts, such as "1 start 0: 1 of 3" (to node 1: start attempt 0 as
// the second of three) or "1 kill"; those to wait are left out.
class Meeting {
 public:
  explicit Meeting(int max_restarts = 1, int max_nodes = 4)
      : membership_({.min_nodes = 2, .max_nodes = max_nodes, .max_restarts = max_restarts}, now_), max_nodes_(max_nodes) {}

  Texts join(int node) {
    return take(membership_.join({.node = node,
                                  .min_nodes = 2,
                                  .max_nodes = max_nodes_,
                                  .host = "host-" + std::to_string(node),
                                  .process_id = 7,
                                  .num_processes = 2,
                                  .port = 1000 + node},
                                 now_));
  }
  Texts join(const Join& newcomer) { return take(membership_.join(newcomer, now_)); }
  Texts end(int node, int exit_code) { return take(membership_.end(node, {.exit_code = exit_code, .port = 2000 + node}, now_)); }
  Texts ask_to_stop(int node) { return take(membership_.end(node, {.exit_code = 75, .was_asked_to_stop = true}, now_)); }
  Texts lose(int node) { return take(membership_.lose(node, now_)); }
  // Lets time pass until the next deadline.
  Texts pass() {
    if (!membership_.deadline()) return {"no deadline"};
    waited_ = std::chrono::duration_cast<seconds>(*membership_.deadline() - now_);
    now_ = *membership_.deadline();
    return take(membership_.pass(now_));
  }
  seconds waited() const { return waited_; }
  // The text of the last order.
  const std::string& text() const { return text_; }
  int port() const { return port_; }
  // With nodes 0 to `num_nodes` - 1.
  void run(int num_nodes) {
    Texts orders;
    for (int node = 0; node < num_nodes; ++node) orders = join(node);
    if (num_nodes < max_nodes_) orders = pass();
    ASSERT_EQ(orders.size(), static_cast<size_t>(num_nodes));
  }

 private:
  Texts take(const Membership::Orders& orders) {
    Texts texts;
    for (const auto& order : orders) {
      text_ = order.text;
      auto text = std::to_string(order.node) + " ";
      switch (order.kind) {
        case Order::Kind::kWait:
          continue;
        case Order::Kind::kStart:
          port_ = order.port;
          text +=
              "start " + std::to_string(order.attempt) + ": " + std::to_string(order.group_rank) + " of " + std::to_string(order.num_nodes);
          break;
        case Order::Kind::kStop:
          text += "stop";
          break;
        case Order::Kind::kEnd:
          text += "end";
          break;
        case Order::Kind::kKill:
          text += "kill";
          break;
        case Order::Kind::kFinish:
          text += "finish " + std::to_string(order.exit_code);
          break;
        case Order::Kind::kRetry:
          text += "retry";
          break;
      }
      texts.push_back(text);
    }
    return texts;
  }

  Membership::Time now_{};
  Membership membership_;
  int max_nodes_;
  seconds waited_{0};
  std::string text_;
  int port_ = 0;
};

TEST(Membership, StartsAtOnceWithAllNodes) {
  Meeting meeting;
  EXPECT_THAT(meeting.join(3), IsEmpty());
  EXPECT_THAT(meeting.join(0), IsEmpty());
  EXPECT_THAT(meeting.join(1), IsEmpty());
  EXPECT_THAT(meeting.join(2), ElementsAre("0 start 0: 0 of 4", "1 start 0: 1 of 4", "2 start 0: 2 of 4", "3 start 0: 3 of 4"));
  EXPECT_EQ(meeting.port(), 1000) << "of node 0";
  EXPECT_THAT(meeting.pass(), ElementsAre("no deadline"));
}

TEST(Membership, EnoughNodesWaitForALastCall) {
  Meeting meeting;
  meeting.join(2);
  EXPECT_EQ(meeting.text(), "1 of at least 2 nodes are there");
  EXPECT_THAT(meeting.join(0), IsEmpty());
  EXPECT_EQ(meeting.text(), "2 of 2 to 4 nodes are there; waiting up to 30.0s for more");
  EXPECT_THAT(meeting.pass(), ElementsAre("0 start 0: 0 of 2", "2 start 0: 1 of 2"));
  EXPECT_EQ(meeting.waited(), seconds(30));
}

TEST(Membership, WithoutNode0NothingStarts) {
  Meeting meeting;
  meeting.join(1);
  EXPECT_THAT(meeting.join(2), IsEmpty());
  EXPECT_THAT(meeting.pass(), ElementsAre("1 finish 4", "2 finish 4"));
}

TEST(Membership, TooFewNodesGiveUp) {
  Meeting meeting;
  meeting.join(0);
  EXPECT_THAT(meeting.pass(), ElementsAre("0 finish 4"));
  EXPECT_EQ(meeting.waited(), seconds(600));
  EXPECT_EQ(meeting.text(), "1 of at least 2 nodes are there after 10m00s; start a launcher on the others, or lower --nnodes");
  EXPECT_THAT(meeting.join(1), ElementsAre("1 finish 4")) << "after the end";
}

TEST(Membership, ALostNodeIsLeftOut) {
  Meeting meeting;
  meeting.run(3);
  EXPECT_THAT(meeting.lose(1), ElementsAre("0 kill", "2 kill"));
  EXPECT_EQ(meeting.text(), "node 1 (host-1) is lost: restart 1 of 1");
  EXPECT_THAT(meeting.end(0, 4), IsEmpty());
  EXPECT_THAT(meeting.end(2, 4), IsEmpty());
  EXPECT_THAT(meeting.pass(), ElementsAre("0 start 1: 0 of 2", "2 start 1: 1 of 2"));
  EXPECT_EQ(meeting.port(), 2000) << "the new one";
  EXPECT_THAT(meeting.lose(2), ElementsAre("0 finish 4"));
  EXPECT_EQ(meeting.text(), "node 2 (host-2) is lost; no restart is left");
}

// The ranks may notice before the launchers do.
TEST(Membership, ANodeWhoseRanksWereMissedFirstCountsOnce) {
  Meeting meeting;
  meeting.run(3);
  EXPECT_THAT(meeting.end(0, 4), ElementsAre("1 end", "2 end"));
  EXPECT_EQ(meeting.text(), "the ranks of node 0 (host-0) have lost another rank: restart 1 of 1");
  EXPECT_THAT(meeting.end(2, 4), IsEmpty());
  EXPECT_THAT(meeting.pass(), ElementsAre("no deadline")) << "node 1 has not answered";
  EXPECT_THAT(meeting.lose(1), IsEmpty());
  EXPECT_THAT(meeting.pass(), ElementsAre("0 start 1: 0 of 2", "2 start 1: 1 of 2"));
}

TEST(Membership, TooFewThatAreLeftWaitForTheLostNode) {
  Meeting meeting(1, 2);
  meeting.run(2);
  EXPECT_THAT(meeting.lose(1), ElementsAre("0 kill"));
  EXPECT_THAT(meeting.end(0, 137), IsEmpty());
  EXPECT_EQ(meeting.text(), "1 of at least 2 nodes are there");
  EXPECT_THAT(meeting.join(1), ElementsAre("0 start 1: 0 of 2", "1 start 1: 1 of 2"));
}

TEST(Membership, ANodeThatJoinsStopsTheOthersAndIsNoFailure) {
  Meeting meeting(0);
  meeting.run(2);
  EXPECT_THAT(meeting.join(3), ElementsAre("0 stop", "1 stop"));
  EXPECT_EQ(meeting.text(), "node 3 (host-3) joins");
  EXPECT_THAT(meeting.end(1, 75), IsEmpty());
  EXPECT_THAT(meeting.end(0, 75), IsEmpty());
  EXPECT_THAT(meeting.pass(), ElementsAre("0 start 1: 0 of 3", "1 start 1: 1 of 3", "3 start 1: 2 of 3"));
}

TEST(Membership, ANodeThatIsLostWhileTheOthersStopIsAFailure) {
  Meeting meeting(1);
  meeting.run(3);
  meeting.join(3);
  EXPECT_THAT(meeting.lose(2), ElementsAre("0 kill", "1 kill"));
  Meeting without(0);
  without.run(3);
  without.join(3);
  EXPECT_THAT(without.lose(2), ElementsAre("0 finish 4", "1 finish 4", "3 finish 4"));
}

TEST(Membership, ANewcomerThatLeavesAgainIsNoFailure) {
  Meeting meeting(0);
  meeting.run(2);
  meeting.join(2);
  EXPECT_THAT(meeting.lose(2), IsEmpty());
  meeting.end(0, 75);
  EXPECT_THAT(meeting.end(1, 75), IsEmpty());
  EXPECT_THAT(meeting.pass(), ElementsAre("0 start 1: 0 of 2", "1 start 1: 1 of 2"));
}

TEST(Membership, FailuresOfRanksAreRestartedUpToTheLimit) {
  Meeting meeting(1, 2);
  meeting.run(2);
  EXPECT_THAT(meeting.end(1, 137), ElementsAre("0 end"));
  EXPECT_EQ(meeting.text(), "the ranks of node 1 (host-1) have ended with exit code 137: restart 1 of 1");
  EXPECT_THAT(meeting.end(0, 4), ElementsAre("0 start 1: 0 of 2", "1 start 1: 1 of 2"));
  EXPECT_THAT(meeting.end(0, 1), ElementsAre("0 finish 1", "1 finish 1"));
}

TEST(Membership, WhatIsFinalEndsTheRunEverywhere) {
  for (const int exit_code : {0, 2, 3, 5, 75}) {
    Meeting meeting;
    meeting.run(2);
    const auto code = std::to_string(exit_code);
    EXPECT_THAT(meeting.end(1, exit_code), ElementsAre("0 finish " + code, "1 finish " + code));
    EXPECT_THAT(meeting.lose(0), IsEmpty());
    EXPECT_THAT(meeting.join(3), ElementsAre("3 finish " + code));
  }
}

TEST(Membership, AStopRequestEndsTheRunEverywhere) {
  Meeting running;
  running.run(2);
  EXPECT_THAT(running.ask_to_stop(1), ElementsAre("0 finish 75", "1 finish 75"));
  EXPECT_EQ(running.text(), "node 1 (host-1) was asked to stop");
  Meeting waiting;
  waiting.join(1);
  EXPECT_THAT(waiting.ask_to_stop(1), ElementsAre("1 finish 75"));
  Meeting ending;
  ending.run(2);
  ending.join(2);
  EXPECT_THAT(ending.ask_to_stop(0), ElementsAre("0 finish 75", "1 finish 75", "2 finish 75"));
}

TEST(Membership, LaunchersThatDoNotFitAreRefused) {
  const Join good{.node = 1, .min_nodes = 2, .max_nodes = 4, .host = "b", .process_id = 8, .num_processes = 2};
  const struct {
    std::function<void(Join&)> change;
    const char *order, *text;
  } rows[] = {
      {[](Join& join) { join.max_nodes = 3; }, "1 finish 2", "--nnodes is 2:3 on b and 2:4 on node 0; give all launchers the same"},
      {[](Join& join) { join.num_processes = 3; }, "1 finish 2",
       "b starts 3 processes and node 0 (host-0) starts 2; give all launchers the same --nproc-per-node"},
      {[](Join& join) { join.node = 4; }, "4 finish 2", "malformed request to join"},
      {[](Join& join) { join.node = -1; }, "-1 finish 2", "malformed request to join"},
      {[](Join& join) { join.num_processes = 0; }, "1 finish 2", "malformed request to join"},
      {[](Join& join) { join.host = "\x1b[2J"; }, "1 finish 2", "malformed request to join"},
      {[](Join& join) { join.node = 0; }, "0 retry",
       "--node-rank 0 is taken by process 7 on host-0, unless that is lost; give each host its own number"},
  };
  for (const auto& row : rows) {
    Meeting meeting;
    meeting.join(0);
    auto newcomer = good;
    row.change(newcomer);
    EXPECT_THAT(meeting.join(newcomer), ElementsAre(row.order));
    EXPECT_EQ(meeting.text(), row.text);
  }
}

TEST(MembershipMessages, AreReadAsTheyWereWritten) {
  const auto line = [](std::string text) {
    EXPECT_EQ(text.back(), '\n');
    text.pop_back();
    EXPECT_THAT(text, ::testing::Not(HasSubstr("\n")));
    return text;
  };
  const auto join = parse_join(
      line(format_join({.node = 1, .min_nodes = 2, .max_nodes = 3, .host = "b\xff\n", .process_id = 4, .num_processes = 5, .port = 6})));
  ASSERT_TRUE(join);
  EXPECT_EQ(join->num_processes, 5);
  const auto ended = parse_ended(line(format_ended({.exit_code = 75, .was_asked_to_stop = true, .port = 9})));
  ASSERT_TRUE(ended);
  EXPECT_TRUE(ended->was_asked_to_stop);
  const Order order{.kind = Order::Kind::kStart, .node = 1, .text = "a\nb", .attempt = 2, .group_rank = 3, .num_nodes = 4, .port = 5};
  EXPECT_EQ(parse_order(line(format_order(order))), order);
  for (const char* text : {"", "{", "[]", "{}", "{\"join\": 1}", "{\"join\": {\"node\": \"x\"}}", "GET / HTTP/1.1\r", "\xff"}) {
    EXPECT_FALSE(parse_join(text)) << text;
    EXPECT_FALSE(parse_ended(text)) << text;
    EXPECT_FALSE(parse_order(text)) << text;
  }
}

}  // namespace
}  // namespace trainer::launch
