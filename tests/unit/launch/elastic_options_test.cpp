#include "launch/elastic_options.h"

#include <gmock/gmock.h>

#include "base/error.h"

namespace trainer::launch {
namespace {

using std::chrono::seconds;

TEST(ElasticOptions, NumbersOfNodes) {
  EXPECT_EQ(parse_num_nodes("3").max, 3);
  EXPECT_FALSE(parse_num_nodes("3").is_elastic);
  const auto elastic = parse_num_nodes("2:4");
  EXPECT_EQ(elastic.min, 2);
  EXPECT_EQ(elastic.max, 4);
  EXPECT_TRUE(elastic.is_elastic);
  EXPECT_TRUE(parse_num_nodes("2:2").is_elastic);
  for (const char* text : {"", "0", "x", "2x", "4:2", "0:2", "2:", ":2", "1:2:3", "100001", "-1"}) {
    EXPECT_THROW(parse_num_nodes(text), UsageError) << text;
  }
}

TEST(ElasticOptions, RendezvousTimes) {
  const auto defaults = parse_rendezvous_times("");
  EXPECT_EQ(defaults.last_call_timeout, seconds(30));
  EXPECT_EQ(defaults.join_timeout, seconds(600));
  const auto times = parse_rendezvous_times("last_call_timeout=0,join_timeout=7,keep_alive_interval=2,keep_alive_max_attempt=9");
  EXPECT_EQ(times.last_call_timeout, seconds(0));
  EXPECT_EQ(times.join_timeout, seconds(7));
  EXPECT_EQ(times.keep_alive.interval, seconds(2));
  EXPECT_EQ(times.keep_alive.attempts, 9);
}

TEST(ElasticOptions, WrongTimesAreRefused) {
  const struct {
    const char *text, *error;
  } rows[] = {
      {"join_timeout=x", "--rdzv-conf join_timeout=x: expected join_timeout=NUMBER, from 1 to 32000"},
      {"join_timeout", "--rdzv-conf join_timeout: expected join_timeout=NUMBER, from 1 to 32000"},
      {"join_timeout=0", "--rdzv-conf join_timeout=0: expected join_timeout=NUMBER, from 1 to 32000"},
      {"keep_alive_max_attempt=128", "--rdzv-conf keep_alive_max_attempt=128: expected keep_alive_max_attempt=NUMBER, from 1 to 127"},
      {"is_host=1", "--rdzv-conf is_host=1: expected last_call_timeout, join_timeout, keep_alive_interval or keep_alive_max_attempt"},
  };
  for (const auto& row : rows) {
    try {
      parse_rendezvous_times(row.text);
      ADD_FAILURE() << "not refused: " << row.text;
    } catch (const UsageError& error) {
      EXPECT_STREQ(error.what(), row.error);
    }
  }
}

}  // namespace
}  // namespace trainer::launch
