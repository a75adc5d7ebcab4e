#include "datasets/csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "datasets/folder_listing.h"
#include "datasets/image_files.h"
#include "trainer/error.h"

namespace trainer::datasets {
namespace {

namespace fs = std::filesystem;

bool is_integer(const std::string& text) {
  return std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; }) && (text.size() == 1 || text[0] != '0');
}

const char* key_of(data::Split split) { return split == data::Split::kTrain ? "train" : "validation"; }
fs::path file_of(const CsvOptions& options, data::Split split) { return split == data::Split::kTrain ? options.train : options.validation; }
// To which the paths in that file refer.
fs::path folder_of(const CsvOptions& options, data::Split split) {
  return options.root.empty() ? file_of(options, split).parent_path() : fs::path(options.root);
}

// The distinct labels of the training file, in the order of the classes.
std::vector<std::string> read_classes(const CsvOptions& options) {
  std::set<std::string> labels;
  read_label_table(options.train, folder_of(options, data::Split::kTrain),
                   [&labels](const LabelledPath& row) { labels.insert(row.label); });
  std::vector<std::string> classes(labels.begin(), labels.end());
  if (std::ranges::all_of(classes, is_integer)) {
    // Without leading zeros, a longer number is a greater one.
    std::ranges::sort(classes, {}, [](const std::string& label) { return std::tuple(label.size(), label); });
  }
  return classes;
}

[[noreturn]] void throw_unknown_label(const CsvOptions& options, const std::vector<std::string>& classes, data::Split split,
                                      const LabelledPath& row) {
  if (split == data::Split::kTrain) {
    throw DataError(
        fmt::format("{}: line {} has the label \"{}\" now, but no line had it when the program started; start it again when the "
                    "file no longer changes",
                    options.train, row.line, row.label));
  }
  throw DataError(
      fmt::format("{}: line {} has the label \"{}\", which {} does not have; correct it, or add training images of that class{}",
                  options.validation, row.line, row.label, options.train, look_alike_hint(row.label, classes)));
}

// As read_label_table(), but throws DataError that names the key too.
void read_table(const CsvOptions& options, data::Split split, const std::function<void(const LabelledPath&)>& use) {
  try {
    read_label_table(file_of(options, split), folder_of(options, split), use);
  } catch (const Error&) {
    throw;
  } catch (const std::runtime_error& reason) {
    throw DataError(fmt::format("dataset.{}: {}", key_of(split), reason.what()));
  }
}

// To which the paths in both files refer.
fs::path common_folder(const CsvOptions& options) {
  if (!options.root.empty()) return options.root;
  const auto folder_of = [](const fs::path& file) { return fs::absolute(file).lexically_normal().parent_path(); };
  const auto folder = folder_of(options.train);
  if (!options.validation.empty() && folder_of(options.validation) != folder) {
    throw DataError(
        fmt::format("dataset.stage_to: the paths in {} and {} refer to the folders of these files, and only one folder can be copied; "
                    "write both relative to one and set dataset.root to it, or leave dataset.stage_to out",
                    options.train, options.validation));
  }
  return folder;
}

// The images of both files, relative to their common folder.
std::vector<fs::path> list_images(const CsvOptions& options) {
  std::set<std::string> paths;
  for (const auto split : {data::Split::kTrain, data::Split::kValidation}) {
    const auto file = file_of(options, split);
    if (file.empty()) continue;
    read_table(options, split, [&](const LabelledPath& row) {
      const fs::path path = row.path;
      if (path.is_absolute() || std::ranges::find(path, fs::path("..")) != path.end()) {
        throw DataError(
            fmt::format("dataset.stage_to: {}: line {} has the path {}; only files in {} are copied: give it relative to that "
                        "folder and without .., set dataset.root to a folder that holds all images, or leave dataset.stage_to out",
                        file.string(), row.line, row.path, common_folder(options).string()));
      }
      paths.insert(path.lexically_normal().string());
    });
  }
  return {paths.begin(), paths.end()};
}

