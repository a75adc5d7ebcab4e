#pragma once
// What the page of `trainer report` shows, as JSON; src/report/*.js read it.

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "report/history/run_record.h"

namespace trainer::report {

// The pictures of wrongly classified samples.
struct Pictures {
  std::vector<std::string> data_urls = {};  // of each of the samples; empty: there is no picture of it
  std::vector<std::string> names = {};      // of their files, as many; empty: a sample has only its index
  std::string note = {};                    // why pictures are missing; empty: none is
};
// Called with a run and the indices of samples of its validation set. Does not throw.
using PictureReader = std::function<Pictures(const history::RunRecord& run, const std::vector<int64_t>& samples)>;

struct DataOptions {
  double now = 0;        // Unix seconds
  bool is_live = false;  // the page asks for newer data
  PictureReader read_pictures = {};
  // What crossval.json of each cross-validation holds whose folds are among the runs, and its `name`.
  std::vector<history::Json> crossvals = {};
};

// Long series are shortened, so that the data of a few runs stays below 2 MB however long they are.
history::Json make_data(std::span<const history::RunRecord> runs, const DataOptions& options);

// At most about `max_points` of the points: the first, the last, and the least and the greatest value of each of equally long parts, so
// that no peak is lost. Of NaNs only those of a part that has no other values stay.
history::Series shortened(const history::Series& series, size_t max_points);

// The results of each class for the page: from evaluation.json or, for runs of earlier versions, the confusion matrix of summary.json. Null
// if the run has neither. What is damaged is left out. With more than kMostMatrixClasses classes the most confused pairs stand for the
// matrix.
history::Json make_evaluation(const history::RunRecord& run);
// The same from best_evaluation.json; null also if the best validation is the latest one.
history::Json make_best_evaluation(const history::RunRecord& run);

// What calibration.json tells, for the page. Null if the run was not calibrated. What is damaged is left out.
history::Json make_calibration(const history::RunRecord& run);

inline constexpr size_t kMostMatrixClasses = 50;

}  // namespace trainer::report
