#pragma once
// The page of `trainer report`: a single HTML text that needs no other files.

#include <string>
#include <string_view>

#include "report/history/run_record.h"

namespace trainer::report {

// `data`: from make_data(). No text in it can become markup or script.
std::string make_page(const history::Json& data);

// `text` escaped for HTML, also within an attribute in double quotes.
std::string escaped(std::string_view text);

// The files of the page, which cmake/EmbedFiles.cmake embeds in the program.

extern const std::string_view kPageHtml;
extern const std::string_view kPageCss;
extern const std::string_view kValuesJs;
extern const std::string_view kCurvesJs;
extern const std::string_view kClassesJs;
extern const std::string_view kPageJs;
extern const std::string_view kChartCss;  // uPlot's
extern const std::string_view kChartJs;

}  // namespace trainer::report
