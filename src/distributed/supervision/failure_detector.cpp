#include "distributed/supervision/failure_detector.h"

#include <fmt/format.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "base/text.h"
#include "distributed/stores.h"

namespace trainer::supervision {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Failure, kind, rank, process, where, detail)

namespace {

using distributed::from_bytes;
using distributed::to_bytes;
using std::chrono::milliseconds;

// These keys get a value at the start, because reading a missing key would wait for it.
const std::string kFailureKey = "failure_detector/failure";  // null until there is a failure, then the first failure
const std::string kDigestKey = "failure_detector/digest";
// The number of ranks that have read the failure.
const std::string kConfirmedKey = "failure_detector/confirmed";
// Each rank sends about three messages to the store per interval; with 1,024 ranks these are 2,500 per second.
constexpr milliseconds kLongestInterval{200};
constexpr milliseconds kIntervalPerRank{1};
// The number of intervals after which a rank without a heartbeat counts as ended, once this rank has lost a connection.
constexpr int kMissedHeartbeats = 4;
// How long a rank that is ending waits until the reason is in the store and, on rank 0, until the others have read it.
constexpr milliseconds kConfirmTimeout{3000};
constexpr const char* kUnknownPhase = "an unknown phase";

std::string heartbeat_key(size_t rank) { return fmt::format("failure_detector/heartbeat/{}", rank); }

milliseconds interval_of(const FailureDetectorOptions& options) {
  return std::clamp<milliseconds>(options.hang_limit / 20, milliseconds(50), kLongestInterval) +
         kIntervalPerRank * static_cast<int>(options.ranks.size());
}

// If a rank is stuck, the file that it is using may be the reason.
std::string describe_place(Failure::Kind kind, const distributed::ActivityState& state) {
  return kind == Failure::Kind::kStuck ? distributed::describe_with_file(state) : distributed::describe(state);
}

void create_key(c10d::Store& store, const std::string& key, const nlohmann::json& value) { store.compareSet(key, {}, to_bytes(value)); }

}  // namespace

FailureDetector::FailureDetector(c10d::Store& store, std::shared_ptr<const distributed::Activity> activity, FailureDetectorOptions options,
                                 std::function<void(const Failure&)> on_failure)
    : options_(std::move(options)),
      interval_(interval_of(options_)),
      limits_{.rank = options_.rank,
              .num_ranks = static_cast<int>(options_.ranks.size()),
              .rank0_serves_store = options_.rank0_serves_store,
              .hang = options_.hang_limit,
              .missed = kMissedHeartbeats * interval_},
      activity_(std::move(activity)),
      on_failure_(std::move(on_failure)),
      store_(store.clone()),
      log_(limits_.num_ranks, limits_.missed, Clock::now()),
      knowledge_{.last_digest = Clock::now(), .last_answer = Clock::now()} {
  exchanger_ = std::thread([this] { exchange_until_finished(); });
  diagnoser_ = std::thread([this] { diagnose_until_finished(); });
}

FailureDetector::~FailureDetector() {
  finish();
  exchanger_.join();
  diagnoser_.join();
}

void FailureDetector::finish() {
  const std::lock_guard lock(mutex_);
  is_finished_ = true;
  changed_.notify_all();
}

void FailureDetector::report_own_failure() {
  std::unique_lock lock(mutex_);
  is_asked_ = true;
  suspect(describe(Failure::Kind::kFailed, options_.rank));
  wait_until_known(lock, kConfirmTimeout);
}

void FailureDetector::report_ended(int rank, const std::string& detail) {
  const std::lock_guard lock(mutex_);
  auto failure = describe(Failure::Kind::kEnded, rank);
  failure.detail = detail;
  suspect(failure);
}

void FailureDetector::report_late(int rank, milliseconds duration) {
  const std::lock_guard lock(mutex_);
  suspect(describe(Failure::Kind::kLate, rank, duration));
}

std::optional<Failure> FailureDetector::first_failure() {
  std::unique_lock lock(mutex_);
  is_asked_ = true;
  wait_until_known(lock, 2 * limits_.missed + kConfirmTimeout);
  return failure_;
}

// Rank 0 waits until the others have read the failure, because it may serve the store.
void FailureDetector::wait_until_known(std::unique_lock<std::mutex>& lock, Clock::duration timeout) {
  changed_.wait_for(lock, timeout, [&] { return is_finished_ || (failure_ && all_know_); });
}

void FailureDetector::suspect(const Failure& failure) {
  if (suspected_ || failure_) return;
  suspected_ = failure;
  suspected_at_ = Clock::now();
  changed_.notify_all();
}

Failure FailureDetector::describe(Failure::Kind kind, int rank, Clock::duration duration) const {
  // The digest has only the phase of rank 0; last_seen_in() reads that of another rank before the failure is reported.
  auto where = rank == 0 ? describe_place(kind, knowledge_.digest.rank0) : kUnknownPhase;
  if (rank == options_.rank) where = describe_place(kind, activity_->read());
  return {.kind = kind,
          .rank = rank,
          .process = to_string(options_.ranks[static_cast<size_t>(rank)]),
          .where = std::move(where),
          .detail = kind == Failure::Kind::kEnded ? "" : format_duration(std::chrono::duration_cast<milliseconds>(duration))};
}

