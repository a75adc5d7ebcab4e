#include "cli/output.h"

#include <CLI/Error.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>
#include <string>

#include "base/crash.h"
#include "base/standard_streams.h"
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

namespace {

size_t width_of(const Column& column) {
  size_t width = text_width(column.title);
  for (const auto& cell : column.cells) width = std::max(width, text_width(cell));
  return width;
}

size_t width_of(const std::vector<Column>& columns) {
  size_t width = columns.empty() ? 0 : kColumnGap * (columns.size() - 1);
  for (const auto& column : columns) width += width_of(column);
  return width;
}

std::string line_of(const std::vector<Column>& columns, const std::function<std::string(const Column&)>& cell_of) {
  std::string line;
  size_t target = 0;
  for (const auto& column : columns) {
    line.append(target - std::min(target, text_width(line)), ' ');
    line += cell_of(column);
    target += width_of(column) + kColumnGap;
  }
  return line + '\n';
}

}  // namespace

size_t text_width(const std::string& text) {
  return static_cast<size_t>(std::ranges::count_if(text, [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }));
}

std::string to_table(std::vector<Column> columns, std::optional<size_t> width) {
  while (width && width_of(columns) > *width) {
    const auto rank = [](const Column& column) { return column.importance == 0 ? 1000 : column.importance; };
    const auto least = std::ranges::min_element(columns, {}, rank);
    if (least->importance == 0) break;
    columns.erase(least);
  }
  auto text = line_of(columns, &Column::title);
  for (size_t row = 0; row < columns.front().cells.size(); ++row) {
    text += line_of(columns, [&](const Column& column) { return column.cells[row]; });
  }
  return text;
}

}  // namespace trainer::cli
