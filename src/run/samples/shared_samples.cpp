#include "run/samples/shared_samples.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/random.h"
#include "base/text.h"
#include "trainer/error.h"
#include "trainer/random.h"

namespace trainer::data {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ImageDecoding, mode, is_turned_upright, maximum)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(DatasetInfo, shape, is_image, num_classes, num_targets, has_masks, is_multi_label, decoding)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TargetSummary, num_samples, class_counts, mean, deviation)

}  // namespace trainer::data

namespace trainer::samples {
namespace {

nlohmann::json to_json(const engine::Samples& samples) {
  const auto& info = samples.info();
  return {{"size", samples.size()}, {"info", info}, {"channels", info.decoding.channels.value_or(0)}};
}

engine::Samples samples_from(const nlohmann::json& json) {
  auto info = json["info"].get<data::DatasetInfo>();
  if (const int channels = json["channels"]; channels != 0) info.decoding.channels = channels;
  return {json["size"], std::move(info)};
}

nlohmann::json to_json(const engine::TrainingSamples& samples) {
  const auto& [train, validation] = samples.opened;
  return {{"train", to_json(train)},
          {"validation", validation ? to_json(*validation) : nlohmann::json()},
          {"samples_per_epoch", samples.samples_per_epoch},
          {"targets", samples.targets ? nlohmann::json(*samples.targets) : nlohmann::json()}};
}

engine::TrainingSamples training_samples_from(const nlohmann::json& json) {
  engine::TrainingSamples samples{{.train = samples_from(json["train"])}, std::nullopt, json["samples_per_epoch"]};
  if (!json["validation"].is_null()) samples.opened.validation = samples_from(json["validation"]);
  if (const auto& targets = json["targets"]; !targets.is_null()) samples.targets = targets.get<data::TargetSummary>();
  return samples;
}

}  // namespace

engine::TrainingSamples open_together(run::Rank& rank, const std::function<engine::TrainingSamples()>& open) {
  const auto& ranks = rank.ranks;
  std::optional<engine::TrainingSamples> opened;
  for (const bool is_first_of_host : {true, false}) {
    rank.barrier.on_all_ranks([&] {
      if (ranks.reads_data() && (rank.local_rank == 0) == is_first_of_host) opened = open();
    });
  }
  require_same_data(rank.barrier, ranks, opened ? &*opened : nullptr);
  if (ranks.reading) {
    const auto description = ranks.reading->broadcast_bytes(opened ? to_json(*opened).dump() : "");
    if (!opened) opened = training_samples_from(nlohmann::json::parse(description));
  }
  return std::move(*opened);
}

namespace {

using UseText = std::function<void(std::string_view text)>;

// A part of the data that must be the same on all ranks, as a list of texts.
struct Part {
  std::string noun;                                // for one item, such as "training image"
  std::string another;                             // for a difference, such as "other training images"
  int64_t count = 0;                               // number of items, which need not be the number of texts
  std::function<std::string(size_t)> subject;      // what the text with this index is about, such as "class 3"
  std::function<void(const UseText&)> list_texts;  // calls a function with each text
};

// Element i is the digest of the first i texts.
std::vector<uint64_t> digests_of(const Part& part) {
  std::vector<uint64_t> digests = {0};
  part.list_texts([&digests](std::string_view text) { digests.push_back(mix_seed(digests.back(), fnv1a(text))); });
  return digests;
}

// The text with the index `wanted`; empty if there are fewer texts.
std::string text_at(const Part& part, size_t wanted) {
  std::string found;
  part.list_texts([&, i = size_t{0}](std::string_view text) mutable {
    if (i++ == wanted) found = text;
  });
  return found;
}

const char* item_of(const data::Dataset& files) { return files.info().is_image ? "image" : "sample"; }

// Such as "cat/1.jpg of class 3 with 100 bytes".
std::string text_of(const data::Dataset& files, int64_t index) {
  const auto [name, key, group, number] = files.origin(index);
  data::Scratch scratch;
  const auto target = files.target(index, scratch);
  std::string text;
  // The folders of absolute paths may differ between hosts.
  if (!name.empty()) text = (key.starts_with('/') ? key.substr(key.rfind('/') + 1) : key) + ' ';
  text +=
      target.values.empty() ? fmt::format("of class {}", target.label) : fmt::format("with the targets {}", fmt::join(target.values, " "));
  // Only of some samples, because a network file system asks its server for each size.
  constexpr int64_t kMostSizes = 1000;
  const bool has_size = index % ((files.size() + kMostSizes - 1) / kMostSizes) == 0;
  if (const auto num_bytes = has_size ? files.num_bytes(index).value_or(0) : 0; num_bytes > 0) {
    text += fmt::format(" with {}", counted(num_bytes, "byte"));
  }
  return text;
}

// `kind`: such as "training ".
void add_parts(const data::Dataset& files, const std::string& kind, std::vector<Part>& parts) {
  const std::string item = item_of(files);
  const auto noun = kind + item;
  const auto another = fmt::format("other {}s", noun);
  parts.push_back({.noun = noun,
                   .another = another,
                   .count = 0,
                   .subject = [](size_t i) { return i == 0 ? "the shape" : fmt::format("class {}", i - 1); },
                   .list_texts =
                       [&files](const UseText& use) {
                         use(fmt::format("{}", files.info().shape));
                         for (const auto& name : files.info().class_names) use(name);
                         for (const auto& name : files.info().target_names) use(name);
                       }});
  parts.push_back({.noun = noun,
                   .another = another,
                   .count = files.size(),
                   .subject = [item](size_t i) { return fmt::format("{} {}", item, i); },
                   .list_texts =
                       [&files](const UseText& use) {
                         if (files.size() == 0 || !files.num_bytes(0)) return;
                         for (int64_t i = 0; i < files.size(); ++i) use(text_of(files, i));
                       }});
}

std::vector<Part> parts_of(const engine::TrainingSamples& samples) {
  std::vector<Part> parts;
  const auto& [train, validation] = samples.opened;
  const auto& files = train.files();
  add_parts(files, samples.sampler ? "training " : "", parts);  // what is evaluated may be of any split
  if (validation && &validation->files() != &files) add_parts(validation->files(), "validation ", parts);
  if (!samples.sampler) return parts;
  const std::string item = item_of(files);
  parts.push_back({.noun = "training " + item,
                   .another = fmt::format("another order of the training {}s", item),
                   .count = samples.samples_per_epoch,
                   .subject = [](size_t i) { return fmt::format("draw {} of rank 0 in the first epoch", i); },
                   .list_texts =
                       [&samples, item](const UseText& use) {
                         for (const auto index : samples.sampler->samples_of(0).indices) use(fmt::format("{} {}", item, index));
                       }});
  return parts;
}

// The summary of a part, which the ranks exchange: {"count": 16, "num_texts": 16, "digest": 123}.
nlohmann::json summary_of(const Part& part, const std::vector<uint64_t>& digests) {
  return {{"count", part.count}, {"num_texts", digests.size() - 1}, {"digest", digests.back()}};
}

class Comparison {
 public:
  // `parts`: empty on a rank that does not read the data.
  Comparison(distributed::StartupBarrier& barrier, const engine::Ranks& ranks, std::vector<Part> parts)
      : barrier_(barrier), ranks_(ranks), rank_(ranks.world->rank()), parts_(std::move(parts)) {}

