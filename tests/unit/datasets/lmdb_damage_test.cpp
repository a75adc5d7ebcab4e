// Damage of a packed data set's file, page by page.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "tests/unit/datasets/packed_folder.h"
#include "trainer/error.h"

namespace trainer::datasets::test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// A file with pages of every kind.
class LmdbDamageTest : public LmdbTest {
 protected:
  static constexpr size_t kPageBytes = 4096;
  static constexpr int64_t kNumSamples = 240;

  LmdbDamageTest() {
    source_.pack.num_samples = kNumSamples;
    source_.labels.clear();
    source_.names.clear();
    for (int64_t i = 0; i < kNumSamples; ++i) {
      source_.labels.push_back(i % 2);
      source_.names.push_back(std::to_string(i));
      contents_.emplace_back(i % 40 == 0 ? 6000 : 30, static_cast<char>(i));
    }
    PackWriter writer(root() / "train", source_.pack, source_);
    for (int64_t i = 0; i < kNumSamples; ++i) {
      writer.add(entry_of(i));
      // A commit frees pages of the tree.
      if (i % 60 == 0) writer.commit();
    }
    unfinished_ = read_file(data_file());
    writer.commit();
    whole_ = read_file(data_file());
  }

  // A third of the samples are files, the others are pixels.
  std::string entry_of(int64_t index) const {
    const auto& content = contents_[static_cast<size_t>(index)];
    if (index % 3 == 0) return file_entry_of(content);
    return pixels_entry(data::ImageView::whole(as_bytes(content).data(), 3, 1, static_cast<int>(content.size() / 3)));
  }

  // Changes, one at a time, the bytes at the beginning of a page, of its first entry and of its last entry. After each change, `damaged` is
  // the changed file, and `check` is called with the offset of the change.
  static void damage(const std::string& whole, size_t page, const std::vector<int>& changes, const std::function<void(size_t)>& check,
                     std::string& damaged) {
    std::vector<size_t> offsets;
    const auto add = [&](size_t begin, size_t count) {
      for (size_t i = begin; i < std::min(begin + count, kPageBytes); ++i) offsets.push_back(page * kPageBytes + i);
    };
    add(0, page < 2 ? 152 : 20);
    const auto* bytes = as_bytes(whole).data() + page * kPageBytes;
    if (const bool is_of_a_tree = page >= 2 && (bytes[10] == 1 || bytes[10] == 2); is_of_a_tree) {
      const size_t num_nodes = (little_endian::load<uint16_t>(bytes + 12) - 16U) / 2;
      for (const size_t node : {size_t{0}, num_nodes - 1}) add(little_endian::load<uint16_t>(bytes + 16 + 2 * node), 24);
    }
    for (const auto offset : offsets) {
      for (const int change : changes) {
        damaged = whole;
        damaged[offset] = static_cast<char>(damaged[offset] ^ change);
        check(offset);
      }
    }
  }

  // Writes a new file, because some file systems flush a file that is overwritten, which takes time.
  void put(const std::string& content) const {
    std::filesystem::remove(data_file());
    write_bytes(data_file(), content);
  }

  // Calls `work` in a separate process; returns 0 if the process ends normally, otherwise its wait status.
  static int status_of_process(const std::function<void()>& work) {
    const auto child = fork();
    if (child == 0) {
      work();
      _exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    return status;
  }

  PackSource source_;
  std::vector<std::string> contents_;
  std::string unfinished_, whole_;
};

TEST_F(LmdbDamageTest, EachDamagedPageIsASentenceOrTheRightSamples) {
  int num_refused = 0, num_unreadable = 0, num_right = 0;
  const auto check = [&](size_t offset) {
    std::unique_ptr<data::Dataset> dataset;
    try {
      dataset = open_packed(root(), data::Split::kTrain);
    } catch (const DataError& error) {
      EXPECT_THAT(error.what(), HasSubstr(data_file())) << offset;
      ++num_refused;
      return;
    }
    data::Scratch scratch;
    for (int64_t i = 0; i < kNumSamples; ++i) {
      try {
        const auto sample = dataset->read(i, scratch);
        const auto& content = contents_[static_cast<size_t>(i)];
        const std::span<const uint8_t> found = i % 3 == 0 ? sample.encoded : std::span(sample.image.pixels, content.size());
        // In training the checksums of pixels are not compared.
        if (as_text(found) != content) dataset->check(i);
        ASSERT_EQ(as_text(found), content) << "sample " << i << " after a change at " << offset;
        ASSERT_EQ(sample.target.label, i % 2);
        ++num_right;
      } catch (const std::runtime_error& reason) {
        ASSERT_NE(std::string(reason.what()), "");
        ++num_unreadable;
      }
    }
  };
  std::string damaged;
  for (size_t page = 0; page < whole_.size() / kPageBytes; ++page) {
    damage(
        whole_, page, {0xFF, 0x01, 0x80},
        [&](size_t offset) {
          put(damaged);
          check(offset);
        },
        damaged);
    for (const char filling : {'\0', '\xff'}) {
      damaged = whole_;
      std::fill_n(damaged.begin() + static_cast<std::ptrdiff_t>(page * kPageBytes), kPageBytes, filling);
      put(damaged);
      check(page * kPageBytes);
    }
  }
  EXPECT_GT(num_refused, 100);
  EXPECT_GT(num_unreadable, 100);
  EXPECT_GT(num_right, 100);
}

// A damaged file must be refused before LMDB's library writes to it and aborts the process.
TEST_F(LmdbDamageTest, ADamagedFileIsNotContinued) {
  for (size_t page = 0; page < unfinished_.size() / kPageBytes; ++page) {
    int num_accepted = 0;
    const auto pack_on = [&] {
      try {
        PackWriter writer(root() / "train", source_.pack, source_);
        // A commit waits for the disk, so only some of the files are continued.
        if (num_accepted++ % 32 != 0) return;
        writer.add(entry_of(kNumSamples - 1));
        writer.commit();
      } catch (const std::runtime_error&) {
      }
    };
    std::string damaged;
    const auto work = [&] {
      damage(
          unfinished_, page, {0xFF, 0x01},
          [&](size_t) {
            put(damaged);
            pack_on();
          },
          damaged);
    };
    EXPECT_EQ(status_of_process(work), 0) << "page " << page;
  }
}

TEST_F(LmdbDamageTest, WhyADamagedFileIsRefused) {
  const auto folder = (root() / "train").string();
  size_t page = 2;
  while (unfinished_[page * kPageBytes + 10] != 2) ++page;
  // Changes the number of a leaf.
  unfinished_[page * kPageBytes] = static_cast<char>(unfinished_[page * kPageBytes] ^ 1);
  put(unfinished_);
  const auto reason = "cannot read " + data_file() + ": its page " + std::to_string(page) + " is damaged; ";
  EXPECT_THAT([&] { PackWriter(folder, source_.pack, source_); },
              ThrowsMessage<DataError>(reason + "remove " + folder + " and pack again"));
  EXPECT_EQ(missing(), reason + "copy the folder again, or pack the data set again");
}

}  // namespace
}  // namespace trainer::datasets::test
