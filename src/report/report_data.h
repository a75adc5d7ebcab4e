#pragma once
// The data of the page of `trainer report`, as JSON; src/report/*.js read it.

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "report/history/run_record.h"

namespace trainer::report {

// The images of wrongly classified samples.
struct Pictures {
  std::vector<std::string> data_urls = {};  // the image of each sample; empty: it cannot be shown
  std::vector<std::string> heatmaps = {};   // the image of each sample under its heat map; empty: there is none
  std::vector<std::string> names = {};      // of each sample's file; empty: the sample has only an index
  std::string note = {};                    // why images are missing; empty: none is missing
};
// Returns the pictures of `evaluation["mistakes"]` of the run, an evaluation of make_evaluation(). Does not throw.
using PictureReader = std::function<Pictures(const history::RunRecord& run, const history::Json& evaluation)>;

struct DataOptions {
  double now = 0;        // Unix seconds
  bool is_live = false;  // the page requests newer data
  PictureReader read_pictures = {};
  // The content of crossval.json of each cross-validation whose folds are among the runs, with the name of its folder as `name`.
  std::vector<history::Json> crossvals = {};
};

// Long series are shortened, so that the data of a few runs stays below 2 MB.
history::Json make_data(std::span<const history::RunRecord> runs, const DataOptions& options);

// Reduces the series to about `max_points` points or fewer: the first, the last, and the least and the greatest value of each of equally
// long parts, so that the peaks stay visible. A NaN is kept only at both ends and in a part without other values.
history::Series shortened(const history::Series& series, size_t max_points);

// The results of the latest evaluation for the page, from evaluation.json; null without it. Damaged values are skipped. With more than
// kMostMatrixClasses classes, the confusion matrix is left out, but not the pairs of classes that are confused most often.
history::Json make_evaluation(const history::RunRecord& run);
// The same from best_evaluation.json; also null if the best validation is the latest one.
history::Json make_best_evaluation(const history::RunRecord& run);

// The content of calibration.json, for the page. Null if the run was not calibrated. Damaged values are skipped.
history::Json make_calibration(const history::RunRecord& run);

inline constexpr size_t kMostMatrixClasses = 50;

}  // namespace trainer::report
