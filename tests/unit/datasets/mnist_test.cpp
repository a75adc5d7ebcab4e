#include "datasets/mnist.h"

#include <map>
#include <memory>

#include "base/file.h"
#include "tests/unit/datasets/fetch_archive.h"
#include "tests/unit/datasets/small_files.h"

namespace trainer::datasets::test {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::IsEmpty;
using ::testing::StartsWith;

const std::string kTrainImages = "train-images-idx3-ubyte";
const std::string kTrainLabels = "train-labels-idx1-ubyte";

// Three training images and two for validation.
std::map<std::string, std::string> small_mnist() {
  return {{kTrainImages, idx_images(3)},
          {kTrainLabels, idx_labels({5, 0, 9})},
          {"t10k-images-idx3-ubyte", idx_images(2)},
          {"t10k-labels-idx1-ubyte", idx_labels({7, 2})}};
}

class MnistTest : public FetchArchive {
 protected:
  fs::path own() const { return root() / "MNIST/raw"; }
  void write() const {
    for (const auto& [name, content] : small_mnist()) write_bytes(own() / name, content);
  }
  std::unique_ptr<data::Dataset> open(data::Split split, const fs::path& root) const {
    MnistOptions options;
    options.root = root.string();
    options.download = download_;
    const auto logger = make_quiet_logger();
    return mnist_factory(layout_, options).open(split, *logger);
  }
  std::string failure(data::Split split = data::Split::kTrain) const {
    try {
      open(split, root());
    } catch (const DataError& error) {
      return error.what();
    }
    ADD_FAILURE() << "no DataError";
    return "";
  }
  // The error message between the file's name and the remedy.
  std::string failure_in(const fs::path& file) const {
    const auto text = failure();
    const auto remedy = "; copy this file from " + layout_.source.url + ", or set dataset.root to a new folder and dataset.download=true";
    EXPECT_THAT(text, StartsWith(file.string() + ": "));
    EXPECT_THAT(text, EndsWith(remedy));
    const auto begin = file.string().size() + 2;
    return text.substr(begin, text.size() - begin - remedy.size());
  }

  // Enables the download. Returns the compressed files by their path on the server, and sets their checksums in `layout_`.
  std::map<std::string, std::string> publish() {
    std::map<std::string, std::string> files;
    for (const auto& [name, content] : small_mnist()) files["/mnist/" + name + ".gz"] = gzip(content);
    for (auto& file : layout_.source.files) file.md5 = md5_of(files.at("/mnist/" + file.name));
    download_ = true;
    return files;
  }
  // The reason in the error of a failed download, between the URL and the remedy.
  std::string download_failure() const {
    const auto text = failure();
    EXPECT_THAT(root_entries(), IsEmpty());
    const auto begin = "cannot download " + layout_.source.url + ": ";
    const auto end = "; try again, or download its files by hand into " + own().string();
    EXPECT_THAT(text, StartsWith(begin));
    EXPECT_THAT(text, EndsWith(end));
    return text.substr(begin.size(), text.size() - begin.size() - end.size());
  }