std::unique_ptr<data::Dataset> open_csv(const CsvOptions& options, const std::vector<std::string>& classes, data::Split split,
                                        Logger& logger) {
  const auto file = file_of(options, split);
  if (file.empty()) throw DataError("dataset.validation: it is empty; name the CSV file of the images for validation");
  std::unordered_map<std::string, int64_t> labels;
  for (const auto& name : classes) labels.emplace(name, static_cast<int64_t>(labels.size()));
  ImageList images(folder_of(options, split));
  read_table(options, split, [&](const LabelledPath& row) {
    const auto label = labels.find(row.label);
    if (label == labels.end()) throw_unknown_label(options, classes, split, row);
    images.add(row.path, label->second);
  });
  return open_image_files(image_files_info(classes), std::move(images), file, logger);
}

}  // namespace

void CsvOptions::describe(KeyTable& keys) {
  keys.add(
      "train", train,
      {.doc = "The CSV file of the training images, with a line path,label for each, or \"a path, with a comma\",label. Labels are names "
              "or numbers. A first line that names the columns, such as path,label or image,level, is a header.",
       .required = true,
       .is_path = true,
       .may_be_empty = false});
  keys.add("validation", validation,
           {.doc = "The CSV file of the images for validation; empty: some of the training images are held out.", .is_path = true});
  keys.add("root", root,
           {.doc = "The folder to which relative paths in the CSV files refer; empty: the folder of the CSV file.", .is_path = true});
}

data::DatasetFactory csv_factory(const CsvOptions& options) {
  data::DatasetFactory factory{.info = image_files_info({}),
                               .open = {},
                               .default_transforms = imagenet_transforms(),
                               .has_validation = !options.validation.empty(),
                               .missing_key = "train"};
  try {
    factory.info = image_files_info(read_classes(options));
  } catch (const std::runtime_error& reason) {
    factory.info.num_classes = data::kUnknownClasses;
    factory.missing = reason.what();
  }
  const auto check = [missing = factory.missing] {
    if (!missing.empty()) throw DataError("dataset.train: " + missing);
  };
  factory.open = [options, check, classes = factory.info.class_names](data::Split split, Logger& logger) {
    check();
    return open_csv(options, classes, split, logger);
  };
  factory.locate = [options, check](Logger&) {
    check();
    return common_folder(options);
  };
  factory.list_files = [options] { return list_images(options); };
  // The CSV files are read where they are.
  factory.in_folder = [options](const fs::path& folder) {
    auto moved = options;
    moved.root = folder.string();
    return csv_factory(moved);
  };
  return factory;
}

void add_csv(DatasetRegistry& registry) {
  registry.add<CsvOptions>("csv", "Image files of any size, whose labels are in CSV files with lines path,label.", csv_factory);
}

namespace {

// Reads a text record by record. Throws std::runtime_error without the file's name.
class RecordReader {
 public:
  explicit RecordReader(std::string_view text) : rest_(text) {}

  // False at the end. An empty line is a record of one empty field.
  bool next() {
    if (rest_.empty()) return false;
    line_ = next_line_;
    fields_.clear();
    do {
      fields_.push_back(rest_.starts_with('"') ? take_quoted() : take_plain());
    } while (take(","));
    if (rest_ == "\r") rest_ = {};  // at the end of the file
    if (take("\r\n") || take("\n")) {
      ++next_line_;
    } else if (!rest_.empty()) {
      throw std::runtime_error(
          fmt::format("line {} has text after a closing quotation mark; double a quotation mark that belongs to the field", next_line_));
    }
    return true;
  }
  const std::vector<std::string>& fields() const { return fields_; }
  int64_t line() const { return line_; }  // on which the record begins

