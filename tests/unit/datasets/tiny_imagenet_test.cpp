#include "datasets/tiny_imagenet.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tests/unit/datasets/failure_of.h"
#include "tests/unit/datasets/fetch_archive.h"
#include "tests/unit/datasets/small_files.h"

namespace trainer::datasets::test {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// The files of a data set of three classes; the content of an image is its path.
std::vector<ArchiveEntry> small_tiny_imagenet() {
  std::vector<ArchiveEntry> files = {
      {"wnids.txt", "n03\nn01\nn02\n"},
      {"words.txt", "n00\tnothing\nn01\tgoldfish, Carassius auratus\nn03\tbullfrog\n"},
      {"train/n01/n01_boxes.txt", ""},
      {"val/val_annotations.txt", "val_0.JPEG\tn03\t0\t32\t44\t62\nval_1.JPEG\tn01\t52\t55\t57\t59\n"},
  };
  for (const std::string image :
       {"train/n01/images/n01_0.JPEG", "train/n01/images/n01_1.JPEG", "train/n02/images/n02_0.JPEG", "train/n03/images/n03_0.JPEG",
        "val/images/val_0.JPEG", "val/images/val_1.JPEG", "test/images/test_0.JPEG"}) {
    files.push_back({image, image});
  }
  return files;
}

class TinyImagenetTest : public FetchArchive {
 protected:
  TinyImagenetTest() { options_.root = root().string(); }
  fs::path own() const { return root() / "tiny-imagenet-200"; }
  void write() const {
    for (const auto& file : small_tiny_imagenet()) write_bytes(own() / file.path, file.content);
  }
  data::DatasetFactory factory() const { return tiny_imagenet_factory(archive_, options_); }
  static std::unique_ptr<data::Dataset> open(const data::DatasetFactory& factory, data::Split split) {
    return factory.open(split, *make_quiet_logger());
  }
  // "LABEL PATH" of each image. The path is relative to the data set's folder, and is also the content of the image.
  std::vector<std::string> images(data::Split split) const {
    std::vector<std::string> lines;
    const auto dataset = open(factory(), split);
    data::Scratch scratch;
    for (int64_t i = 0; i < dataset->size(); ++i) {
      const auto sample = dataset->read(i, scratch);
      const std::string content(sample.encoded.begin(), sample.encoded.end());
      EXPECT_THAT(dataset->origin(i).name, EndsWith("/" + content));
      lines.push_back(std::to_string(sample.target.label) + ' ' + content);
    }
    return lines;
  }
  std::string without_remedy(const std::string& text) const {
    const auto remedy = "; unpack " + archive_.url + " again, or set dataset.root to a new folder and dataset.download=true";
    EXPECT_THAT(text, EndsWith(remedy));
    return text.substr(0, text.size() - std::min(text.size(), remedy.size()));
  }
  // The error of factory() for files whose classes cannot be read.
  std::string what_is_wrong() const {
    const auto made = factory();
    EXPECT_EQ(made.info.num_classes, data::kUnknownClasses);
    EXPECT_EQ(failure_of(made, data::Split::kTrain), "dataset.root: " + made.missing);
    return without_remedy(made.missing);
  }
  std::string failure(data::Split split) const {
    const auto text = without_remedy(failure_of(factory(), split));
    EXPECT_THAT(text, StartsWith("dataset.root: "));
    return text.substr(std::min<size_t>(text.size(), 14));
  }

