#include "datasets/csv.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/ostream_sink.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/testing/temporary_folder.h"
#include "tests/unit/datasets/failure_of.h"
#include "tests/unit/datasets/small_files.h"
#include "trainer/error.h"

namespace trainer::datasets::test {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// CSV files in a temporary folder.
constexpr const char* kNeedsHeader =
    "line 1 is an image, but dataset.columns, dataset.group_column and columns of classes need a header with the names of the columns, "
    "such as path,cat,dog; add it";

class CsvTest : public ::testing::Test {
 protected:
  CsvTest() { options_.train = path("train.csv"); }

  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  void write_train(const std::string& content) const { write_bytes(path("train.csv"), content); }
  void write_validation(const std::string& content) {
    write_bytes(path("val.csv"), content);
    options_.validation = path("val.csv");
  }

  data::DatasetFactory factory() const { return csv_factory(options_); }
  static std::unique_ptr<data::Dataset> open(const data::DatasetFactory& factory, data::Split split = data::Split::kTrain) {
    return factory.open(split, *make_quiet_logger());
  }
  // The warnings of opening the split, each in a line "FILE: TEXT".
  std::string warnings_of(data::Split split) const {
    std::ostringstream text;
    spdlog::logger logger("warnings", std::make_shared<spdlog::sinks::ostream_sink_st>(text));
    logger.set_pattern("%v");
    logger.set_level(spdlog::level::warn);
    factory().open(split, logger);
    return text.str();
  }
  static std::string failure(const std::function<void()>& action) {
    try {
      action();
    } catch (const DataError& error) {
      return error.what();
    }
    return "no error";
  }
  // The classes of a training file with these labels.
  std::vector<std::string> classes_of(const std::vector<std::string>& labels) const {
    std::string content;
    for (const auto& label : labels) content += "a.jpg," + label + "\n";
    write_train(content);
    EXPECT_EQ(factory().info.num_classes, static_cast<int64_t>(factory().info.class_names.size()));
    return factory().info.class_names;
  }
  // "LABEL PATH" of each image in the file, without the folder.
  std::vector<std::string> images_of(const std::string& content) const {
    write_train(content);
    const auto made = factory();
    EXPECT_EQ(made.missing, "");
    return made.missing.empty() ? images_in(*open(made)) : std::vector<std::string>{};
  }
  std::vector<std::string> images_in(const data::Dataset& dataset) const {
    std::vector<std::string> lines;
    data::Scratch scratch;
    for (int64_t i = 0; i < dataset.size(); ++i) {
      const auto name = dataset.origin(i).name;
      write_bytes(name, "image");
      const auto sample = dataset.read(i, scratch);
      EXPECT_EQ(sample.encoded.size(), 5U);
      lines.push_back(std::to_string(sample.target.label) + ' ' + name.substr(path("").size()));
    }
    return lines;
  }
  // The error of factory() for a training file with this content, without the file's name.
  std::string what_is_wrong_with(const std::string& content) const {
    write_train(content);
    const auto made = factory();
    EXPECT_EQ(made.info.num_classes, data::kUnknownClasses);
    EXPECT_THAT(made.info.class_names, IsEmpty());
    EXPECT_EQ(made.missing_key, "train");
    for (const auto split : {data::Split::kTrain, data::Split::kValidation})
      EXPECT_EQ(failure_of(made, split), "dataset.train: " + made.missing);
    const auto begin = path("train.csv") + ": ";
    EXPECT_EQ(made.missing.substr(0, begin.size()), begin);
    return made.missing.substr(begin.size());
  }

 private:
  trainer::testing::TemporaryFolder folder_;