void FailureDetector::exchange_until_finished() {
  try {
    create_keys();
    while (true) {
      exchange_heartbeats();
      settle_failure();
      std::unique_lock lock(mutex_);
      if (is_finished_) return;
      // A suspected failure ends the wait, so that it is written to the store immediately.
      changed_.wait_for(lock, interval_, [&] { return is_finished_ || (suspected_ && !failure_); });
    }
  } catch (const std::exception&) {
    // The store does not answer any more, usually because the process that serves it has exited. The launcher may report how that process
    // ended, so this thread waits for up to one interval.
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, interval_, [&] { return is_finished_ || suspected_ || failure_; });
    if (is_finished_ || failure_) return;
    failure_ = suspected_ ? *suspected_ : describe(Failure::Kind::kEnded, 0);
    if (!options_.rank0_serves_store && !suspected_) {
      failure_->rank = -1;
      failure_->process = "the launcher, which serves the store,";
    }
    all_know_ = true;
    changed_.notify_all();
  }
}

void FailureDetector::create_keys() {
  create_key(*store_, kFailureKey, nullptr);
  create_key(*store_, kDigestKey, Digest());
  if (options_.rank == 0) {
    for (size_t rank = 1; rank < options_.ranks.size(); ++rank) {
      keys_.push_back(heartbeat_key(rank));
      create_key(*store_, keys_.back(), Heartbeat());
    }
  } else {
    keys_.push_back(kDigestKey);
  }
  keys_.push_back(kFailureKey);
}

void FailureDetector::exchange_heartbeats() {
  ++num_heartbeats_;
  const auto digest = options_.rank == 0 ? publish_digest() : send_heartbeat();
  const std::lock_guard lock(mutex_);
  knowledge_.last_answer = Clock::now();
  if (digest.number == knowledge_.digest.number) return;
  knowledge_.last_digest = knowledge_.last_answer;
  knowledge_.digest = digest;
}

Digest FailureDetector::publish_digest() {
  auto values = store_->multiGet(keys_);
  std::vector<Heartbeat> heartbeats{{.state = activity_->read(), .number = num_heartbeats_}};
  for (size_t i = 0; i + 1 < values.size(); ++i) heartbeats.push_back(from_bytes(values[i]).get<Heartbeat>());
  read_failure(values.back());
  const auto digest = log_.digest(heartbeats, Clock::now());
  store_->set(kDigestKey, to_bytes(digest));
  return digest;
}

Digest FailureDetector::send_heartbeat() {
  const Heartbeat heartbeat{.state = activity_->read(), .number = num_heartbeats_};
  store_->set(heartbeat_key(static_cast<size_t>(options_.rank)), to_bytes(heartbeat));
  const auto values = store_->multiGet(keys_);
  read_failure(values.back());
  return from_bytes(values.front()).get<Digest>();
}

void FailureDetector::read_failure(const std::vector<uint8_t>& value) {
  const auto json = from_bytes(value);
  if (!json.is_null()) written_failure_ = json.get<Failure>();
}

// All ranks report the first failure that any rank has written to the store.
void FailureDetector::settle_failure() {
  std::optional<Failure> suspected;
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) suspected = suspected_;
  }
  if (suspected && !written_failure_) {
    if (suspected->rank != options_.rank) suspected->where = last_seen_in(*suspected);
    read_failure(store_->compareSet(kFailureKey, to_bytes(nullptr), to_bytes(*suspected)));
  }
  if (!written_failure_) return;
  // A rank that is stuck or late still exchanges heartbeats, and reports the failure too.
  const bool is_alive = written_failure_->kind == Failure::Kind::kStuck || written_failure_->kind == Failure::Kind::kLate;
  const bool must_confirm = (written_failure_->rank != options_.rank || is_alive) && !has_confirmed_;
  int64_t num_confirmed = 0;
  if (must_confirm || options_.rank == 0) num_confirmed = store_->add(kConfirmedKey, must_confirm ? 1 : 0);
  has_confirmed_ = true;
  const auto num_readers = static_cast<int64_t>(options_.ranks.size()) - (is_alive ? 0 : 1);
  const std::lock_guard lock(mutex_);
  failure_ = written_failure_;
  all_know_ = options_.rank != 0 || num_confirmed >= num_readers;
  changed_.notify_all();
}

std::string FailureDetector::last_seen_in(const Failure& failure) {
  if (failure.rank == 0) return describe_place(failure.kind, from_bytes(store_->get(kDigestKey)).get<Digest>().rank0);
  const auto key = heartbeat_key(static_cast<size_t>(failure.rank));
  const auto state = store_->check({key}) ? from_bytes(store_->get(key)).get<Heartbeat>().state : distributed::ActivityState();
  return describe_place(failure.kind, state);
}

void FailureDetector::diagnose_until_finished() {
  std::unique_lock lock(mutex_);
  while (!is_finished_) {
    const auto now = Clock::now();
    if (!failure_) {
      knowledge_.has_lost_connection = is_asked_;
      if (const auto found = diagnose(knowledge_, limits_, now)) suspect(describe(found->kind, found->rank, found->duration));
      // If the failure is still only suspected after this time, the store does not answer. The other ranks cannot be told, so this rank
      // does not wait until they know.
      if (suspected_ && now - suspected_at_ > limits_.missed + kConfirmTimeout) {
        failure_ = suspected_;
        all_know_ = true;
        changed_.notify_all();
      }
    }
    if (failure_ && !is_asked_) {
      wait_until_known(lock, kConfirmTimeout);
      if (is_asked_ || is_finished_) return;
      is_asked_ = true;
      const auto failure = *failure_;
      lock.unlock();
      on_failure_(failure);
      return;
    }
    changed_.wait_for(lock, interval_);
  }
}

}  // namespace trainer::supervision
