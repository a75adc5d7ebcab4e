#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "distributed/secret.h"

namespace trainer::distributed::test {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

using Bytes = std::vector<uint8_t>;

Bytes bytes(std::string_view text) { return {text.begin(), text.end()}; }
std::string text(const Bytes& bytes) { return {bytes.begin(), bytes.end()}; }

TEST(Seal, OnlyTheSameSecretAndKeyOpenAValue) {
  const Seal seal("sixteen or more characters");
  for (const auto& value : {Bytes(), bytes("value"), Bytes(100'000, 7)}) {
    const auto sealed = seal.close("key", value);
    EXPECT_EQ(Seal("sixteen or more characters").open("key", sealed), value);
    EXPECT_EQ(seal.open("another key", sealed), std::nullopt);
    EXPECT_EQ(Seal("sixteen or more character").open("key", sealed), std::nullopt);
    EXPECT_NE(seal.close("key", value), sealed);
  }
}

TEST(Seal, EachChangedBitIsFound) {
  const Seal seal("sixteen or more characters");
  const auto sealed = seal.close("key", bytes("value"));
  EXPECT_THAT(text(sealed), Not(HasSubstr("value")));
  for (size_t bit = 0; bit < 8 * sealed.size(); ++bit) {
    auto changed = sealed;
    changed[bit / 8] ^= static_cast<uint8_t>(1U << (bit % 8));
    EXPECT_EQ(seal.open("key", changed), std::nullopt) << bit;
  }
  for (size_t size = 0; size < sealed.size(); ++size) {
    EXPECT_EQ(seal.open("key", Bytes(sealed.begin(), sealed.begin() + static_cast<std::ptrdiff_t>(size))), std::nullopt) << size;
  }
}

TEST(Seal, NamesDifferAndHideTheSecret) {
  EXPECT_EQ(Seal("a").name(), Seal("a").name());
  EXPECT_NE(Seal("a").name(), Seal("b").name());
  EXPECT_EQ(Seal("a").name().size(), 32U);
}

class SealedStoreTest : public ::testing::Test {
 protected:
  SealedStoreTest() { store_->setTimeout(milliseconds(100)); }

  // Writes a value like a program that does not know the secret.
  void forge(const std::string& key) { plain_->set("run/" + key, bytes("forged")); }

  c10::intrusive_ptr<c10d::Store> plain_ = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::string> foreign_;
  c10::intrusive_ptr<SealedStore> store_ = c10::make_intrusive<SealedStore>(plain_, "run", std::make_shared<Seal>("secret"),
                                                                            [this](const std::string& key) { foreign_.push_back(key); });
};

TEST_F(SealedStoreTest, ValuesAreSharedAndHidden) {
  store_->set("key", bytes("value"));
  EXPECT_EQ(text(store_->get("key")), "value");
  EXPECT_TRUE(store_->check({"key"}));
  EXPECT_FALSE(store_->check({"key", "missing"}));
  store_->wait({"key"}, milliseconds(100));
  EXPECT_EQ(store_->add("counter", 2), 2);
  EXPECT_THAT(text(plain_->get("run/key")), Not(HasSubstr("value")));
  EXPECT_TRUE(store_->deleteKey("key"));
  EXPECT_FALSE(store_->check({"key"}));
  EXPECT_TRUE(foreign_.empty());
}

TEST_F(SealedStoreTest, AForeignValueCountsAsMissing) {
  forge("key");
  EXPECT_FALSE(store_->check({"key"}));
  EXPECT_THROW(store_->get("key"), c10::DistStoreError);
  EXPECT_THROW(store_->wait({"key"}, milliseconds(50)), c10::DistStoreError);
  store_->set("key", bytes("value"));
  EXPECT_EQ(text(store_->get("key")), "value");
}

TEST_F(SealedStoreTest, AValueOfAnotherKeyIsForeign) {
  store_->set("key", bytes("value"));
  plain_->set("run/other", plain_->get("run/key"));
  EXPECT_FALSE(store_->check({"other"}));
}

TEST_F(SealedStoreTest, MultiGetReturnsTheLastValidValue) {
  store_->compareSet("first", {}, bytes("1"));
  store_->set("second", bytes("2"));
  forge("first");
  EXPECT_THAT(store_->multiGet({"first", "second"}), ElementsAre(bytes("1"), bytes("2")));
  forge("second");
  EXPECT_THAT(store_->multiGet({"first", "second"}), ElementsAre(bytes("1"), bytes("2")));
  store_->set("second", bytes("3"));
  EXPECT_THAT(store_->multiGet({"first", "second"}), ElementsAre(bytes("1"), bytes("3")));
}

TEST_F(SealedStoreTest, CompareSetComparesValues) {
  EXPECT_EQ(text(store_->compareSet("key", bytes("1"), bytes("2"))), "1");
  EXPECT_FALSE(store_->check({"key"}));
  EXPECT_EQ(text(store_->compareSet("key", {}, bytes("1"))), "1");
  EXPECT_EQ(text(store_->compareSet("key", {}, bytes("2"))), "1");
  EXPECT_EQ(text(store_->compareSet("key", bytes("1"), bytes("2"))), "2");
  EXPECT_EQ(text(store_->compareSet("key", bytes("1"), bytes("3"))), "2");
}

TEST_F(SealedStoreTest, CompareSetReplacesAForeignValue) {
  store_->set("key", bytes("1"));
  forge("key");
  EXPECT_EQ(text(store_->compareSet("key", bytes("1"), bytes("2"))), "2");
  forge("key");
  EXPECT_EQ(text(store_->compareSet("key", {}, bytes("3"))), "3");
  EXPECT_EQ(text(store_->get("key")), "3");
}

TEST_F(SealedStoreTest, TheFirstForeignValueIsReported) {
  const auto clone = store_->clone();
  for (const auto* key : {"one", "two"}) {
    forge(key);
    EXPECT_FALSE(clone->check({key}));
    EXPECT_FALSE(store_->check({key}));
  }
  EXPECT_THAT(foreign_, ElementsAre("one"));
}

}  // namespace
}  // namespace trainer::distributed::test