 protected:
  CsvOptions options_;
};

TEST_F(CsvTest, ReadsBothFiles) {
  write_train("cats/1.jpg,cat\ndogs/2.jpg,dog\ncats/3.jpg,cat\n");
  write_validation("4.jpg,dog\n");
  const auto made = factory();
  EXPECT_TRUE(made.has_validation);
  EXPECT_THAT(made.info.shape, ElementsAre(3, data::kAnySize, data::kAnySize));
  EXPECT_THAT(made.info.class_names, ElementsAre("cat", "dog"));
  const auto train = open(made);
  EXPECT_THAT(train->info().class_names, ElementsAre("cat", "dog"));
  EXPECT_THAT(images_in(*train), ElementsAre("0 cats/1.jpg", "1 dogs/2.jpg", "0 cats/3.jpg"));
  EXPECT_THAT(images_in(*open(made, data::Split::kValidation)), ElementsAre("1 4.jpg"));
  EXPECT_THAT(made.default_transforms.train, HasSubstr("random_resized_crop"));
}

TEST_F(CsvTest, ValidationMayBeMissing) {
  write_train("1.jpg,cat\n");
  EXPECT_FALSE(factory().has_validation);
  EXPECT_EQ(failure_of(factory(), data::Split::kValidation),
            "dataset.validation: it is empty; set it to the CSV file of the validation images");
}

TEST_F(CsvTest, ClassesAreSortedAsNumbersIfAllAre) {
  EXPECT_THAT(classes_of({"10", "2", "0", "2", "1"}), ElementsAre("0", "1", "2", "10"));
  EXPECT_THAT(classes_of({"10", "2", "cat"}), ElementsAre("10", "2", "cat"));
  EXPECT_THAT(classes_of({"10", "02", "1"}), ElementsAre("02", "1", "10"));
  EXPECT_THAT(classes_of({"1", "-1", "0"}), ElementsAre("-1", "0", "1"));
  EXPECT_THAT(classes_of({"b", "B", "é", "a b"}), ElementsAre("B", "a b", "b", "é"));
}

TEST_F(CsvTest, UnderstandsTheFormsOfCsv) {
  EXPECT_THAT(images_of("1.jpg,b\n2.jpg,a"), ElementsAre("1 1.jpg", "0 2.jpg"));
  EXPECT_THAT(images_of("path,label\n1.jpg,b\n"), ElementsAre("0 1.jpg"));
  EXPECT_THAT(images_of("\n\"file\",\"label\"\n1.jpg,b\n"), ElementsAre("0 1.jpg"));
  EXPECT_THAT(images_of("1.jpg,b\n2.jpg,label\n"), ElementsAre("0 1.jpg", "1 2.jpg"));
  EXPECT_THAT(images_of("\xef\xbb\xbfpath,label\r\n1.jpg,b\r\n\r\n2.jpg,a\r"), ElementsAre("1 1.jpg", "0 2.jpg"));
  EXPECT_THAT(images_of("\"a,b.jpg\",\"x \"\"y\"\"\"\r\n\"c.jpg\",\"u\nv\"\r"), ElementsAre("1 a,b.jpg", "0 c.jpg"));
  EXPECT_THAT(factory().info.class_names, ElementsAre("u\nv", "x \"y\""));
  EXPECT_THAT(images_of("a \"b\".jpg, c \n"), ElementsAre("0 a \"b\".jpg"));
  EXPECT_THAT(factory().info.class_names, ElementsAre(" c "));
}

TEST_F(CsvTest, AFirstLineThatNamesTheColumnsIsNoImage) {
  fs::create_directory(path("image"));
  for (const std::string header : {"path,class", "Path,Label", "image,level", "\"image_name\",\"category\"", "filename, label", "id,breed",
                                   "\ufeffFile Name,LABEL", "# path,label"}) {
    EXPECT_THAT(images_of(header + "\n1.jpg,cat\n2.jpg,dog\n3.jpg,cat\n"), ElementsAre("0 1.jpg", "1 2.jpg", "0 3.jpg")) << header;
  }
  // Two concatenated files.
  EXPECT_THAT(images_of("image,level\r\n1.jpg,0\r\nimage,level\r\n2.jpg,1\r\n"), ElementsAre("0 1.jpg", "1 2.jpg"));
  write_validation("image,level\n1.jpg,cat\n");
  write_train("1.jpg,cat\n2.jpg,dog\n");
  EXPECT_THAT(images_in(*open(factory(), data::Split::kValidation)), ElementsAre("0 1.jpg"));
}

TEST_F(CsvTest, AFirstLineThatMayBeAnImageIsOne) {
  write_bytes(path("scan1"), "image");
  EXPECT_THAT(images_of("scan1,cat\n1.jpg,dog\n"), ElementsAre("0 scan1", "1 1.jpg"));
  EXPECT_THAT(images_of("missing.JPG,cat\n1.jpg,dog\n"), ElementsAre("0 missing.JPG", "1 1.jpg"));
  EXPECT_THAT(images_of("missing,dog\n1.jpg,dog\n"), ElementsAre("0 missing", "0 1.jpg"));
}

TEST_F(CsvTest, LabelsThatAreNotUtf8AreRefused) {
  EXPECT_EQ(what_is_wrong_with("1.jpg,cat\n2.jpg,M\xfcll\n"),
            "line 2 has the label \"M\xfcll\", which is not valid UTF-8; save the file as UTF-8");
  EXPECT_THAT(images_of("caf\xe9/1.jpg,cat\n"), ElementsAre("0 caf\xe9/1.jpg"));
}

TEST_F(CsvTest, PathsReferToTheRootOrToTheFile) {
  write_bytes(path("lists/val.csv"), "1.jpg,cat\n");
  write_train("1.jpg,cat\n/abs/2.jpg,cat\n");
  options_.validation = path("lists/val.csv");
  EXPECT_EQ(open(factory())->origin(1).name, "/abs/2.jpg");
  EXPECT_EQ(open(factory(), data::Split::kValidation)->origin(0).name, path("lists/1.jpg"));
  options_.root = path("images");
  EXPECT_EQ(open(factory())->origin(0).name, path("images/1.jpg"));
  EXPECT_EQ(open(factory())->origin(1).name, "/abs/2.jpg");
  EXPECT_EQ(open(factory(), data::Split::kValidation)->origin(0).name, path("images/1.jpg"));
}

TEST_F(CsvTest, MalformedTrainingFilesAreExplained) {
  EXPECT_EQ(what_is_wrong_with(""), "it lists no images; add a line path,label for each image");
  EXPECT_EQ(what_is_wrong_with("image,class\n\n"), "it lists no images; add a line path,label for each image");
  EXPECT_EQ(what_is_wrong_with("1.jpg,a\n\n2.jpg\n"), "line 3 has 1 field instead of path,label; add what is missing after a comma");
  EXPECT_EQ(what_is_wrong_with("1.jpg,a\n2,b.jpg,a\n"),
            "line 2 has 3 fields instead of path,label; put fields that contain commas in quotation marks, or choose the columns of the "
            "targets with dataset.columns");
  EXPECT_EQ(what_is_wrong_with("path,label,split\n1.jpg,a,train\n"),
            "line 1 has 3 fields instead of path,label; put fields that contain commas in quotation marks, or choose the columns of the "
            "targets with dataset.columns");
  EXPECT_EQ(what_is_wrong_with("1.jpg,\n"), "line 1 has no label; add it");
  EXPECT_EQ(what_is_wrong_with("\"1\n.jpg\",a\n\"\",a\n"), "line 3 has no path; add it");
  EXPECT_EQ(what_is_wrong_with("1.jpg,a\n\"2.jpg,a\n3.jpg,a\n"), "line 2 has an opening quotation mark without a closing one; add it");
  EXPECT_EQ(what_is_wrong_with("1.jpg,a\n\"2\".jpg,a\n"),
            "line 2 has text after a closing quotation mark; write \"\" for a quotation mark inside a field");
  EXPECT_EQ(what_is_wrong_with(std::string("1\0.\0", 4)),
            "it contains null bytes, as UTF-16 text and binary files do; save it as UTF-8 text");
}

TEST_F(CsvTest, ATrainingFileThatCannotBeReadIsNamed) {
  const std::string remedy = "; give a CSV file with a line path,label for each image";
  EXPECT_EQ(factory().missing, "cannot read " + path("train.csv") + ": No such file or directory" + remedy);
  options_.train = path("");
  EXPECT_THAT(factory().missing, EndsWith(": it is a folder, not a regular file" + remedy));
}

TEST_F(CsvTest, MistakesInTheValidationFileAreErrors) {
  write_train("1.jpg,cat\n2.jpg,dog\n");
  options_.validation = path("val.csv");
  EXPECT_EQ(failure_of(factory(), data::Split::kValidation),
            "dataset.validation: cannot read " + path("val.csv") +
                ": No such file or directory; give a CSV file with a line path,label for each image");
  write_validation("path,label\n1.jpg,cat\n2.jpg,cow\n");
  EXPECT_EQ(failure_of(factory(), data::Split::kValidation), path("val.csv") + ": line 3 has the label \"cow\", which " +
                                                                 path("train.csv") +
                                                                 " does not have; correct it, or add training images of that class");
  write_validation("1.jpg\n");
  EXPECT_EQ(failure_of(factory(), data::Split::kValidation),
            "dataset.validation: " + path("val.csv") + ": line 1 has 1 field instead of path,label; add what is missing after a comma");
  EXPECT_EQ(open(factory())->size(), 2);
}

TEST_F(CsvTest, LabelsThatAppearAfterTheStartAreNoticed) {
  write_train("1.jpg,cat\n");
  const auto made = factory();
  write_train("1.jpg,cat\n2.jpg,dog\n");
  EXPECT_EQ(
      failure_of(made, data::Split::kTrain),
      path("train.csv") +
          ": line 2 has the label \"dog\", which no line had when the program started; start the program again when the file no longer "
          "changes");
}

TEST_F(CsvTest, ItsImagesCanBeCopied) {
  write_train("cats/1.jpg,cat\n./dogs//2.jpg,dog\ncats/1.jpg,cat\n");
  write_validation("dogs/2.jpg,dog\n4.jpg,dog\n");
  const auto made = factory();
  EXPECT_EQ(made.locate(*make_quiet_logger()).string() + "/", path(""));
  EXPECT_THAT(made.list_files(), ElementsAre("4.jpg", "cats/1.jpg", "dogs/2.jpg"));
  const auto moved = made.in_folder("/copy");
  EXPECT_EQ(open(moved)->origin(1).name, "/copy/./dogs//2.jpg");
  EXPECT_EQ(open(moved, data::Split::kValidation)->origin(1).name, "/copy/4.jpg");
  EXPECT_EQ(moved.info.class_names, made.info.class_names);
  options_.root = path("images");
  EXPECT_EQ(factory().locate(*make_quiet_logger()), path("images"));
}

TEST_F(CsvTest, FilesOutsideOfTheFolderAreNotCopied) {
  for (const std::string name : {"/abs/2.jpg", "cats/../2.jpg"}) {
    write_train("1.jpg,cat\n" + name + ",cat\n");
    EXPECT_EQ(failure([&] { factory().list_files(); }),
              "dataset.stage_to: " + path("train.csv") + ": line 2 has the path " + name + ", but only files in " +
                  fs::path(path("")).parent_path().string() +
                  " are copied; make the path relative to that folder and without .., set dataset.root to a folder that contains all "
                  "images, or remove dataset.stage_to");
  }
}

TEST_F(CsvTest, OnlyOneFolderCanBeCopied) {
  write_train("1.jpg,cat\n");
  options_.validation = path("lists/val.csv");
  write_bytes(options_.validation, "1.jpg,cat\n");
  const auto locate = [&] { factory().locate(*make_quiet_logger()); };
  EXPECT_EQ(failure(locate), "dataset.stage_to: the paths in " + options_.train + " and " + options_.validation +
                                 " are relative to different folders, but only one folder can be copied; make "
                                 "the paths in both files relative to one folder and set dataset.root to it, or remove dataset.stage_to");
  options_.train = path("missing.csv");
  EXPECT_EQ(failure(locate), "dataset.train: " + factory().missing);
}

TEST_F(CsvTest, ImagesThatDoNotExistAreFoundWhenTheyAreRead) {
  write_train("1.jpg,cat\n");
  const auto dataset = open(factory());
  data::Scratch scratch;
  try {
    dataset->read(0, scratch);
    FAIL() << "no error";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "cannot be read: No such file or directory");
  }
}

