#include <gtest/gtest.h>

#include "reporting/event_file.h"
#include "tests/testing/hex.h"

namespace trainer::reporting::test {
namespace {

using testing::hex_of;

// The expected bytes are those of the Python package tensorboard: Summary(value=[Summary.Value(tag=…, …)]).SerializeToString(), with the
// records that torch.utils.tensorboard.summary makes (text, histogram, hparams).
TEST(EventValues, TextHasTheBytesThatPythonWrites) {
  EventValues values;
  values.add_text("config", "    a: 1\n");
  EXPECT_EQ(hex_of(values.bytes()), "0a270a06636f6e66696742130807120412020801420920202020613a20310a4a080a060a0474657874");
}

TEST(EventValues, HistogramHasTheBytesThatPythonWrites) {
  EventValues values;
  values.add_histogram("parameters/w",
                       {.name = "w", .min = -1, .max = 2, .sum = 1.5, .sum_squares = 6, .limits = {0.5, 2}, .counts = {3, 1}});
  EXPECT_EQ(hex_of(values.bytes()),
            "0a610a0c706172616d65746572732f772a5109000000000000f0bf11000000000000004019000000000000104021000000000000f83f29000000000000"
            "18403210000000000000e03f00000000000000403a100000000000000840000000000000f03f");
}

TEST(EventValues, SessionsHaveTheBytesThatPythonWrites) {
  EventValues start;
  start.add_session_start({{"lr", 0.1}}, 1700000000.5);
  EXPECT_EQ(hex_of(start.bytes()),
            "0a490a1c5f68706172616d735f2f73657373696f6e5f73746172745f696e666f4a290a270a0768706172616d73121c1a1a0a0f0a026c721209119a9999"
            "999999b93f2900002040fc54d941");
  const std::string before = "0a380a1a5f68706172616d735f2f73657373696f6e5f656e645f696e666f4a1a0a180a0768706172616d73120d220b08";
  const std::string after = "1100005040fc54d941";
  for (const auto& [is_success, status] : {std::pair(true, "01"), std::pair(false, "02")}) {
    EventValues end;
    end.add_session_end(is_success, 1700000001.25);
    EXPECT_EQ(hex_of(end.bytes()), before + status + after);
  }
}

TEST(EventValues, AreEmptyUntilOneIsAdded) {
  EventValues values;
  EXPECT_TRUE(values.is_empty());
  values.add_scalar("a", 1);
  EXPECT_FALSE(values.is_empty());
}

}  // namespace
}  // namespace trainer::reporting::test
