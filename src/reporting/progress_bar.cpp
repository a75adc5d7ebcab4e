#include "reporting/progress_bar.h"

#include <fmt/format.h>

#include <algorithm>

#include "reporting/values.h"

namespace trainer::reporting {
namespace {

constexpr auto kDrawInterval = std::chrono::milliseconds(100);
// Moves to the beginning of the line and erases to its end.
constexpr const char* kErase = "\r\x1b[K";

constexpr size_t kGap = 2;          // columns between two cells, and before the first one, for the mark of the best epoch
constexpr size_t kMetricWidth = 7;  // "100.00%", "1.2e-07"
constexpr const char* kNone = "-";

// Columns with the lowest importance are omitted first on a narrow terminal. Earlier metrics are more important than later ones.
enum ColumnImportance : int {
  kEmaColumn = 10,
  kFurtherValidationColumns = 20,
  kRateColumn = 30,
  kLrColumn = 31,
  kTimeColumn = 32,
  kFurtherTrainColumns = 50,
  kTrainColumn = 90,
  kValidationColumn = 100
};

std::string cell(const Metrics* metrics, const MetricInfo& info) {
  const auto* metric = metrics == nullptr ? nullptr : find_metric(*metrics, info.name);
  if (metric == nullptr) return kNone;
  return info.format == MetricFormat::kPercent ? format_value(*metric) : number_of_width(metric->value, kMetricWidth);
}

// "--- train ----" with this width.
std::string group_title(std::string name, size_t width) {
  if (name == "validation" && name.size() + 2 > width) name = "val";
  return fmt::format("{:-^{}}", fmt::format(" {} ", name), width);
}

}  // namespace

std::string format_bar(const Fields& fields, double fraction, size_t width, bool colour) {
  constexpr size_t kShortest = 5;
  constexpr size_t kWanted = 10;
  constexpr size_t kLongest = 20;
  constexpr size_t kFrame = 3;  // " [" and "]"
  std::string head = fmt::format("{:3.0f}%", 100 * fraction);
  const std::string separator = "  ";
  const size_t wanted = head.size() + kFrame + kWanted + separator.size();
  const auto text = separator + to_line(fitted(fields, width - std::min(width, wanted)));

  const size_t used = head.size() + text.size() + kFrame;
  if (used + kShortest <= width) {
    const size_t cells = std::min(kLongest, width - used);
    const auto full = std::min(cells, static_cast<size_t>(fraction * static_cast<double>(cells)));
    head += " [" + std::string(full, '=') + std::string(cells - full, ' ') + "]";
  }
  const std::string tail = text.substr(0, width - std::min(width, head.size()));
  return colour ? "\x1b[2m" + head + "\x1b[0m" + tail : head + tail;
}

bool ProgressBar::due(Clock::time_point now) const {
  const std::lock_guard lock(mutex_);
  return !is_drawn_ || now - drawn_at_ >= kDrawInterval;
}

void ProgressBar::draw(const Fields& fields, double fraction, Clock::time_point now) {
  constexpr size_t kWithoutTerminal = 79;
  const std::lock_guard lock(mutex_);
  write(kErase + format_bar(fields, fraction, line_width(stream_).value_or(kWithoutTerminal), colour_));
  is_drawn_ = true;
  drawn_at_ = now;
}

void ProgressBar::clear() {
  const std::lock_guard lock(mutex_);
  erase();
}

void ProgressBar::print_above(const std::function<void()>& print) {
  const std::lock_guard lock(mutex_);
  erase();
  print();
}

void ProgressBar::erase() {
  if (is_drawn_) write(kErase);
  is_drawn_ = false;
}

void ProgressBar::write(const std::string& text) const {
  std::fwrite(text.data(), 1, text.size(), stream_);
  std::fflush(stream_);
}

std::vector<EpochTable::Column> EpochTable::columns_of(const EpochEvent& event) const {
  std::vector<Column> columns;
  const auto total = std::to_string(event.num_epochs);
  columns.push_back({"", "epoch", std::max<size_t>(2 * total.size() + 1, 5), Field::kAlways, fmt::format("{}/{}", event.epoch + 1, total)});
  // `first`, `second` and `further`: the importance of the first metric, of the second, and of the others.
  const auto add = [&](const char* group, const std::vector<MetricInfo>& infos, const Metrics* metrics, int first, int second,
                       int further) {
    int number = 0;
    for (const auto& info : infos) {
      if (info.is_detail) continue;
      const int importance = number == 0 ? first : number == 1 ? second : further - number;
      columns.push_back({group, info.name, std::max(kMetricWidth, info.name.size()), importance, cell(metrics, info)});
      ++number;
    }
  };
  const auto& validation = event.validation;
  add("train", metrics_.train, &event.train_metrics, kTrainColumn, kFurtherTrainColumns, kFurtherTrainColumns);
  add("validation", metrics_.validation, validation ? &validation->metrics : nullptr, kValidationColumn, kValidationColumn - 1,
      kFurtherValidationColumns);
  if (with_ema_) add("ema", metrics_.validation, validation ? &validation->ema_metrics : nullptr, kEmaColumn, kEmaColumn, kEmaColumn);
  const double seconds = event.seconds + (validation ? validation->seconds : 0);
  columns.push_back({"", "lr", 7, kLrColumn, format_lr(event.lr)});
  columns.push_back({"", "time", 6, kTimeColumn, format_seconds(seconds)});
  columns.push_back({"", "img/s", 6, kRateColumn, format_rate(event.images_per_second)});
  return columns;
}

std::string EpochTable::heading(const std::vector<Column>& columns) const {
  std::string groups;
  std::string titles;
  for (size_t i = 0; i < columns.size(); ++i) {
    const auto& column = columns[i];
    titles += std::string(kGap, ' ') + fmt::format("{:>{}}", column.title, column.width);
    if (i > 0 && !column.group.empty() && column.group == columns[i - 1].group) continue;
    size_t width = column.width;
    for (size_t j = i + 1; j < columns.size() && !column.group.empty() && columns[j].group == column.group; ++j) {
      width += kGap + columns[j].width;
    }
    groups += std::string(kGap, ' ') + (column.group.empty() ? std::string(width, ' ') : group_title(column.group, width));
  }
  constexpr std::string_view kLegend = "* best";
  if (!metrics_.validation.empty()) groups.replace(0, kLegend.size(), kLegend);
  groups.erase(groups.find_last_not_of(' ') + 1);
  return groups + '\n' + titles + '\n';
}

std::string EpochTable::lines(const EpochEvent& event, size_t width) {
  auto columns = columns_of(event);
  omit_least_important(columns, width, [](const std::vector<Column>& all) {
    size_t sum = 0;
    for (const auto& column : all) sum += kGap + column.width;
    return sum;
  });
  std::string result;
  if (auto now = heading(columns); now != heading_) result = heading_ = std::move(now);
  const bool is_best = event.validation && event.validation->is_best;
  std::string row = is_best ? "*" : " ";
  row += " ";
  for (const auto& column : columns) row += fmt::format("{}{:>{}}", &column == columns.data() ? "" : "  ", column.text, column.width);
  return result + (is_best && colour_ ? "\x1b[1m" + row + "\x1b[0m" : row) + '\n';
}

}  // namespace trainer::reporting