TEST_F(CsvTest, IfNoRawImageCanBeReadTheFirstIsNamed) {
  options_.files.mode = data::ImageMode::kRaw;
  write_train("a.npy,cat\nb.npy,cat\n");
  const auto made = factory();
  EXPECT_EQ(made.info.decoding.num_channels(), std::nullopt);
  EXPECT_EQ(made.missing, "the number of channels is unknown, because no image can be read (2 tried); the first is " + path("a.npy") +
                              ": cannot be read: No such file or directory");
}

TEST_F(CsvTest, RepeatedPathsAreReported) {
  write_train("path,label\na.jpg,cat\nb.jpg,dog\n");
  EXPECT_EQ(warnings_of(data::Split::kTrain), "");
  write_validation("c.jpg,cat\n");
  EXPECT_EQ(warnings_of(data::Split::kValidation), "");
  write_train("path,label\na.jpg,cat\nb.jpg,dog\n./a.jpg,dog\na.jpg,cat\n");
  EXPECT_EQ(warnings_of(data::Split::kTrain),
            path("train.csv") +
                ": 2 lines with the path of an earlier line, such as line 4 (./a.jpg, as in line 2): each line is used as an "
                "image of its own; keep one line per image\n");
  write_validation("c.jpg,cat\nb.jpg,dog\nc.jpg,dog\n");
  EXPECT_EQ(warnings_of(data::Split::kValidation),
            path("val.csv") +
                ": 1 line with the path of an earlier line, such as line 3 (c.jpg, as in line 1): each line is used as an image "
                "of its own; keep one line per image; 1 image that " +
                path("train.csv") +
                " lists too, such as b.jpg: the results of the validation will be too good; remove them from one of the files\n");
}

