#include <fmt/format.h>
#include <fmt/ranges.h>

#include <fstream>
#include <map>

#include "base/file.h"
#include "reporting/sinks.h"

namespace trainer::reporting {
namespace {

std::vector<std::string> make_header(const MetricColumns& columns) {
  std::vector<std::string> header = {"epoch", "step", "lr"};
  for (const auto& info : columns.train) header.push_back("train_" + info.name);
  for (const auto& info : columns.validation) header.push_back("validation_" + info.name);
  for (const auto& info : columns.validation) {
    if (!info.is_detail) header.push_back("validation_ema_" + info.name);
  }
  header.insert(header.end(), {"seconds", "images_per_second"});
  return header;
}

std::vector<std::string> read_header(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  std::vector<std::string> header;
  for (size_t begin = 0; begin <= line.size();) {
    const size_t end = std::min(line.find(',', begin), line.size());
    header.push_back(line.substr(begin, end - begin));
    begin = end + 1;
  }
  return header;
}

class Csv : public Sink {
 public:
  Csv(const std::filesystem::path& file, const MetricColumns& columns) : file_(file) {
    if (std::filesystem::file_size(file) > 0) {
      header_ = read_header(file);
    } else {
      header_ = make_header(columns);
      file_.write_line(fmt::format("{}", fmt::join(header_, ",")));
    }
  }

  void on_epoch(const EpochEvent& event) override {
    // fmt writes doubles so that reading them gives the same value.
    std::map<std::string, std::string> cells = {{"epoch", fmt::format("{}", event.epoch)},
                                                {"step", fmt::format("{}", event.step)},
                                                {"lr", fmt::format("{}", event.lr)},
                                                {"seconds", fmt::format("{}", event.seconds)},
                                                {"images_per_second", fmt::format("{}", event.images_per_second)}};
    const auto add = [&](const std::string& prefix, const Metrics& metrics) {
      for (const auto& metric : metrics) cells[prefix + metric.info.name] = fmt::format("{}", metric.value);
    };
    add("train_", event.train_metrics);
    if (event.validation) {
      add("validation_", event.validation->metrics);
      add("validation_ema_", event.validation->ema_metrics);
    }
    std::vector<std::string> row;
    for (const auto& column : header_) row.push_back(cells[column]);
    file_.write_line(fmt::format("{}", fmt::join(row, ",")));
  }

 private:
  LineFile file_;
  std::vector<std::string> header_;
};

}  // namespace

std::unique_ptr<Sink> make_csv(const std::filesystem::path& file, const MetricColumns& columns) {
  return std::make_unique<Csv>(file, columns);
}

}  // namespace trainer::reporting
