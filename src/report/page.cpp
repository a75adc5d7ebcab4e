#include "report/page.h"

#include <stdexcept>
#include <string_view>

#include "base/text.h"

namespace trainer::report {
namespace {

// Returns JSON text for a script element, without "<", because the element would end at any "</script" in the text.
std::string json_in_html(const history::Json& data) {
  const auto text = data.dump(-1, ' ', false, history::Json::error_handler_t::replace);
  std::string result;
  result.reserve(text.size());
  for (const char byte : text) {
    if (byte == '<') {
      result += "\\u003c";
    } else {
      result += byte;
    }
  }
  return result;
}

std::string title_of(const history::Json& data) {
  const auto& runs = data.at("runs");
  const auto name = runs.size() == 1 ? runs[0].at("name").get<std::string>() : std::to_string(runs.size()) + " runs";
  return escaped(printable_line(name) + " – training report");
}

std::string content_of(std::string_view place, const history::Json& data) {
  if (place == "title") return title_of(data);
  // connect-src of the Content-Security-Policy: a served page asks its server for new data; a page in a file makes no requests.
  if (place == "connect") return data.at("live").get<bool>() ? "'self'" : "'none'";
  if (place == "style") return std::string(kPageCss);
  if (place == "chart_style") return std::string(kChartCss);
  if (place == "chart_script") return std::string(kChartJs);
  if (place == "values") return std::string(kValuesJs);
  if (place == "curves") return std::string(kCurvesJs);
  if (place == "classes") return std::string(kClassesJs);
  if (place == "script") return std::string(kPageJs);
  if (place == "data") return json_in_html(data);
  throw std::logic_error("page.html has an unknown place: " + std::string(place));
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string result;
  for (const char byte : text) {
    switch (byte) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += byte;
    }
  }
  return result;
}

std::string make_page(const history::Json& data) {
  std::string page;
  std::string_view rest = kPageHtml;
  for (auto begin = rest.find("{{"); begin != rest.npos; begin = rest.find("{{")) {
    const auto end = rest.find("}}", begin);
    page += rest.substr(0, begin);
    page += content_of(rest.substr(begin + 2, end - begin - 2), data);
    rest.remove_prefix(end + 2);
  }
  return page.append(rest);
}

}  // namespace trainer::report