  void run() {
    std::vector<std::vector<uint64_t>> digests;
    const auto results = barrier_.gather([&] {
      auto summaries = nlohmann::json::array();
      for (const auto& part : parts_) summaries.push_back(summary_of(part, digests.emplace_back(digests_of(part))));
      return summaries.dump();
    });
    const auto first = nlohmann::json::parse(results.front());
    for (size_t rank = 1; rank < results.size(); ++rank) {
      const auto other = nlohmann::json::parse(results[rank]);
      if (other.empty() || other == first) continue;  // a rank that does not read has no parts
      size_t i = 0;
      while (other[i] == first[i]) ++i;
      other_ = static_cast<int>(rank);
      report(takes_part() ? &parts_[i] : nullptr, takes_part() ? digests[i] : std::vector<uint64_t>(), first[i], other[i]);
    }
  }

 private:
  // Whether this rank is one of the two that differ.
  bool takes_part() const { return rank_ == 0 || rank_ == other_; }

  // Collective: the results of `work` on rank 0 and on the other rank.
  std::pair<std::string, std::string> exchange(const std::function<std::string()>& work) {
    auto results = barrier_.gather([&] { return takes_part() ? work() : std::string(); });
    return {std::move(results.front()), std::move(results[static_cast<size_t>(other_)])};
  }

  // The length of the common prefix of the lists, by bisection, so that ranks do not have to send their lists.
  size_t count_equal(const std::vector<uint64_t>& digests, size_t num_texts) {
    size_t equal = 0;
    for (size_t end = num_texts + 1; end - equal > 1;) {
      const size_t middle = equal + (end - equal) / 2;
      const auto [mine, its] = exchange([&] { return std::to_string(digests[middle]); });
      (mine == its ? equal : end) = middle;
    }
    return equal;
  }

  [[noreturn]] void report(const Part* part, const std::vector<uint64_t>& digests, const nlohmann::json& first,
                           const nlohmann::json& other) {
    const size_t index = count_equal(digests, std::min(first["num_texts"].get<size_t>(), other["num_texts"].get<size_t>()));
    const auto [text, other_text] = exchange([&] { return text_at(*part, index); });
    barrier_.on_rank0([&]() -> std::string {
      const auto who = fmt::format("rank {} on {}", other_, ranks_.infos[static_cast<size_t>(other_)].host);
      const auto subject = part->subject(index);
      const auto example = text.empty() && other_text.empty() ? ""
                           : text.empty()                     ? fmt::format("only rank {} has {}, {}", other_, subject, other_text)
                           : other_text.empty()               ? fmt::format("only rank 0 has {}, {}", subject, text)
                                                              : fmt::format("{} is {}, not {}", subject, other_text, text);
      const auto difference = first["count"] == other["count"]
                                  ? fmt::format("{} has {} than rank 0: {}", who, part->another, example)
                                  : fmt::format("{} has {}, but rank 0 has {}{}{}", who, counted(other["count"].get<int64_t>(), part->noun),
                                                first["count"].get<int64_t>(), example.empty() ? "" : "; the first difference: ", example);
      throw DataError(difference + "; give all ranks the same data, and do not change it during the start");
    });
    throw std::logic_error("rank 0 has not reported that the data differ");
  }

  distributed::StartupBarrier& barrier_;
  const engine::Ranks& ranks_;
  int rank_ = 0;
  int other_ = 0;  // the rank that differs from rank 0
  std::vector<Part> parts_;
};

}  // namespace

void require_same_data(distributed::StartupBarrier& barrier, const engine::Ranks& ranks, const engine::TrainingSamples* samples) {
  if (ranks.world->size() > 1) Comparison(barrier, ranks, samples ? parts_of(*samples) : std::vector<Part>()).run();
}

}  // namespace trainer::samples
