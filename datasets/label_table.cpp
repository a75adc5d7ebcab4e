#include "datasets/label_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "datasets/image_folder_listing.h"
#include "trainer/error.h"

namespace trainer::datasets {
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
