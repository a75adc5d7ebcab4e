#include "report/report_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>

#include "report/evaluation.h"
#include "report/history/compare.h"
#include "report/history/metrics_file.h"

namespace trainer::report {
namespace {

using history::Json;
using history::RunRecord;

// Of all runs together, for each measurement; a run alone has at most kMostPoints.
constexpr size_t kMostPointsOfAll = 6000;
constexpr size_t kMostPoints = 1500;
constexpr size_t kFewestPoints = 100;
constexpr size_t kMostWarnings = 50;

// With the digits that a chart can show.
Json rounded(double value) {
  if (!std::isfinite(value)) return {};
  return std::strtod(fmt::format("{:.5g}", value).c_str(), nullptr);
}

Json series_of(const std::map<std::string, history::Series>& all, size_t max_points) {
  Json result = Json::object();
  for (const auto& [name, series] : all) {
    const auto few = shortened(series, max_points);
    auto values = Json::array();
    for (const auto value : few.values) values.push_back(rounded(value));
    result[name] = {{"steps", few.steps}, {"values", std::move(values)}};
  }
  return result;
}

Json warnings_of(const RunRecord& run) {
  auto result = Json::array();
  const auto first = run.warnings.size() - std::min(run.warnings.size(), kMostWarnings);
  for (auto i = first; i < run.warnings.size(); ++i)
    result.push_back({{"step", run.warnings[i].step}, {"message", run.warnings[i].message}});
  return result;
}

Json with_pictures(Json evaluation, const RunRecord& run, const PictureReader& read_pictures) {
  if (evaluation.is_null() || evaluation["mistakes"].empty() || evaluation["split"] != "validation" || !read_pictures) return evaluation;
  std::vector<int64_t> samples;
  for (const auto& mistake : evaluation["mistakes"]) samples.push_back(mistake["index"].get<int64_t>());
  const auto pictures = read_pictures(run, samples);
  for (size_t i = 0; i < std::min(samples.size(), pictures.data_urls.size()); ++i) {
    if (!pictures.data_urls[i].empty()) evaluation["mistakes"][i]["image"] = pictures.data_urls[i];
    if (!pictures.names[i].empty()) evaluation["mistakes"][i]["name"] = pictures.names[i];
  }
  if (!pictures.note.empty()) evaluation["images_note"] = pictures.note;
  return evaluation;
}

Json rows_of(const std::vector<history::Row>& rows) {
  auto result = Json::array();
  for (const auto& row : rows) {
    auto values = Json::array();
    for (const auto& value : row.values) values.push_back(value ? Json(*value) : Json());
    result.push_back({{"name", row.name}, {"values", std::move(values)}, {"differs", row.differs()}});
  }
  return result;
}

}  // namespace

Json make_data(std::span<const RunRecord> runs, const DataOptions& options) {
  Json data = {{"generated", options.now}, {"live", options.is_live}, {"runs", Json::array()}};
  const auto max_points = std::clamp(kMostPointsOfAll / std::max<size_t>(1, runs.size()), kFewestPoints, kMostPoints);
  const auto names = history::names_of(runs);
  for (size_t i = 0; i < runs.size(); ++i) {
    const auto& run = runs[i];
    Json best;
    if (run.best) {
      best = {{"metric", run.best->metric},
              {"value", rounded(run.best->value)},
              {"higher_is_better", run.best->higher_is_better},
              {"epoch", run.best->epoch},
              {"step", run.best->step}};
    }
    data["runs"].push_back({{"name", names[i]},
                            {"state", to_string(run.state)},
                            {"message", run.message},
                            {"progress", progress_of(run)},
                            {"step", run.step},
                            {"steps_per_epoch", run.steps_per_epoch},
                            {"num_parameters", run.num_parameters},
                            {"started", run.started},
                            {"seconds", run.seconds},
                            {"images_per_second", rounded(run.images_per_second)},
                            {"where", place_of(run)},
                            {"best", std::move(best)},
                            {"warnings", warnings_of(run)},
                            {"train", series_of(run.train, max_points)},
                            {"validation", series_of(run.validation, max_points)},
                            {"evaluation", with_pictures(make_evaluation(run), run, options.read_pictures)},
                            {"best_evaluation", with_pictures(make_best_evaluation(run), run, options.read_pictures)}});
  }
  std::set<std::string> percentages;
  for (const auto& run : runs) percentages.insert(run.percentages.begin(), run.percentages.end());
  data["percentages"] = percentages;
  data["config"] = rows_of(history::config_rows(runs));
  data["environment"] = rows_of(history::environment_rows(runs));
  return data;
}

history::Series shortened(const history::Series& series, size_t max_points) {
  const auto size = series.values.size();
  if (size <= max_points) return series;
  std::set<size_t> kept = {0, size - 1};
  const auto num_parts = std::max<size_t>(1, max_points / 2);
  for (size_t part = 0; part < num_parts; ++part) {
    const auto begin = part * size / num_parts;
    auto least = begin;
    auto greatest = begin;
    for (auto i = begin; i < (part + 1) * size / num_parts; ++i) {
      const auto value = series.values[i];
      if (std::isnan(series.values[least]) || value < series.values[least]) least = i;
      if (std::isnan(series.values[greatest]) || value > series.values[greatest]) greatest = i;
    }
    kept.insert({least, greatest});
  }
  history::Series result;
  for (const auto i : kept) {
    result.steps.push_back(series.steps[i]);
    result.values.push_back(series.values[i]);
  }
  return result;
}

}  // namespace trainer::report