// CSV files with chosen columns, or with targets other than labels.
class CsvTargetsTest : public CsvTest {
 protected:
  // "PATH VALUE VALUE ..." of each image.
  std::vector<std::string> targets_in(const data::Dataset& dataset) const {
    std::vector<std::string> lines;
    for (int64_t i = 0; i < dataset.size(); ++i) {
      lines.push_back(dataset.origin(i).name.substr(path("").size()));
      for (const auto value : dataset.target_values(i)) lines.back() += fmt::format(" {}", value);
    }
    return lines;
  }
  std::vector<std::string> targets_of(const std::string& content) const {
    write_train(content);
    const auto made = factory();
    EXPECT_EQ(made.missing, "");
    return made.missing.empty() ? targets_in(*open(made)) : std::vector<std::string>{};
  }
  // The error without the file's name.
  std::string problem_with(const std::string& content) const {
    write_train(content);
    const auto made = factory();
    const auto text = made.missing.empty() ? failure_of(made, data::Split::kTrain) : made.missing;
    const auto begin = path("train.csv") + ": ";
    EXPECT_EQ(text.substr(0, begin.size()), begin);
    return text.substr(begin.size());
  }
};

TEST_F(CsvTargetsTest, AColumnOfLabelsIsChosenByItsName) {
  options_.columns = {"kind"};
  EXPECT_THAT(images_of("image,patient,kind\n1.jpg,p1,cat\n2.jpg,p2,dog\n"), ElementsAre("0 1.jpg", "1 2.jpg"));
  EXPECT_EQ(problem_with("image,patient,label\n1.jpg,p1,cat\n"),
            "line 1 has no column \"kind\", only patient, label; correct that line or dataset.columns");
  EXPECT_EQ(problem_with("1.jpg,p1,cat\n"), kNeedsHeader);
  EXPECT_EQ(problem_with("image,patient,kind\n1.jpg,p1\n"), "line 2 has 2 fields instead of 3; add what is missing after a comma");
  EXPECT_EQ(problem_with("image,patient,kind\n1.jpg,p1,\n"), "line 2 has no label; add it");
  options_.columns = {"kind", "patient"};
  EXPECT_EQ(problem_with("image,patient,kind\n1.jpg,p1,cat\n"),
            "it has 2 target columns, but dataset.targets: class needs one; choose one with dataset.columns, or set dataset.targets to "
            "classes or numbers");
}

