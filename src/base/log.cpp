#include "base/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <mutex>
#include <string>
#include <utility>

#include "base/file.h"
#include "base/text.h"
#include "base/url.h"
#include "trainer/error.h"

namespace trainer {
namespace {

// Prefixes lines of levels other than info with the level, as in "warning: ".
class LevelPrefix : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& out) override {
    if (message.level == spdlog::level::info) return;
    const auto name = spdlog::level::to_string_view(message.level);
    out.append(name.data(), name.data() + name.size());
    out.push_back(':');
    out.push_back(' ');
  }
  std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<LevelPrefix>(); }
};

// Writes the message for %v, escaped because it may quote files, names and other processes, and without the secrets of URLs in it.
class PrintableMessage : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& out) override {
    const auto text = printable(without_secrets({message.payload.data(), message.payload.size()}));
    out.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<PrintableMessage>(); }
};

std::unique_ptr<spdlog::pattern_formatter> make_formatter(std::string pattern) {
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<LevelPrefix>('*').add_flag<PrintableMessage>('v').set_pattern(std::move(pattern));
  return formatter;
}

// Appends to a file. A line that cannot be written throws an Error with the file and the reason.
class FileSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit FileSink(const std::filesystem::path& file) : file_(file) {}

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    file_.write({line.data(), line.size()});
  }
  void flush_() override {}

 private:
  LineFile file_;
};

}  // namespace

std::shared_ptr<Logger> make_console_logger(int rank, bool erases_line) {
  const std::string begin = erases_line ? "\r\x1b[K" : "";
  const std::string name = rank == 0 ? "" : "rank " + std::to_string(rank) + ": ";
  auto sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  sink->set_formatter(make_formatter(begin + name + "%*%v"));
  sink->set_level(rank == 0 ? spdlog::level::info : spdlog::level::warn);
  auto logger = std::make_shared<Logger>("trainer", std::move(sink));
  logger->set_level(spdlog::level::debug);
  logger->flush_on(spdlog::level::info);
  return logger;
}

void add_file(Logger& logger, const std::filesystem::path& file) {
  auto sink = std::make_shared<FileSink>(file);
  sink->set_formatter(make_formatter("%Y-%m-%d %H:%M:%S.%e %l: %v"));
  logger.sinks().push_back(std::move(sink));
}

std::shared_ptr<Logger> make_quiet_logger() { return std::make_shared<Logger>("quiet"); }

void log_info(Logger& logger, const std::string& text) { logger.info("{}", text); }
void log_warning(Logger& logger, const std::string& text) { logger.warn("{}", text); }

}  // namespace trainer
