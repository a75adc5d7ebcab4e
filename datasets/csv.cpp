#include "datasets/csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "base/file.h"
#include "base/text.h"
#include "datasets/files.h"
#include "datasets/folder_listing.h"
#include "trainer/error.h"

namespace trainer::datasets {
namespace {

namespace fs = std::filesystem;

bool is_integer(const std::string& text) {
  return std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; }) && (text.size() == 1 || text[0] != '0');
}

std::string_view without_outer_spaces(std::string_view text) {
  constexpr const char* kSpaces = " \t";
  const auto begin = std::min(text.find_first_not_of(kSpaces), text.size());
  return text.substr(begin, text.find_last_not_of(kSpaces) + 1 - begin);
}

// Spaces around a number and a plus sign are accepted. The number must be finite as a float too, because networks compute with floats.
std::optional<double> number_of(std::string_view text) {
  text = without_outer_spaces(text);
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  const auto value = parse_number<double>(text);
  return value && std::isfinite(static_cast<float>(*value)) ? value : std::nullopt;
}

std::string key_of(data::Split split) { return split == data::Split::kTrain ? "dataset.train" : "dataset.validation"; }
fs::path file_of(const CsvOptions& options, data::Split split) { return split == data::Split::kTrain ? options.train : options.validation; }
// The folder to which the paths in the file refer.
fs::path folder_of(const CsvOptions& options, data::Split split) {
  return options.root.empty() ? file_of(options, split).parent_path() : fs::path(options.root);
}

// An image and its targets as text.
struct Row {
  int64_t line = 0;  // from 1
  std::string path;
  std::vector<std::string> fields = {};
  std::string group = {};
};

// A CSV file in memory.
class Table {
 public:
  // `options`: the columns of the targets and the place of the images. Throws std::runtime_error with the file, the line and what to do.
  Table(const CsvOptions& options, data::Split split);

  // The names of the target columns; empty: the file has no header.
  const std::vector<std::string>& names() const { return names_; }
  size_t num_fields() const { return fields_.size(); }
  // Calls `use` with each line that is neither a header nor empty. Throws like the constructor; an Error of `use` is passed on.
  void read(const std::function<void(const Row&)>& use) const;

 private:
  void find_columns();

  const CsvOptions& options_;
  bool is_train_;
  fs::path file_;
  fs::path folder_;
  std::string text_;
  std::vector<std::string> header_;  // the fields of the header; empty: there is none
  std::vector<std::string> names_;
  std::vector<size_t> fields_;   // the indices of the target columns
  std::optional<size_t> group_;  // the index of dataset.group_column
};

// Without spaces around the parts and without empty parts.
std::vector<std::string> split_list(std::string_view list, std::string_view separator) {
  std::vector<std::string> labels;
  while (!list.empty()) {
    const auto end = std::min(list.find(separator), list.size());
    const auto label = without_outer_spaces(list.substr(0, end));
    if (!label.empty()) labels.emplace_back(label);
    list.remove_prefix(std::min(end + separator.size(), list.size()));
  }
  return labels;
}

// The targets that the training file defines.
struct Targets {
  std::vector<std::string> class_names = {};  // in the order of the classes
  std::vector<std::string> columns = {};      // of the numbers, or of classes with one column each; empty: unnamed, or labels in one column
  int64_t num_targets = 1;
  std::vector<fs::path> first_images = {};  // at most kMostTriedImages
  // The hash_of() each path, sorted; empty without a validation file.
  std::shared_ptr<std::vector<size_t>> paths = std::make_shared<std::vector<size_t>>();
};

// Paths are compared by hashes, because a file may have millions of lines.
size_t hash_of(const fs::path& path) { return std::hash<std::string>()(path.lexically_normal().string()); }