TEST_F(CsvTargetsTest, AColumnOfGroupsIsNoTarget) {
  options_.group_column = "patient";
  EXPECT_THAT(images_of("image,patient,kind\n1.jpg,p1,cat\n2.jpg,p2,dog\n"), ElementsAre("0 1.jpg", "1 2.jpg"));
  const auto dataset = open(factory());
  EXPECT_EQ(dataset->origin(1).group, "p2");
  EXPECT_EQ(dataset->origin(1).key, "2.jpg");
  EXPECT_EQ(problem_with("image,patient,kind\n1.jpg,,cat\n"),
            "line 2 has an empty value in the column patient of dataset.group_column; add it");
  EXPECT_EQ(problem_with("image,kind\n1.jpg,cat\n"),
            "line 1 has no column \"patient\", only kind; correct that line or dataset.group_column");
  EXPECT_EQ(problem_with("1.jpg,p1,cat\n"), kNeedsHeader);
  options_.targets = CsvTargets::kNumbers;
  EXPECT_THAT(targets_of("image,patient,x,y\n1.jpg,p1,3,4\n"), ElementsAre("1.jpg 3 4"));
}

TEST_F(CsvTargetsTest, SeveralClassesHaveAColumnEach) {
  options_.targets = CsvTargets::kClasses;
  EXPECT_THAT(targets_of("path,dog,cat\n1.jpg,1,0\n2.jpg,0,0\npath,dog,cat\n3.jpg,1.0,1\n"),
              ElementsAre("1.jpg 1 0", "2.jpg 0 0", "3.jpg 1 1"));
  const auto made = factory();
  EXPECT_TRUE(made.info.is_multi_label);
  EXPECT_FALSE(made.info.has_labels());
  EXPECT_EQ(made.info.num_outputs(), 2);
  EXPECT_THAT(made.info.class_names, ElementsAre("dog", "cat"));
  // The columns are assigned by their names, in any order.
  write_validation("path,cat,age,dog\n4.jpg,0,7,1\n");
  EXPECT_THAT(targets_in(*open(factory(), data::Split::kValidation)), ElementsAre("4.jpg 1 0"));
  EXPECT_EQ(problem_with("path,dog,cat\n1.jpg,1,2\n"), "line 2 has \"2\" in the column cat; write 1 for an image of that class, else 0");
  EXPECT_EQ(problem_with("path,dog,dog\n1.jpg,1,0\n"), "line 1 has two columns named \"dog\"; rename one of them");
  EXPECT_EQ(problem_with("1.jpg,1,0\n"), kNeedsHeader);
}

