#include "base/url.h"

#include <gtest/gtest.h>

#include <string>

namespace trainer {
namespace {

TEST(WithoutSecrets, UserInfoAndQueryAreReplaced) {
  EXPECT_EQ(without_secrets("https://bob:pass@host:81/a/b.pth?token=x&y=1"), "https://***@host:81/a/b.pth?***");
  EXPECT_EQ(without_secrets("https://token@host/b.pth"), "https://***@host/b.pth");
  EXPECT_EQ(without_secrets("https://bob:p@ss@host"), "https://***@host");
  EXPECT_EQ(without_secrets("postgresql://bob:pass@host/mlflow"), "postgresql://***@host/mlflow");
  EXPECT_EQ(without_secrets("https://host/b.pth?token=a?b"), "https://host/b.pth?***");
  EXPECT_EQ(without_secrets("https://host/b.pth?token=a'b\"c"), "https://host/b.pth?***");
  EXPECT_EQ(without_secrets("https://host/b.pth?next=https://bob:pass@other/"), "https://host/b.pth?***");
  EXPECT_EQ(without_secrets("https://cache/https://bob:pass@host/b.pth"), "https://cache/https://***@host/b.pth");
}

TEST(WithoutSecrets, EachUrlInAText) {
  EXPECT_EQ(without_secrets("cannot download http://a:b@c/d?e: no; try \"http://f?g\", 'h=i://j?k' and {x: http://l?m}"),
            "cannot download http://***@c/d?***: no; try \"http://f?***\", 'h=i://j?***' and {x: http://l?***}");
  EXPECT_EQ(without_secrets("http://a/b?c\nhttp://d:e@f"), "http://a/b?***\nhttp://***@f");
}

TEST(WithoutSecrets, OtherTextStays) {
  for (const std::string text :
       {"", "://", "a://", "bob@host?", "https://host/@scope/b@1.pth", "https://host/b.pth#part", "https://host/b?", "https://[::1]:80/b",
        "why? (https://host/b)", "file:///a/b.pth", "https://***@host/b.pth?***"})
    EXPECT_EQ(without_secrets(text), text);
}

TEST(LacksSecrets, OnlyWhereTheyWereReplaced) {
  for (const auto* url : {"https://***@host/b.pth", "https://host/b.pth?***", "see https://a/b and https://c/d?***, now"})
    EXPECT_TRUE(lacks_secrets(url)) << url;
  for (const auto* url : {"https://bob:***@host/b.pth?x=***", "https://host/***", "***"}) EXPECT_FALSE(lacks_secrets(url)) << url;
}

TEST(WithoutUserInfo, TheRestStays) {
  EXPECT_EQ(without_user_info("https://bob:p@ss@host/b.pth?token=x"), "https://host/b.pth?token=x");
  EXPECT_EQ(without_user_info("https://host/@scope/b.pth?token=x@y"), "https://host/@scope/b.pth?token=x@y");
}

}  // namespace
}  // namespace trainer