Targets read_targets(const CsvOptions& options) {
  const Table table(options, data::Split::kTrain);
  Targets targets;
  std::set<std::string> labels;
  bool are_all_binary = !table.names().empty();
  table.read([&](const Row& row) {
    const auto path = folder_of(options, data::Split::kTrain) / row.path;
    if (targets.first_images.size() < kMostTriedImages) targets.first_images.push_back(path);
    if (!options.validation.empty()) targets.paths->push_back(hash_of(path));
    if (options.targets == CsvTargets::kClass) labels.insert(row.fields[0]);
    if (options.targets == CsvTargets::kClasses && table.num_fields() == 1) {
      are_all_binary = are_all_binary && (row.fields[0] == "0" || row.fields[0] == "1");
      for (auto& label : split_list(row.fields[0], options.separator)) labels.insert(std::move(label));
    }
  });
  std::ranges::sort(*targets.paths);
  const bool is_list =
      options.targets == CsvTargets::kClass || (options.targets == CsvTargets::kClasses && table.num_fields() == 1 && !are_all_binary);
  if (!is_list) {
    targets.columns = table.names();
    if (options.targets == CsvTargets::kClasses) targets.class_names = table.names();
    targets.num_targets = static_cast<int64_t>(table.num_fields());
    return targets;
  }
  auto& classes = targets.class_names;
  classes.assign(labels.begin(), labels.end());
  if (classes.empty()) throw std::runtime_error(options.train + ": no image has a class; add the names of classes");
  if (std::ranges::all_of(classes, is_integer)) {
    // Without leading zeros, a longer number is greater.
    std::ranges::sort(classes, {}, [](const std::string& label) { return std::tuple(label.size(), label); });
  }
  return targets;
}

[[noreturn]] void throw_unknown_label(const CsvOptions& options, data::Split split, int64_t line, const std::string& label) {
  if (split == data::Split::kTrain) {
    throw DataError(fmt::format(
        "{}: line {} has the label \"{}\", which no line had when the program started; start the program again when the file no longer "
        "changes",
        options.train, line, label));
  }
  throw DataError(fmt::format("{}: line {} has the label \"{}\", which {} does not have; correct it, or add training images of that class",
                              options.validation, line, label, options.train));
}

// The values of the target columns, each of which is a class or a number.
std::vector<double> values_of(const CsvOptions& options, const fs::path& file, const Targets& targets, const Row& row) {
  const bool are_classes = options.targets == CsvTargets::kClasses;
  std::vector<double> values;
  for (size_t i = 0; i < row.fields.size(); ++i) {
    const auto& field = row.fields[i];
    const auto value = number_of(field);
    if (value && (!are_classes || *value == 0 || *value == 1)) {
      values.push_back(*value);
      continue;
    }
    const auto column = targets.columns.empty() ? "" : fmt::format(" in the column {}", targets.columns[i]);
    throw DataError(fmt::format("{}: line {} has \"{}\"{}; write {}", file.string(), row.line, field, column,
                                are_classes ? "1 for an image of that class, else 0" : "a finite number, such as 0.25"));
  }
  return values;
}

// The folder to which the paths in both files refer.
fs::path common_folder(const CsvOptions& options) {
  if (!options.root.empty()) return options.root;
  const auto folder_of = [](const fs::path& file) { return fs::absolute(file).lexically_normal().parent_path(); };
  const auto folder = folder_of(options.train);
  if (!options.validation.empty() && folder_of(options.validation) != folder) {
    throw DataError(
        fmt::format("dataset.stage_to: the paths in {} and {} are relative to different folders, but only one folder can be copied; make "
                    "the paths in both files relative to one folder and set dataset.root to it, or remove dataset.stage_to",
                    options.train, options.validation));
  }
  return folder;
}

// The images of both files, relative to their common folder.
std::vector<fs::path> all_images(const CsvOptions& options) {
  std::set<std::string> paths;
  for (const auto split : {data::Split::kTrain, data::Split::kValidation}) {
    const auto file = file_of(options, split);
    if (file.empty()) continue;
    const auto use = [&](const Row& row) {
      const fs::path path = row.path;
      if (path.is_absolute() || std::ranges::find(path, fs::path("..")) != path.end()) {
        throw DataError(
            fmt::format("dataset.stage_to: {}: line {} has the path {}, but only files in {} are copied; make the path relative to that "
                        "folder and without .., set dataset.root to a folder that contains all images, or remove dataset.stage_to",
                        file.string(), row.line, row.path, common_folder(options).string()));
      }
      paths.insert(path.lexically_normal().string());
    };
    with_prefix<DataError>(key_of(split), [&] { Table(options, split).read(use); });
  }
  return {paths.begin(), paths.end()};
}