TEST_F(CsvTargetsTest, SeveralClassesAreAList) {
  options_.targets = CsvTargets::kClasses;
  EXPECT_THAT(targets_of("path,labels\n1.jpg,dog;cat\n2.jpg,\n3.jpg,cow;\n"), ElementsAre("1.jpg 1 0 1", "2.jpg 0 0 0", "3.jpg 0 1 0"));
  EXPECT_THAT(factory().info.class_names, ElementsAre("cat", "cow", "dog"));
  write_validation("4.jpg,cat;pig\n");
  EXPECT_THAT(failure_of(factory(), data::Split::kValidation), HasSubstr("line 1 has the label \"pig\", which"));
  // A single column of 1 and 0 is one class, not a list of classes.
  EXPECT_THAT(targets_of("path,cat\n1.jpg,1\n2.jpg,0\n"), ElementsAre("1.jpg 1", "2.jpg 0"));
  EXPECT_THAT(factory().info.class_names, ElementsAre("cat"));
  EXPECT_EQ(problem_with("path,labels\n1.jpg,\n"), "no image has a class; add the names of classes");
  EXPECT_EQ(problem_with("1.jpg\n"), "line 1 has 1 field instead of 2; add what is missing after a comma");
}

TEST_F(CsvTargetsTest, Numbers) {
  options_.targets = CsvTargets::kNumbers;
  EXPECT_THAT(targets_of("1.jpg,1.5,-2\n2.jpg,1e3,0\n"), ElementsAre("1.jpg 1.5 -2", "2.jpg 1000 0"));
  EXPECT_EQ(factory().info.num_outputs(), 2);
  EXPECT_THAT(factory().info.target_names, IsEmpty());
  write_validation("3.jpg,1\n");
  EXPECT_EQ(failure_of(factory(), data::Split::kValidation), "dataset.validation: " + path("val.csv") + " has 1 number per image, but " +
                                                                 path("train.csv") + " has 2; give both files the same columns");
  EXPECT_THAT(targets_of("path,length,weight\n1.jpg,1.5,2\n"), ElementsAre("1.jpg 1.5 2"));
  EXPECT_THAT(factory().info.target_names, ElementsAre("length", "weight"));
  options_.columns = {"weight"};
  EXPECT_THAT(targets_of("path,length,weight\n1.jpg,,2\n"), ElementsAre("1.jpg 2"));
  EXPECT_EQ(problem_with("path,length,weight\n1.jpg,,heavy\n"),
            "line 2 has \"heavy\" in the column weight; write a finite number, such as 0.25");
  for (const std::string wrong : {"", "nan", "inf", "1e99", "1,5", "0x10"}) {
    EXPECT_THAT(problem_with("path,weight\n1.jpg,\"" + wrong + "\"\n"), HasSubstr("write a finite number")) << wrong;
  }
  EXPECT_THAT(targets_of("path,weight\n1.jpg,1e-60\n"), ElementsAre("1.jpg 1e-60"));
  // All digits are kept; spaces and a plus sign are accepted, also in the header.
  EXPECT_THAT(targets_of("path, weight\n1.jpg, 1700000030\n2.jpg,+5400123.25 \n"), ElementsAre("1.jpg 1700000030", "2.jpg 5400123.25"));
  EXPECT_THAT(problem_with("path,weight\n1.jpg,+-1\n"), HasSubstr("write a finite number"));
  EXPECT_EQ(
      problem_with(",path,weight\n0,1.jpg,2\n"),
      "the first field of line 1 is empty, as in files that pandas writes with its index; write the file with to_csv(index=False), or "
      "begin the line with the name of the column of paths");
  options_.columns = {"weight", "weight"};
  EXPECT_EQ(problem_with("path,weight\n1.jpg,1\n"), "dataset.columns contains \"weight\" twice; remove one of them");
  options_.columns = {};
  // A path that is neither a file nor has the extension of an image marks a header, even if the other columns are numbers such as years.
  EXPECT_THAT(targets_of("path,2019,2020\n1.jpg,1,2\n"), ElementsAre("1.jpg 1 2"));
  write_bytes(path("noext"), "image");
  EXPECT_EQ(problem_with("noext,n/a\n"), "line 1 has \"n/a\"; write a finite number, such as 0.25");
  write_validation("noext,1,2\n");
  EXPECT_THAT(targets_of("path,a,b\n1.jpg,1,2\n"), ElementsAre("1.jpg 1 2"));
  EXPECT_THAT(targets_in(*open(factory(), data::Split::kValidation)), ElementsAre("noext 1 2"));
  options_.validation.clear();
  write_train("path,weight\n");
  EXPECT_EQ(factory().info.num_outputs(), data::kUnknownClasses);
  EXPECT_EQ(factory().info.num_classes, 0);
}

}  // namespace
}  // namespace trainer::datasets::test
