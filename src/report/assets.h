#pragma once
// The files of the page, which cmake/EmbedFiles.cmake writes into the program.

#include <string_view>

namespace trainer::report {

extern const std::string_view kPageHtml;
extern const std::string_view kPageCss;
extern const std::string_view kValuesJs;
extern const std::string_view kCurvesJs;
extern const std::string_view kClassesJs;
extern const std::string_view kPageJs;
extern const std::string_view kChartCss;  // uPlot's
extern const std::string_view kChartJs;

}  // namespace trainer::report