data::DatasetInfo info_of(const CsvOptions& options, const Targets& targets) {
  auto info = image_files_info(targets.class_names, decoding_of(options.files, targets.first_images));
  info.is_multi_label = options.targets == CsvTargets::kClasses;
  if (options.targets == CsvTargets::kNumbers) {
    info.num_targets = targets.num_targets;
    info.target_names = targets.columns;
  }
  return info;
}

// Paths that several lines name.
struct RepeatedPaths {
  std::unordered_map<size_t, int64_t> lines = {};  // the first line of each path
  int64_t num_repeated = 0;
  int64_t num_in_train = 0;  // of a validation file
  std::string first_repeated = {};
  std::string first_in_train = {};

  void add(const Row& row, const fs::path& folder, const std::vector<size_t>& train) {
    const auto hash = hash_of(folder / row.path);
    const auto [first, is_new] = lines.emplace(hash, row.line);
    if (!is_new && num_repeated++ == 0) first_repeated = fmt::format("line {} ({}, as in line {})", row.line, row.path, first->second);
    if (is_new && std::ranges::binary_search(train, hash) && num_in_train++ == 0) first_in_train = row.path;
  }
};

ImageList read_images(const CsvOptions& options, const Targets& targets, data::Split split) {
  std::optional<Table> found(std::in_place, options, split);
  // Selects the columns by their names in the training file, because the validation file may have another order.
  auto same_columns = options;
  same_columns.columns = targets.columns;
  const auto& names = found->names();
  if (!targets.columns.empty() && !names.empty() && names != targets.columns) found.emplace(same_columns, split);
  const auto& table = *found;
  if (targets.class_names.empty() && static_cast<int64_t>(table.num_fields()) != targets.num_targets) {
    throw std::runtime_error(fmt::format("{} has {} per image, but {} has {}; give both files the same columns",
                                         file_of(options, split).string(), counted(table.num_fields(), "number"), options.train,
                                         targets.num_targets));
  }
  std::unordered_map<std::string, int64_t> labels;
  for (const auto& name : targets.class_names) labels.emplace(name, static_cast<int64_t>(labels.size()));
  const auto label_of = [&](const Row& row, const std::string& name) {
    const auto label = labels.find(name);
    if (label == labels.end()) throw_unknown_label(options, split, row.line, name);
    return label->second;
  };
  ImageList images(folder_of(options, split));
  RepeatedPaths repeated;
  const auto in_train = split == data::Split::kTrain ? std::vector<size_t>() : *targets.paths;
  table.read([&](const Row& row) {
    repeated.add(row, folder_of(options, split), in_train);
    if (options.targets == CsvTargets::kClass) {
      images.add(row.path, label_of(row, row.fields[0]));
    } else if (!targets.columns.empty() || options.targets == CsvTargets::kNumbers) {
      images.add(row.path, values_of(options, file_of(options, split), targets, row));
    } else {
      std::vector<double> values(targets.class_names.size());
      for (const auto& name : split_list(row.fields[0], options.separator)) values[static_cast<size_t>(label_of(row, name))] = 1;
      images.add(row.path, values);
    }
    if (!row.group.empty()) images.set_group(row.group);
  });
  std::vector<std::string> warnings;
  if (repeated.num_repeated > 0) {
    warnings.push_back(
        fmt::format("{} with the path of an earlier line, such as {}: each line is used as an image of its own; keep one line per image",
                    counted(repeated.num_repeated, "line"), repeated.first_repeated));
  }
  if (repeated.num_in_train > 0) {
    warnings.push_back(
        fmt::format("{} that {} lists too, such as {}: the results of the validation will be too good; remove them from one of the files",
                    counted(repeated.num_in_train, "image"), options.train, repeated.first_in_train));
  }
  images.set_warning(join(warnings, "; "));
  return images;
}

