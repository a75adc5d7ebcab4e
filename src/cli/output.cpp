#include "cli/output.h"

#include <CLI/Error.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>

#include "base/crash.h"
#include "base/text.h"
#include "base/url.h"
#include "launch/world/host_resources.h"

namespace trainer::cli {
namespace {

int report_error(const std::string& message, ExitCode exit_code) {
  // An error without a message is reported by another rank.
  if (message.empty()) return static_cast<int>(exit_code);
  // The problems of a configuration have one line each and begin with their positions.
  const bool is_list = message.find('\n') != std::string::npos;
  std::fprintf(stderr, "%s%s\n", is_list ? "" : "error: ", printable(without_secrets(message)).c_str());
  return static_cast<int>(exit_code);
}

// Of exceptions in threads and destructors, mostly of libraries. Those for which this program is not to blame end it without a stack.
void end_after_uncaught_exception() {
  try {
    if (const auto exception = std::current_exception()) std::rethrow_exception(exception);
  } catch (const std::bad_alloc&) {
    std::fputs("error: out of memory; choose smaller batches, or raise the limit of this process (ulimit -v), container or job\n", stderr);
    end_process(static_cast<int>(ExitCode::kFailure));
  } catch (const std::exception& error) {
    if (const auto limit = world::explain_thread_limit(error); !limit.empty()) end_process(report_error(limit, ExitCode::kFailure));
  } catch (...) {
  }
  __gnu_cxx::__verbose_terminate_handler();
}

}  // namespace

int run_and_report(const std::function<ExitCode()>& command) {
  try {
    return static_cast<int>(command());
  } catch (const CLI::CallForHelp&) {
    return static_cast<int>(ExitCode::kDone);
  } catch (const CLI::ParseError& error) {
    return report_error(error.what(), ExitCode::kUsage);
  } catch (const Error& error) {
    return report_error(error.what(), error.exit_code());
  } catch (const std::exception& error) {
    const auto limit = world::explain_thread_limit(error);
    return report_error(limit.empty() ? error.what() : limit, ExitCode::kFailure);
  }
}

int run_program(const std::function<ExitCode()>& command) {
  std::set_terminate(end_after_uncaught_exception);
  const int exit_code = run_and_report(command);
  const int printed = run_and_report([] {
    flush_standard_output();
    return ExitCode::kDone;
  });
  return exit_code != 0 ? exit_code : printed;
}

size_t text_width(const std::string& text) {
  return static_cast<size_t>(std::ranges::count_if(text, [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }));
}

std::string to_table(const std::vector<Column>& columns, std::vector<Row> rows, std::optional<size_t> width) {
  struct Shown {
    size_t number, width;
    int importance;
  };
  const bool has_titles = !std::ranges::all_of(columns, &std::string::empty, &Column::title);
  if (has_titles) rows.emplace(rows.begin());
  std::vector<Shown> shown;
  for (size_t i = 0; i < columns.size(); ++i) {
    if (has_titles) rows.front().push_back(columns[i].title);
    auto& column = shown.emplace_back(Shown{.number = i, .width = 0, .importance = columns[i].importance});
    for (const auto& row : rows) column.width = std::max(column.width, text_width(row[i]));
  }
  const auto width_of = [](const std::vector<Shown>& all) {
    size_t sum = 0;
    for (const auto& column : all) sum += column.width + kColumnGap;
    return sum - kColumnGap;
  };
  if (width) reporting::omit_least_important(shown, *width, width_of);
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (const auto& column : shown) {
      const auto& cell = row[column.number];
      const std::string space(column.width - text_width(cell), ' ');
      line += (columns[column.number].is_number ? space + cell : cell + space) + std::string(kColumnGap, ' ');
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
  }
  return text;
}

}  // namespace trainer::cli
