#include "run/survey/data_audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/log.h"
#include "base/signal.h"
#include "base/text.h"
#include "cli/arguments.h"
#include "cli/output.h"
#include "commands/command.h"
#include "commands/data.h"
#include "commands/pictures.h"
#include "commands/run_end.h"
#include "commands/sample_progress.h"
#include "reporting/evaluation.h"

namespace trainer::commands {
namespace {

using Clock = std::chrono::steady_clock;
using Finding = survey::AuditFinding;
using FindingKind = survey::AuditFindings;
using survey::DataAudit;
using survey::kNoPicture;

void read_and_compare(DataAudit& audit, int num_threads, Logger& logger) {
  const auto begin = Clock::now();
  for (const auto& part : audit.parts()) {
    SampleProgress progress(fmt::format("{}: read", part.title), logger);
    audit.read(part, num_threads, [&](int64_t num_read) { progress.update(num_read, part.dataset->size()); });
    progress.clear();
  }
  const auto compared = Clock::now();
  const auto seconds = [](Clock::duration time) { return std::chrono::duration<double>(time).count(); };
  logger.info("{} read in {:.1f}s; comparing them with each other", counted(audit.size(), "image"), seconds(compared - begin));
  audit.compare(num_threads);
  logger.info("compared in {:.1f}s", seconds(Clock::now() - compared));
}

std::string likeness(const Finding& finding) {
  return finding.similarity == 1 ? "the same pixels" : fmt::format("similarity {:.2f}", std::min(finding.similarity, 0.99F));
}

std::string number_of(const FindingKind& kind) {
  auto text = kind.findings.empty() ? "none" : std::to_string(kind.findings.size());
  const auto num_same = std::ranges::count(kind.findings, 1, &Finding::similarity);
  if (num_same > 0) text += fmt::format(" ({} with the same pixels)", num_same);
  return text;
}

std::string summary_of(const DataAudit& audit) {
  std::string parts;
  for (const auto& part : audit.parts()) parts += fmt::format("{}{} for {}", parts.empty() ? "" : ", ", part.dataset->size(), part.title);
  return fmt::format("{}: {}", counted(audit.size(), "image"), parts);
}

// Describes the finding without the other image.
std::string line_of(const DataAudit& audit, const Finding& finding) {
  const auto& names = audit.parts().front().dataset->info().class_names;
  const auto what = finding.picture == kNoPicture
                        ? printable_line(reporting::name_of_class(names, finding.label))
                        : fmt::format("{} {}", audit.title_of_part(finding.picture), audit.describe(finding.picture));
  return finding.text.empty() ? what : what + ": " + finding.text;
}

void print_findings(const DataAudit& audit) {
  constexpr size_t kMostExamples = 3;
  print("{}\n", summary_of(audit));
  for (const bool is_damage : {true, false}) {
    print("\n{}\n", is_damage ? "damages results" : "notes");
    for (const auto& kind : audit.kinds()) {
      if (kind.is_damage != is_damage) continue;
      print("  {}: {}\n", kind.title, number_of(kind));
      if (!kind.findings.empty()) print("    ({})\n", kind.advice);
      for (size_t i = 0; i < std::min(kMostExamples, kind.findings.size()); ++i) {
        const auto& finding = kind.findings[i];
        print("    {}\n", line_of(audit, finding));
        if (finding.same_as == kNoPicture) continue;
        print("      matches {} {}, {}\n", audit.title_of_part(finding.same_as), audit.describe(finding.same_as), likeness(finding));
      }
      if (kind.findings.size() > kMostExamples) print("    and {} more\n", kind.findings.size() - kMostExamples);
    }
  }
  print("\n{}\n", audit.has_damage()
                      ? "this data set has problems that damage results; --json lists all findings, and --page shows the images"
                      : "nothing was found that damages results");
}

// The HTML page (--page).

constexpr size_t kMostOnPage = 60;  // findings of each kind

std::string figure_of(const DataAudit& audit, uint32_t picture) {
  const auto read = [&](data::Scratch& scratch) { return audit.read_sample(picture, scratch); };
  return to_figure(read, audit.parts().front().dataset->info().decoding, audit.title_of_part(picture), audit.describe(picture));
}

std::string section_of(const DataAudit& audit, const FindingKind& kind) {
  const auto num_shown = std::min(kMostOnPage, kind.findings.size());
  const auto skipped = num_shown == kind.findings.size()
                           ? ""
                           : fmt::format(" The first {} of {} are shown; <code>trainer data audit --json</code> lists all.", num_shown,
                                         kind.findings.size());
  auto text = fmt::format("<section><h2>{}: {}</h2>\n<p class=\"muted\">({}){}</p>\n", to_html(kind.title), number_of(kind),
                          to_html(kind.advice), skipped);
  const bool are_lines = kind.findings.front().picture == kNoPicture || std::string_view(kind.key) == "unreadable";
  const bool are_pairs = kind.findings.front().same_as != kNoPicture;
  text += are_lines ? "<ul>\n" : are_pairs ? "<div class=\"finds\">\n" : "<div class=\"finds single\">\n";
  for (size_t i = 0; i < num_shown; ++i) {
    const auto& finding = kind.findings[i];
    if (are_lines) {
      text += fmt::format("<li>{}</li>\n", to_html(line_of(audit, finding)));
      continue;
    }
    const auto heading = are_pairs ? likeness(finding) : finding.text;
    text += "<div class=\"panel\">" + (heading.empty() ? "" : "<p>" + to_html(heading) + "</p>") + "<div class=\"images\">";
    text += figure_of(audit, finding.picture) + (are_pairs ? figure_of(audit, finding.same_as) : "") + "</div></div>\n";
  }
  return text + (are_lines ? "</ul></section>\n" : "</div></section>\n");
}

std::string make_audit_page(const DataAudit& audit, const std::string& name) {
  std::string rows, sections;
  for (const auto& kind : audit.kinds()) {
    const bool is_bad = kind.is_damage && !kind.findings.empty();
    rows += fmt::format("<tr><td{}>{}</td><td class=\"number\">{}</td><td>{}</td></tr>\n", is_bad ? " class=\"bad\"" : "",
                        to_html(kind.title), number_of(kind), kind.is_damage ? "damages results" : "note");
    if (!kind.findings.empty()) sections += section_of(audit, kind);
  }
  return make_image_page("Data audit of " + name, summary_of(audit), rows, sections);
}

}  // namespace

void add_audit_options(CLI::App& app, AuditArguments& arguments) {
  app.add_flag("--json", arguments.json, "print one JSON object with all findings instead of a table");
  app.add_option("--page", arguments.page, "also write a page (HTML) that shows the images side by side")->type_name("FILE");
}

ExitCode audit(const config::Experiment& experiment, const config::ExperimentSource& source, const AuditArguments& arguments,
               int num_threads) {
  constexpr const char* kPage = "--page";
  std::optional<OutputFile> page;
  if (!arguments.page.empty()) {
    refuse_to_overwrite(arguments.page, {source.file}, kPage);
    if (is_standard_output(arguments.page)) throw UsageError("--page: the findings are printed to the standard output; name a file");
  }
  install_stop_handlers();
  const auto logger = make_console_logger();
  DataAudit audit(experiment, *logger);
  if (!arguments.page.empty()) {
    for (const auto& part : audit.parts()) refuse_picture_over(*part.dataset, arguments.page, kPage);
    // Opened now, so that a file that cannot be written is reported before all images are read, which may take an hour.
    page.emplace(arguments.page);
  }
  read_and_compare(audit, num_threads, *logger);
  if (page) {
    page->write(make_audit_page(audit, experiment.experiment));
    page->commit();
  }
  if (arguments.json) {
    cli::print_json(audit.to_json());
  } else {
    print_findings(audit);
    if (page) print_written(arguments.page, "the images side by side; open it in a browser");
  }
  return audit.has_damage() ? ExitCode::kData : ExitCode::kDone;
}

}  // namespace trainer::commands