std::unique_ptr<data::Dataset> open_csv(const CsvOptions& options, const Targets& targets, const data::DatasetInfo& info, data::Split split,
                                        Logger& logger) {
  const auto file = file_of(options, split);
  if (file.empty()) throw DataError("dataset.validation: it is empty; set it to the CSV file of the validation images");
  auto images = with_prefix<DataError>(key_of(split), [&] { return read_images(options, targets, split); });
  return open_image_files(info, std::move(images), file, logger);
}

}  // namespace

void CsvOptions::describe(KeyTable& keys) {
  keys.add("train", train,
           {.doc = "The CSV file of the training images, with a line path,label for each, or \"a path, with a comma\",label. Labels are "
                   "names or numbers. The first line may be a header with the names of the columns, such as path,label or image,level.",
            .required = true,
            .is_path = true,
            .may_be_empty = false});
  keys.add("validation", validation,
           {.doc = "The CSV file of the validation images; empty: some of the training images are held out.", .is_path = true});
  keys.add("root", root,
           {.doc = "The folder to which relative paths in the CSV files refer; empty: the folder of the CSV file.", .is_path = true});
  keys.set_facts("train", {.affects_features = true, .samples = KeyFacts::Samples::kTraining});
  keys.set_facts("validation", {.affects_features = true, .samples = KeyFacts::Samples::kValidation});
  keys.set_facts("root", {.affects_features = true, .samples = KeyFacts::Samples::kAll});
  keys.add_choice<CsvTargets>(
      "targets", targets, {{"class", CsvTargets::kClass}, {"classes", CsvTargets::kClasses}, {"numbers", CsvTargets::kNumbers}},
      {.doc = "The targets of an image. class: one label. classes: any number of classes, in one column of names (cat;dog, see separator), "
              "or in one column per class with 1 or 0. numbers: one or more numbers, each in its own column."});
  keys.add("columns", columns,
           {.doc = "The names of the target columns in the first line of the CSV files; []: all columns but the path and group_column.",
            .may_be_empty = false});
  keys.add("separator", separator,
           {.doc = "The text between the names of an image's classes, if targets is classes and they are in one column.",
            .may_be_empty = false});
  files.describe(keys);
  keys.add(
      "group_column", group_column,
      {.doc = "The column that names an image's group, such as its patient: dataset.split keeps images with the same value in one part. "
              "Empty: no such column."});
}

data::DatasetFactory csv_factory(const CsvOptions& options) {
  data::DatasetFactory factory{
      .info = info_of(options, {}), .open = {}, .has_validation = !options.validation.empty(), .missing_key = "train"};
  Targets targets;
  try {
    targets = read_targets(options);
    factory.info = info_of(options, targets);
  } catch (const std::runtime_error& reason) {
    factory.info.num_classes = options.targets == CsvTargets::kNumbers ? 0 : data::kUnknownClasses;
    factory.info.num_targets = data::kUnknownClasses;
    factory.missing = reason.what();
  }
  factory.default_transforms = imagenet_transforms(factory.info.decoding.mode);
  factory.open = [options, targets = std::move(targets), info = factory.info](data::Split split, Logger& logger) {
    return open_csv(options, targets, info, split, logger);
  };
  factory.locate = [options](Logger&) { return common_folder(options); };
  factory.list_files = [options] { return all_images(options); };
  // Only the images are in `folder`; the CSV files are read from their original place.
  factory.in_folder = [options](const fs::path& folder) {
    auto moved = options;
    moved.root = folder.string();
    return csv_factory(moved);
  };
  return refuse_missing(std::move(factory));
}

void add_csv(DatasetRegistry& registry) {
  registry.add<CsvOptions>("csv", "Image files of any size, with their classes or numbers in CSV files with lines path,label.",
                           csv_factory);
}

namespace {

// Reads a text record by record. Throws std::runtime_error without the file's name.
class RecordReader {
 public:
  explicit RecordReader(std::string_view text) : rest_(text) {}