 private:
  bool take(std::string_view text) {
    if (!rest_.starts_with(text)) return false;
    rest_.remove_prefix(text.size());
    return true;
  }
  std::string take_plain() {
    auto field = rest_.substr(0, rest_.find_first_of(",\n"));
    const bool ends_line = field.size() == rest_.size() || rest_[field.size()] == '\n';
    if (ends_line && field.ends_with('\r')) field.remove_suffix(1);
    rest_.remove_prefix(field.size());
    return std::string(field);
  }
  std::string take_quoted() {
    std::string field;
    rest_.remove_prefix(1);
    while (true) {
      const auto end = rest_.find('"');
      if (end == std::string_view::npos) {
        throw std::runtime_error(fmt::format("line {} has a quotation mark that no other one closes; add it", line_));
      }
      const auto part = rest_.substr(0, end);
      field += part;
      next_line_ += std::ranges::count(part, '\n');
      rest_.remove_prefix(end + 1);
      if (!take("\"")) break;
      field += '"';
    }
    return field;
  }

  std::string_view rest_;
  std::vector<std::string> fields_;
  int64_t line_ = 0;
  int64_t next_line_ = 1;
};

void check_record(const RecordReader& reader) {
  const auto& fields = reader.fields();
  if (fields.size() != 2) {
    throw std::runtime_error(fmt::format("line {} has {} instead of path,label; write a path that contains a comma in quotation marks",
                                         reader.line(), counted(fields.size(), "field")));
  }
  for (const size_t i : {size_t{0}, size_t{1}}) {
    if (fields[i].empty()) throw std::runtime_error(fmt::format("line {} has no {}; add it", reader.line(), i == 0 ? "path" : "label"));
  }
  if (!is_utf8(fields[1])) {
    throw std::runtime_error(
        fmt::format("line {} has the label \"{}\", which is not text in UTF-8; save the file as UTF-8", reader.line(), fields[1]));
  }
}

// Whether the record at which the reader stands, the first, names the columns. `folder`: to which paths refer.
bool is_header(RecordReader reader, const std::filesystem::path& folder) {
  const auto header = reader.fields();
  std::error_code unknown;
  if (is_image_name(header[0]) || std::filesystem::is_regular_file(folder / header[0], unknown)) return false;
  if (lower_case(header[1]) == "label") return true;
  while (reader.next()) {
    // Files that were joined repeat it.
    const auto& fields = reader.fields();
    if (fields.size() > 1 && fields[1] == header[1] && fields[0] != header[0]) return false;
  }
  return true;
}

void read_records(std::string_view text, const std::filesystem::path& folder, const std::function<void(const LabelledPath&)>& use) {
  text = without_byte_order_mark(text);
  if (text.find('\0') != std::string_view::npos) throw std::runtime_error("it is not text in UTF-8; save it as such");
  RecordReader reader(text);
  int64_t num_records = 0;
  bool is_first = true;
  std::vector<std::string> header;
  while (reader.next()) {
    const auto& fields = reader.fields();
    if (fields.size() == 1 && fields[0].empty()) continue;
    check_record(reader);
    if (std::exchange(is_first, false) && is_header(reader, folder)) header = fields;
    if (fields == header) continue;
    use({reader.line(), fields[0], fields[1]});
    ++num_records;
  }
  if (num_records == 0) throw std::runtime_error("it has no images; add a line path,label for each");
}

}  // namespace

void read_label_table(const std::filesystem::path& file, const std::filesystem::path& folder,
                      const std::function<void(const LabelledPath&)>& use) {
  std::string text;
  try {
    text = read_file(file);
  } catch (const Error& error) {
    throw std::runtime_error(fmt::format("{}; name a CSV file with a line path,label for each image", error.what()));
  }
  try {
    read_records(text, folder, use);
  } catch (const Error&) {
    throw;
  } catch (const std::runtime_error& reason) {
    throw std::runtime_error(fmt::format("{}: {}", file.string(), reason.what()));
  }
}

}  // namespace trainer::datasets
