#include "distributed/secret.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <system_error>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "base/file.h"
#include "distributed/stores.h"
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

namespace {

using Source = world::RunSecret::Source;

std::string kind_key(int rank) { return fmt::format("secret/{}", rank); }

// Empty if it is no kind of secret.
std::optional<Source> read_kind(c10d::Store& store, int rank) {
  const auto bytes = store.get(kind_key(rank));
  const std::string text(bytes.begin(), bytes.end());
  for (const auto source : {Source::kNone, Source::kLauncher, Source::kTorchrun, Source::kSlurm, Source::kFile}) {
    if (text == describe(source)) return source;
  }
  return std::nullopt;
}

void write_kind(c10d::Store& store, int rank, Source source) {
  const auto text = describe(source);
  store.set(kind_key(rank), std::vector<uint8_t>(text.begin(), text.end()));
}

std::string describe_difference(int rank, Source own, std::optional<Source> of_rank0) {
  if (of_rank0 == own) return fmt::format("rank {} and rank 0 have different secrets from {}", rank, describe(own));
  return fmt::format("rank {} has {}, but rank 0 has {}", rank, describe(own), of_rank0 ? describe(*of_rank0) : "another secret");
}

}  // namespace

SecretCheck::SecretCheck(c10::intrusive_ptr<c10d::Store> open_store, Source own, int rank)
    : open_store_(std::move(open_store)), own_(own), rank_(rank) {}

void SecretCheck::announce() { write_kind(*open_store_, 0, own_); }

std::string SecretCheck::find_difference(c10d::Store& sealed_store, const std::string& key_of_rank0) {
  if (!open_store_->check({kind_key(0)}) || sealed_store.check({key_of_rank0})) return "";
  write_kind(*open_store_, rank_, own_);
  return describe_difference(rank_, own_, read_kind(*open_store_, 0)) +
         "; start all ranks in the same way, with the same content of distributed.secret_file everywhere, or without it";
}

void SecretCheck::report(const std::vector<int>& missing, Logger& logger) {
  for (const int rank : missing) {
    if (!open_store_->check({kind_key(rank)})) continue;
    const auto kind = read_kind(*open_store_, rank);
    logger.warn("{}, so they cannot meet", describe_difference(rank, kind.value_or(Source::kNone), own_));
  }
}

}  // namespace trainer::distributed