  // Returns false at the end. An empty line is a record of one empty field.
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
          fmt::format("line {} has text after a closing quotation mark; write \"\" for a quotation mark inside a field", next_line_));
    }
    return true;
  }
  const std::vector<std::string>& fields() const { return fields_; }
  int64_t line() const { return line_; }  // the line on which the record begins

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
        throw std::runtime_error(fmt::format("line {} has an opening quotation mark without a closing one; add it", line_));
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

// The fields of a header, in which people write a space after each comma.
std::vector<std::string> names_in(const RecordReader& reader) {
  std::vector<std::string> names;
  for (const auto& field : reader.fields()) names.emplace_back(without_outer_spaces(field));
  return names;
}

bool is_empty_line(const RecordReader& reader) { return reader.fields().size() == 1 && reader.fields()[0].empty(); }

// For a file with one column of labels: whether the first record is a header. `reader`: at that record; `folder`: as from folder_of().
bool is_header_of_labels(RecordReader reader, const fs::path& folder) {
  const auto header = reader.fields();
  std::error_code unknown;
  if (is_image_name(header[0]) || fs::is_regular_file(folder / header[0], unknown)) return false;
  if (lower_case(without_outer_spaces(header[1])) == "label") return true;
  while (reader.next()) {
    // A record equal to the header does not count: concatenated files repeat the header.
    const auto& fields = reader.fields();
    if (fields.size() > 1 && fields[1] == header[1] && fields[0] != header[0]) return false;
  }
  return true;
}

// Implements the rules in csv.h.
bool is_header(const RecordReader& first, const CsvOptions& options, const fs::path& folder) {
  const auto& fields = first.fields();
  const bool names_columns =
      !options.columns.empty() || !options.group_column.empty() || (options.targets == CsvTargets::kClasses && fields.size() > 2);
  if (names_columns) {
    if (!is_image_name(fields[0])) return true;
    throw std::runtime_error(
        fmt::format("line {} is an image, but dataset.columns, dataset.group_column and columns of classes need a header with the names of "
                    "the columns, "
                    "such as path,cat,dog; add it",
                    first.line()));
  }
  if (options.targets != CsvTargets::kNumbers) return is_header_of_labels(first, folder);
  std::error_code unknown;
  return !is_image_name(fields[0]) && !fs::is_regular_file(folder / fields[0], unknown);
}

void check_number_of_fields(const RecordReader& reader, const CsvOptions& options, size_t num_fields) {
  const auto& fields = reader.fields();
  const bool is_path_and_label = options.targets == CsvTargets::kClass && options.columns.empty() && options.group_column.empty();
  const auto expected = is_path_and_label ? size_t{2} : std::max<size_t>(num_fields, 2);
  if (fields.size() == expected) return;
  throw std::runtime_error(
      fmt::format("line {} has {} instead of {}; {}", reader.line(), counted(fields.size(), "field"),
                  is_path_and_label ? "path,label" : std::to_string(expected),
                  fields.size() < expected
                      ? "add what is missing after a comma"
                      : "put fields that contain commas in quotation marks, or choose the columns of the targets with dataset.columns"));
}

void check_label(const RecordReader& reader, const std::string& label) {
  if (is_utf8(label)) return;
  throw std::runtime_error(
      fmt::format("line {} has the label \"{}\", which is not valid UTF-8; save the file as UTF-8", reader.line(), label));
}

Table::Table(const CsvOptions& options, data::Split split)
    : options_(options), is_train_(split == data::Split::kTrain), file_(file_of(options, split)), folder_(folder_of(options, split)) {
  try {
    text_ = read_file(file_);
  } catch (const Error& error) {
    throw std::runtime_error(fmt::format("{}; give a CSV file with a line path,label for each image", error.what()));
  }
  with_prefix<std::runtime_error>(file_.string(), [this] { find_columns(); });
}

