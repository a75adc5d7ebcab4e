#include <arpa/inet.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <netinet/in.h>

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace trainer::distributed::test {
namespace {

sockaddr_in loopback() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

TEST(NoReverseLookup, AnAddressIsGivenInPlaceOfItsName) {
  const auto address = loopback();
  char text[NI_MAXHOST] = {};
  ASSERT_EQ(getnameinfo(reinterpret_cast<const sockaddr*>(&address), sizeof address, text, sizeof text, nullptr, 0, 0), 0);
  EXPECT_STREQ(text, "127.0.0.1");
}

TEST(NoReverseLookup, ACallerThatNeedsANameGetsOne) {
  const auto address = loopback();
  char text[NI_MAXHOST] = {};
  ASSERT_EQ(getnameinfo(reinterpret_cast<const sockaddr*>(&address), sizeof address, text, sizeof text, nullptr, 0, NI_NAMEREQD), 0);
  EXPECT_STRNE(text, "127.0.0.1");
}

TEST(NoReverseLookup, LibTorchCallsTheSameFunction) {
  Dl_info here{};
  Dl_info library{};
  ASSERT_NE(dladdr(reinterpret_cast<void*>(&getnameinfo), &here), 0);
  ASSERT_NE(dladdr(dlsym(RTLD_DEFAULT, "getnameinfo"), &library), 0);
  EXPECT_STREQ(library.dli_fname, here.dli_fname);
  EXPECT_EQ(library.dli_saddr, here.dli_saddr);
}

}  // namespace
}  // namespace trainer::distributed::test