  MnistLayout layout_ = mnist_layout();
  bool download_ = false;
};

TEST_F(MnistTest, ReadsBothSplits) {
  write();
  const auto train = open(data::Split::kTrain, root());
  ASSERT_EQ(train->size(), 3);
  data::Scratch scratch;
  for (int64_t index = 0; index < 3; ++index) {
    const auto sample = train->read(index, scratch);
    EXPECT_EQ(sample.image, data::ImageView::whole(sample.image.pixels, 1, 28, 28));
    for (const int64_t i : {0, 1, 783}) EXPECT_EQ(sample.image.pixels[i], (i * 7 + index) % 256);
    train->prefetch(index);
  }
  EXPECT_EQ(train->read(0, scratch).target.label, 5);
  EXPECT_EQ(train->read(2, scratch).target.label, 9);
  const auto validation = open(data::Split::kValidation, root());
  ASSERT_EQ(validation->size(), 2);
  EXPECT_EQ(validation->read(1, scratch).target.label, 2);
}

TEST_F(MnistTest, FilesMayBeCompressed) {
  for (const auto& [name, content] : small_mnist()) write_bytes(own() / (name + ".gz"), gzip(content));
  data::Scratch scratch;
  const auto dataset = open(data::Split::kTrain, root());
  ASSERT_EQ(dataset->size(), 3);
  EXPECT_EQ(dataset->read(1, scratch).image.pixels[1], 8);
  // A gzip file may have several members. A plain file is preferred to the compressed one.
  write_bytes(own() / (kTrainImages + ".gz"), gzip(idx_images(3).substr(0, 100)) + gzip(idx_images(3).substr(100)));
  EXPECT_EQ(open(data::Split::kTrain, root())->size(), 3);
  write_bytes(own() / (kTrainImages + ".gz"), "damaged");
  write_bytes(own() / kTrainImages, idx_images(3));
  EXPECT_EQ(open(data::Split::kTrain, root())->size(), 3);
}

TEST_F(MnistTest, RootMayHoldTheFiles) {
  write();
  EXPECT_EQ(open(data::Split::kTrain, own())->size(), 3);
  EXPECT_EQ(open(data::Split::kValidation, own().string() + "/")->size(), 2);
}

TEST_F(MnistTest, SaysWhatTheRootLacks) {
  EXPECT_EQ(failure(), "dataset.root: " + root().string() + " does not contain MNIST (there is no " + own().string() +
                           "); set dataset.download=true, or copy the files from https://ossci-datasets.s3.amazonaws.com/mnist/ to " +
                           own().string());
  write();
  fs::remove(own() / kTrainLabels);
  EXPECT_EQ(failure_in(own() / kTrainLabels), "the file is missing, with and without .gz");
  EXPECT_EQ(open(data::Split::kValidation, root())->size(), 2);
}

TEST_F(MnistTest, DamagedFilesAreRefused) {
  write();
  const auto images = own() / kTrainImages;
  const auto labels = own() / kTrainLabels;
  const auto failure_with = [&](const std::string& content) {
    write_bytes(images, content);
    return failure_in(images);
  };
  EXPECT_EQ(failure_with(""), "it has 0 bytes, fewer than the 16 bytes of a header");
  EXPECT_EQ(failure_with(idx_images(3).substr(0, 15)), "it has 15 bytes, fewer than the 16 bytes of a header");
  EXPECT_EQ(failure_with(idx_header({0x801, 3, 28, 28})), "its magic number is 0x00000801 instead of 0x00000803");
  EXPECT_EQ(failure_with(idx_header({0x803, 3, 32, 28})), "its images have 32 rows instead of 28");
  EXPECT_EQ(failure_with(idx_header({0x803, 3, 28, 32})), "its images have 32 columns instead of 28");
  EXPECT_EQ(failure_with(idx_header({0x803, 0, 28, 28})), "it contains 0 items");
  EXPECT_EQ(failure_with(idx_images(3) + "x"), "it has more than the 2368 bytes of 3 items");
  EXPECT_EQ(failure_with(idx_header({0x803, 0xffffffff, 28, 28})), "it has 16 bytes instead of 3367254359296 bytes for 4294967295 items");
  write_bytes(images, idx_images(2));
  EXPECT_EQ(failure_in(labels), "it has 3 labels, but " + images.string() + " has 2 images");
  write_bytes(images, idx_images(3));
  write_bytes(labels, idx_labels({0, 10, 1}));
  EXPECT_EQ(failure_in(labels), "item 1 (from 0) is the label 10, but the labels of MNIST are 0 to 9");
}

TEST_F(MnistTest, DamagedCompressedFilesAreRefused) {
  write();
  fs::remove(own() / kTrainImages);
  const auto file = own() / (kTrainImages + ".gz");
  const auto failure_with = [&](const std::string& content) {
    write_bytes(file, content);
    const auto text = failure();
    const std::string remedy = "; replace the file with an undamaged copy";
    EXPECT_THAT(text, StartsWith("cannot read " + file.string() + ": "));
    EXPECT_THAT(text, EndsWith(remedy));
    const auto begin = file.string().size() + 14;
    return text.substr(begin, text.size() - begin - remedy.size());
  };
  const auto whole = gzip(idx_images(3));
  EXPECT_EQ(failure_with(whole.substr(0, whole.size() / 2)), "the compressed data ends too early");
  EXPECT_EQ(failure_with(""), "the compressed data ends too early");
  EXPECT_EQ(failure_with(whole + "x"), "the compressed data ends too early");
  EXPECT_EQ(failure_with("<html>no</html>"), "the compressed data is damaged: incorrect header check");
  auto changed = whole;
  changed[changed.size() - 6] ^= 1;
  EXPECT_EQ(failure_with(changed), "the compressed data is damaged: incorrect data check");
}

TEST_F(MnistTest, CompressedFilesAreNotDecompressedFurtherThanTheirHeadersPromise) {
  write();
  fs::remove(own() / kTrainImages);
  const auto file = own() / (kTrainImages + ".gz");
  // The end of the file is missing, which is detected only by decompressing up to there.
  const auto failure_with = [&](const std::string& begin) {
    const auto whole = gzip(begin + std::string(10'000'000, '\0'));
    write_bytes(file, whole.substr(0, whole.size() - 100));
    return failure_in(file);
  };
  EXPECT_EQ(failure_with(idx_images(3)), "it has more than the 2368 bytes of 3 items");
  EXPECT_EQ(failure_with("no magic number"), "its magic number is 0x6e6f206d instead of 0x00000803");
}

TEST_F(MnistTest, DownloadsOnceAndThenWorksOffline) {
  const auto files = publish();
  {
    const HttpServer server([&](HttpServer::Connection& connection) { connection.reply(files.at(connection.path())); });
    layout_.source.url = server.url("/mnist/");
    EXPECT_EQ(open(data::Split::kTrain, root())->size(), 3);
    EXPECT_EQ(open(data::Split::kValidation, root())->size(), 2);
    EXPECT_EQ(server.num_requests(), 4);
  }
  EXPECT_EQ(open(data::Split::kTrain, root())->size(), 3);
  EXPECT_THAT(root_entries(), ElementsAre("MNIST"));
  EXPECT_EQ(read_file(own() / (kTrainImages + ".gz")), files.at("/mnist/" + kTrainImages + ".gz"));
}

TEST_F(MnistTest, FailedDownloadsLeaveNothing) {
  const auto files = publish();
  const std::string labels = "/mnist/" + kTrainLabels + ".gz";  // the second file
  const auto failure_when = [&](const std::function<void(HttpServer::Connection&)>& answer_labels) {
    const HttpServer server([&](HttpServer::Connection& connection) {
      if (connection.path() == labels) return answer_labels(connection);
      connection.reply(files.at(connection.path()));
    });
    layout_.source.url = server.url("/mnist/");
    const auto text = download_failure();
    EXPECT_EQ(server.num_requests(), 2);
    return text;
  };
  EXPECT_EQ(failure_when([](auto& connection) { connection.send("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"); }),
            "train-labels-idx1-ubyte.gz: the server answered with HTTP status 404");
  EXPECT_EQ(failure_when([](auto& connection) { connection.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"); }),
            "train-labels-idx1-ubyte.gz: the connection was closed after 4 B");
  EXPECT_EQ(
      failure_when([](auto& connection) { connection.reply("something else"); }),
      fmt::format("train-labels-idx1-ubyte.gz: the downloaded file has the MD5 sum {} instead of {}: it is damaged or a different file",
                  md5_of("something else"), md5_of(files.at(labels))));
}

}  // namespace
}  // namespace trainer::datasets::test
