#pragma once

#include "report/history/run_record.h"

namespace trainer::report {

// The results of each class for the page: from evaluation.json or, for runs of earlier versions, the confusion matrix of summary.json. Null
// if the run has neither. What is damaged is left out. With more than kMostMatrixClasses classes the most confused pairs stand for the
// matrix.
history::Json make_evaluation(const history::RunRecord& run);
// The same from best_evaluation.json; null also if the best validation is the latest one.
history::Json make_best_evaluation(const history::RunRecord& run);

inline constexpr size_t kMostMatrixClasses = 50;

}  // namespace trainer::report