  PublishedSource archive_ = tiny_imagenet_source();
  TinyImagenetOptions options_;
};

TEST_F(TinyImagenetTest, ReadsBothSplits) {
  write();
  const auto info = factory().info;
  EXPECT_THAT(info.shape, ElementsAre(3, 64, 64));
  EXPECT_TRUE(info.is_image);
  EXPECT_EQ(info.num_classes, 3);
  EXPECT_THAT(info.class_names, ElementsAre("goldfish", "n02", "bullfrog"));
  EXPECT_THAT(images(data::Split::kTrain), ElementsAre("0 train/n01/images/n01_0.JPEG", "0 train/n01/images/n01_1.JPEG",
                                                       "1 train/n02/images/n02_0.JPEG", "2 train/n03/images/n03_0.JPEG"));
  EXPECT_THAT(images(data::Split::kValidation), ElementsAre("2 val/images/val_0.JPEG", "0 val/images/val_1.JPEG"));
  EXPECT_EQ(open(factory(), data::Split::kValidation)->info().class_names, info.class_names);
  options_.root = own().string();
  EXPECT_EQ(images(data::Split::kTrain).size(), 4U);
}

TEST_F(TinyImagenetTest, NamesMayBeMissing) {
  write();
  fs::remove(own() / "words.txt");
  EXPECT_THAT(factory().info.class_names, ElementsAre("n01", "n02", "n03"));
  write_bytes(own() / "words.txt", "n01\nn02\t\nn03\tbull frog\r\n");
  EXPECT_THAT(factory().info.class_names, ElementsAre("n01", "n02", "bull frog"));
}

TEST_F(TinyImagenetTest, WithoutFilesTheClassesAreKnownIfTheyWillBeDownloaded) {
  const auto made = factory();
  EXPECT_EQ(made.info.num_classes, data::kUnknownClasses);
  EXPECT_EQ(made.missing, root().string() + " does not contain Tiny ImageNet (there is no " + own().string() +
                              "); set dataset.download=true, or unpack http://cs231n.stanford.edu/tiny-imagenet-200.zip in " +
                              root().string());
  EXPECT_EQ(failure_of(made, data::Split::kTrain), "dataset.root: " + made.missing);
  options_.download = true;
  EXPECT_EQ(factory().info.num_classes, 200);
  EXPECT_EQ(factory().missing, "");
  EXPECT_TRUE(factory().has_validation);
}

TEST_F(TinyImagenetTest, DamagedListsOfClassesAreExplained) {
  fs::create_directories(own());
  const auto file = (own() / "wnids.txt").string();
  EXPECT_EQ(what_is_wrong(), "cannot read " + file + ": No such file or directory");
  options_.download = true;
  EXPECT_EQ(what_is_wrong(), "cannot read " + file + ": No such file or directory");
  write_bytes(file, "\r\n\n");
  EXPECT_EQ(what_is_wrong(), file + " lists no classes");
  write_bytes(file, "n01\n\n../n02\n");
  EXPECT_EQ(what_is_wrong(), file + ": line 3 is \"../n02\" instead of the id of a class");
  write_bytes(file, "n01\nn02\nn01\n");
  EXPECT_EQ(what_is_wrong(), file + " lists the class n01 twice");
}

TEST_F(TinyImagenetTest, MissingImagesAreExplained) {
  write();
  const auto made = factory();
  fs::remove_all(own() / "train/n02");
  EXPECT_EQ(failure(data::Split::kTrain), "there is no folder " + (own() / "train/n02").string());
  fs::create_directories(own() / "train/n02/images");
  EXPECT_THAT(failure_of(factory(), data::Split::kTrain), StartsWith((own() / "train/n02").string() + " has no images "));
  const auto annotations = (own() / "val/val_annotations.txt").string();
  write_bytes(annotations, "val_0.JPEG\tn01\n\nval_1.JPEG\tn09\t1\n");
  EXPECT_EQ(failure(data::Split::kValidation), annotations + ": line 3 has the class \"n09\", which wnids.txt does not have");
  write_bytes(annotations, "val_0.JPEG\n");
  EXPECT_EQ(failure(data::Split::kValidation), annotations + ": line 1 has the class \"\", which wnids.txt does not have");
  write_bytes(annotations, "\n");
  EXPECT_EQ(failure(data::Split::kValidation), annotations + " lists no images");
  fs::remove(annotations);
  EXPECT_EQ(failure(data::Split::kValidation), "cannot read " + annotations + ": No such file or directory");
  write_bytes(own() / "wnids.txt", "n01\n");
  EXPECT_EQ(without_remedy(failure_of(made, data::Split::kTrain)),
            "dataset.root: " + (own() / "wnids.txt").string() + " lists 1 class, but 3 were expected");
}

// The published layout, but with images of a few bytes.
TEST_F(TinyImagenetTest, DownloadsOnceAndThenWorksOffline) {
  std::vector<ArchiveEntry> entries = {{"tiny-imagenet-200/", "", AE_IFDIR}};
  std::string ids;
  for (int i = 0; i < 200; ++i) {
    const auto id = fmt::format("n{:08}", i);
    ids += id + '\n';
    entries.push_back({"tiny-imagenet-200/train/" + id + "/images/" + id + "_0.JPEG", "image"});
  }
  entries.push_back({"tiny-imagenet-200/wnids.txt", ids});
  entries.push_back({"tiny-imagenet-200/val/val_annotations.txt", "val_0.JPEG\tn00000199\n"});
  entries.push_back({"tiny-imagenet-200/val/images/val_0.JPEG", "image"});
  const auto body = zip(entries);
  archive_.md5 = md5_of(body);
  options_.download = true;
  {
    const HttpServer server([&body](HttpServer::Connection& connection) { connection.reply(body); });
    archive_.url = server.url("/tiny.zip");
    const auto made = factory();
    EXPECT_THAT(made.info.class_names, IsEmpty());
    EXPECT_EQ(open(made, data::Split::kTrain)->size(), 200);
    const auto validation = open(made, data::Split::kValidation);
    EXPECT_EQ(validation->info().class_names.size(), 200U);
    data::Scratch scratch;
    EXPECT_EQ(validation->read(0, scratch).target.label, 199);
    EXPECT_EQ(server.num_requests(), 1);
  }
  EXPECT_EQ(open(factory(), data::Split::kTrain)->size(), 200);
  EXPECT_THAT(root_entries(), ElementsAre("tiny-imagenet-200"));
}

TEST_F(TinyImagenetTest, AFailedDownloadIsExplained) {
  options_.download = true;
  const HttpServer server([](HttpServer::Connection& connection) { connection.reply("<html>"); });
  archive_.url = server.url("/tiny.zip");
  EXPECT_THAT(failure_of(factory(), data::Split::kTrain),
              AllOf(StartsWith("cannot download " + archive_.url + ": the downloaded file has the MD5 sum "),
                    HasSubstr("; try again, or unpack that archive by hand so that its files are in " + own().string())));
  EXPECT_THAT(root_entries(), IsEmpty());
}

TEST_F(TinyImagenetTest, DefaultTransformsKeepTheSize) {
  const auto transforms = factory().default_transforms;
  const std::string normalize = "{normalize: {mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]}}]";
  EXPECT_EQ(transforms.train, "[{random_crop: {size: 64, padding: 8}}, random_horizontal_flip, " + normalize);
  EXPECT_EQ(transforms.validation, "[" + normalize);
}

}  // namespace
}  // namespace trainer::datasets::test