void Table::find_columns() {
  const auto text = without_byte_order_mark(text_);
  if (text.find('\0') != std::string_view::npos)
    throw std::runtime_error("it contains null bytes, as UTF-16 text and binary files do; save it as UTF-8 text");
  RecordReader reader(text);
  do {
    if (!reader.next()) throw std::runtime_error("it lists no images; add a line path,label for each image");
  } while (is_empty_line(reader));
  if (reader.fields()[0].empty() && reader.fields().size() > 2) {
    throw std::runtime_error(
        fmt::format("the first field of line {} is empty, as in files that pandas writes with its index; write the "
                    "file with to_csv(index=False), or begin the line with the name of the column of paths",
                    reader.line()));
  }
  check_number_of_fields(reader, options_, reader.fields().size());
  if (is_header(reader, options_, folder_)) header_ = names_in(reader);
  const auto find = [&](const std::string& name, const char* key) {
    const auto column = std::ranges::find(header_.begin() + 1, header_.end(), name);
    if (column == header_.end()) {
      throw std::runtime_error(fmt::format("line {} has no column \"{}\", only {}; correct that line or dataset.{}", reader.line(), name,
                                           join(std::span(header_).subspan(1), ", "), key));
    }
    return static_cast<size_t>(column - header_.begin());
  };
  for (const auto& name : options_.columns) {
    if (std::ranges::count(options_.columns, name) > 1) {
      throw std::runtime_error(fmt::format("dataset.columns contains \"{}\" twice; remove one of them", name));
    }
    fields_.push_back(find(name, "columns"));
  }
  // Only training images are divided into groups.
  const bool has_groups = is_train_ || std::ranges::find(header_, options_.group_column) != header_.end();
  if (!options_.group_column.empty() && has_groups) group_ = find(options_.group_column, "group_column");
  for (size_t i = 1; options_.columns.empty() && i < reader.fields().size(); ++i) {
    if (i != group_) fields_.push_back(i);
  }
  if (options_.targets == CsvTargets::kClass && fields_.size() != 1) {
    throw std::runtime_error(
        fmt::format("it has {} target columns, but dataset.targets: class needs one; choose one with dataset.columns, or set "
                    "dataset.targets to classes or numbers",
                    fields_.size()));
  }
  for (const auto field : fields_) {
    if (header_.empty()) return;
    check_label(reader, header_[field]);
    if (std::ranges::find(names_, header_[field]) != names_.end()) {
      throw std::runtime_error(fmt::format("line {} has two columns named \"{}\"; rename one of them", reader.line(), header_[field]));
    }
    names_.push_back(header_[field]);
  }
}

void Table::read(const std::function<void(const Row&)>& use) const {
  with_prefix<std::runtime_error>(file_.string(), [&] {
    RecordReader reader(without_byte_order_mark(text_));
    size_t num_fields = 0;
    int64_t num_rows = 0;
    while (reader.next()) {
      const auto& fields = reader.fields();
      if (is_empty_line(reader)) continue;
      if (num_fields == 0) num_fields = fields.size();
      check_number_of_fields(reader, options_, num_fields);
      if (fields[0].empty()) throw std::runtime_error(fmt::format("line {} has no path; add it", reader.line()));
      if (names_in(reader) == header_) continue;
      Row row{.line = reader.line(), .path = fields[0]};
      if (group_ && fields[*group_].empty()) {
        throw std::runtime_error(fmt::format("line {} has an empty value in the column {} of dataset.group_column; add it", reader.line(),
                                             options_.group_column));
      }
      if (group_) row.group = fields[*group_];
      for (const auto field : fields_) {
        check_label(reader, fields[field]);
        row.fields.push_back(fields[field]);
      }
      if (options_.targets == CsvTargets::kClass && row.fields[0].empty()) {
        throw std::runtime_error(fmt::format("line {} has no label; add it", reader.line()));
      }
      use(row);
      ++num_rows;
    }
    if (num_rows == 0) throw std::runtime_error("it lists no images; add a line path,label for each image");
  });
}

}  // namespace

std::vector<std::string> first_line_of(const fs::path& file) {
  try {
    const auto text = read_file(file);
    RecordReader reader(without_byte_order_mark(text));
    while (reader.next()) {
      if (!is_empty_line(reader)) return reader.fields();
    }
  } catch (const std::runtime_error&) {
    // Table reports the reason when it reads the file.
  }
  return {};
}

}  // namespace trainer::datasets
