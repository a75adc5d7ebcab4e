#include <array>
#include <map>

#include "base/crash.h"
#include "base/text.h"
#include "cli/arguments.h"
#include "cli/output.h"
#include "commands/command.h"
#include "commands/doctor/checks.h"

namespace trainer::commands {
namespace {

using doctor::Status;

struct CheckResult {
  std::string name;
  doctor::Finding finding;
};

const char* name_of(Status status) {
  constexpr std::array kNames = {"ok", "warning", "failed"};
  return kNames[static_cast<size_t>(status)];
}

void print_result(const CheckResult& result) {
  const auto& [status, text, fix] = result.finding;
  print("{:<8}{:<18}{}\n", name_of(status), result.name, text);
  if (!fix.empty()) print("{:<8}{:<18}{}\n", "", "  fix", fix);
  flush_standard_output();
}

void print_json(const std::vector<CheckResult>& results, Status worst) {
  auto checks = reporting::Json::array();
  for (const auto& [name, finding] : results) {
    reporting::Json check = {{"name", name}, {"status", name_of(finding.status)}, {"text", finding.text}};
    if (!finding.fix.empty()) check["cure"] = finding.fix;
    checks.push_back(std::move(check));
  }
  cli::print_json({{"status", name_of(worst)}, {"checks", std::move(checks)}}, 2);
}

}  // namespace

ExitCode doctor(const std::vector<std::string>& args) {
  CLI::App app(
      "Checks whether this host is ready for training: GPUs, processor, memory, limits, network, disk, and an all_reduce "
      "between two processes with the process groups that training uses. The exit code is 1 if something would make training fail; most "
      "warnings concern speed.",
      "trainer doctor");
  doctor::Subject subject{.output_dir = "runs", .gpus = {}};
  bool as_json = false;
  std::string backend;
  app.add_option("--output-dir", subject.output_dir, "the folder for runs, on the disk to check; default: runs")->type_name("DIR");
  app.add_flag("--json", as_json, "print one JSON object, when all checks are done");
  // For the processes that the all_reduce check starts.
  app.add_option(doctor::kMeasureOption, backend)->group("");
  cli::parse(app, args);
  if (!backend.empty()) return doctor::run_measurement(backend);

  subject.gpus = doctor::find_gpus();
  std::vector<CheckResult> results;
  std::map<Status, size_t> counts;
  for (const auto& check : doctor::all_checks()) {
    for (auto& finding : doctor::run(check, subject)) {
      ++counts[finding.status];
      results.push_back({check.name, std::move(finding)});
      if (!as_json) print_result(results.back());
    }
  }
  const auto worst = counts.rbegin()->first;
  if (as_json) {
    print_json(results, worst);
  } else {
    print("\n{} ok, {}, {} failed\n", counts[Status::kOk], counted(counts[Status::kWarning], "warning"), counts[Status::kFailed]);
  }
  flush_standard_output();
  // A check without a result has a thread that would keep the process from ending.
  end_process(worst == Status::kFailed ? ExitCode::kFailure : ExitCode::kDone);
}

}  // namespace trainer::commands
