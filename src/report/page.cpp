#include "report/page.h"

#include <fmt/format.h>

#include <array>

#include "base/text.h"

namespace trainer::report {
namespace {

std::string title_of(const history::Json& data) {
  const auto& runs = data.at("runs");
  const auto name = runs.size() == 1 ? runs[0].at("name").get<std::string>() : std::to_string(runs.size()) + " runs";
  return escaped(printable_line(name) + " – training report");
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string result;
  for (const char byte : text) {
    constexpr std::string_view kSpecial = "&<>\"";
    constexpr std::array kEntities = {"&amp;", "&lt;", "&gt;", "&quot;"};
    const auto at = kSpecial.find(byte);
    result += at == kSpecial.npos ? std::string(1, byte) : kEntities[at];
  }
  return result;
}

std::string make_page(const history::Json& data) {
  // The element that holds the data would end at any "</script" in its text.
  std::string json;
  for (const char byte : data.dump(-1, ' ', false, history::Json::error_handler_t::replace)) {
    byte == '<' ? json += "\\u003c" : json += byte;
  }
  // connect-src of the Content-Security-Policy: a served page asks its server for new data; a page in a file makes no requests.
  const auto* connect = data.at("live").get<bool>() ? "'self'" : "'none'";
  return fmt::format(fmt::runtime(kPageHtml), fmt::arg("title", title_of(data)), fmt::arg("connect", connect), fmt::arg("style", kPageCss),
                     fmt::arg("chart_style", kChartCss), fmt::arg("chart_script", kChartJs), fmt::arg("values", kValuesJs),
                     fmt::arg("curves", kCurvesJs), fmt::arg("classes", kClassesJs), fmt::arg("script", kPageJs), fmt::arg("data", json));
}

}  // namespace trainer::report
