#include "base/text.h"

#include <gtest/gtest.h>

namespace trainer {
namespace {

TEST(Text, Durations) {
  EXPECT_EQ(format_duration(std::chrono::milliseconds(8'340)), "8.3s");
  EXPECT_EQ(format_duration(std::chrono::milliseconds(59'970)), "1m00s");
  EXPECT_EQ(format_duration(std::chrono::seconds(192)), "3m12s");
  EXPECT_EQ(format_duration(std::chrono::seconds(7'500)), "2h05m");
}

TEST(Text, Bytes) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.0 KiB");
  EXPECT_EQ(format_bytes(1'288'490'189), "1.2 GiB");
}

TEST(Text, LowerCase) {
  EXPECT_EQ(lower_case("Label_AZ09"), "label_az09");
  EXPECT_EQ(lower_case("\u00c9\x80[@"), "\u00c9\x80[@");
}

TEST(Text, NearestName) {
  const std::vector<std::string> keys = {"lr", "momentum", "weight_decay", "name"};
  EXPECT_EQ(nearest_name("learning_rate", keys), "lr");
  EXPECT_EQ(nearest_name("momentun", keys), "momentum");
  EXPECT_EQ(nearest_name("weightdecay", keys), "weight_decay");
  EXPECT_EQ(nearest_name("dropout_probability", keys), "");
  EXPECT_EQ(nearest_name("x", keys), "");
}

}  // namespace
}  // namespace trainer
