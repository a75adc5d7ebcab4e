#include "distributed/run_secret.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/file.h"
#include "trainer/error.h"

namespace trainer::distributed {
namespace {

constexpr size_t kShortest = 16;
constexpr size_t kLongest = 4096;
constexpr std::string_view kWhiteSpace = " \t\r\n";

[[noreturn]] void refuse(const std::filesystem::path& file, const std::string& reason) {
  throw UsageError(fmt::format(
      "distributed.secret_file {}: {}; make the file on one host (umask 077; head -c 32 /dev/urandom | base64 > FILE) and copy it to the "
      "others",
      file.string(), reason));
}

}  // namespace

world::RunSecret read_secret_file(const std::filesystem::path& file, Logger& logger) {
  const auto descriptor = open_regular_file(file, O_RDONLY);
  struct stat status {};
  if (descriptor.number() < 0 || fstat(descriptor.number(), &status) != 0) {
    const int reason = errno;
    refuse(file, reason == 0 ? describe_irregular(file) : std::generic_category().message(reason));
  }
  std::string text(kLongest + 1, '\0');
  const auto size = read(descriptor.number(), text.data(), text.size());
  if (size < 0) refuse(file, std::generic_category().message(errno));
  if (static_cast<size_t>(size) > kLongest) refuse(file, fmt::format("longer than {} bytes", kLongest));
  text.resize(static_cast<size_t>(size));
  text.erase(std::min(text.size(), text.find_last_not_of(kWhiteSpace) + 1));
  text.erase(0, std::min(text.size(), text.find_first_not_of(kWhiteSpace)));
  if (text.size() < kShortest) refuse(file, fmt::format("fewer than {} characters, which can be guessed", kShortest));
  if ((status.st_mode & (S_IRGRP | S_IROTH)) != 0) {
    logger.warn("distributed.secret_file {} can be read by other users of this host; forbid it with chmod 600", file.string());
  }
  return {world::RunSecret::Source::kFile, std::move(text)};
}

std::string describe(world::RunSecret::Source source) {
  using Source = world::RunSecret::Source;
  switch (source) {
    case Source::kNone:
      return "no secret";
    case Source::kLauncher:
      return "the secret of `trainer launch`";
    case Source::kTorchrun:
      return "torchrun's run id (TORCHELASTIC_RUN_ID)";
    case Source::kSlurm:
      return "Slurm's job id (SLURM_JOB_ID)";
    case Source::kFile:
      return "distributed.secret_file";
  }
  return "";
}

}  // namespace trainer::distributed
