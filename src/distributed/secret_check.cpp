#include "distributed/secret_check.h"

#include <fmt/format.h>

#include <optional>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "distributed/run_secret.h"
#include "distributed/store_json.h"

namespace trainer::distributed {
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
