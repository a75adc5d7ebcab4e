#include "run/rank/cached_features.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/bytes.h"
#include "base/file.h"
#include "base/path.h"
#include "base/random.h"
#include "base/signal.h"
#include "base/text.h"
#include "config/differences.h"
#include "datasets/download.h"
#include "datasets/files.h"
#include "device/libtorch_settings.h"
#include "distributed/rendezvous.h"
#include "nn/batch_norm.h"
#include "run/recipe/build.h"
#include "run/recipe/check.h"
#include "run/recipe/registries.h"
#include "run/version.h"
#include "trainer/amp.h"
#include "trainer/error.h"

namespace trainer::rank {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTensor = "features";

// The header of a safetensors file of features: one tensor [samples, ...] of float32.
std::string header_of(int64_t num_samples, const std::vector<int64_t>& shape) {
  auto all = shape;
  all.insert(all.begin(), num_samples);
  const int64_t num_bytes = c10::multiply_integers(all) * static_cast<int64_t>(sizeof(float));
  const nlohmann::json header = {{kTensor, {{"dtype", "F32"}, {"shape", all}, {"data_offsets", {0, num_bytes}}}}};
  auto json = header.dump();
  json.resize((json.size() + 7) / 8 * 8, ' ');
  std::string bytes;
  little_endian::append(bytes, uint64_t{json.size()});
  return bytes + json;
}

[[noreturn]] void fail_to_store(const std::string& reason) {
  throw DataError(
      fmt::format("cannot store the features of training.cache_features: {}; set TRAINER_HOME to a writable folder, or set "
                  "training.cache_features: false",
                  reason));
}

[[noreturn]] void fail_to_write(const fs::path& path) {
  fail_to_store(fmt::format("cannot write {}: {}", path.string(), explain_refusal(path, {errno, std::generic_category()})));
}

void write_at(const Descriptor& file, std::string_view bytes, uint64_t offset, const fs::path& path) {
  while (!bytes.empty()) {
    const auto written = ::pwrite(file.number(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_to_write(path);
    bytes.remove_prefix(static_cast<size_t>(written));
    offset += static_cast<uint64_t>(written);
  }
}

// The features in a file, with the targets of the samples from which they were computed.
class FeatureDataset : public data::Decorator {
 public:
  // Throws DataError unless `path` is a file of features of this shape.
  FeatureDataset(const engine::Samples& samples, const std::vector<int64_t>& shape, const fs::path& path)
      : Decorator(samples.shared_dataset()), info_(samples.info()), file_(path) {
    info_.shape = shape;
    info_.is_image = false;
    const auto expected = header_of(samples.size(), shape);
    const auto bytes = file_.bytes();
    num_values_ = c10::multiply_integers(shape);
    const auto num_bytes = static_cast<uint64_t>(samples.size() * num_values_) * sizeof(float);
    const std::string_view content(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (content.size() != expected.size() + num_bytes || !content.starts_with(expected)) {
      throw DataError(fmt::format("{}: this file does not contain the features of {}; remove it, so that they are computed again",
                                  path.string(), counted(samples.size(), "sample")));
    }
    values_ = reinterpret_cast<const float*>(bytes.data() + expected.size());
  }

  const data::DatasetInfo& info() const override { return info_; }
  data::Sample read(int64_t index, data::Scratch& scratch) const override {
    return {.values = {values_ + index * num_values_, static_cast<size_t>(num_values_)}, .target = target(index, scratch)};
  }
  void prefetch(int64_t) const override {}  // the stored samples are not needed

 private:
  data::DatasetInfo info_;
  MappedFile file_;
  int64_t num_values_ = 0;
  const float* values_ = nullptr;
};

// Adds what the features depend on: the frozen parameters, the buffers and the placement.

void add_network(const engine::Network& network, datasets::Digest& digest) {
  const auto add_tensors = [&](const auto& tensors) {
    for (const auto& item : tensors) {
      if (item.value().requires_grad()) continue;
      const auto values = item.value().detach().cpu().contiguous();
      digest.update(item.key() + '\n');
      digest.update({static_cast<const char*>(values.const_data_ptr()), values.nbytes()});
    }
  };
  add_tensors(network.model->named_parameters());
  add_tensors(network.model->named_buffers());
  const auto& placement = network.placement;
  digest.update(fmt::format("{} {} {} {} {} {}\n", static_cast<int>(placement.device.type()), c10::toString(placement.dtype),
                            placement.autocast_dtype ? c10::toString(*placement.autocast_dtype) : "", placement.fuse,
                            static_cast<int>(placement.convolution), static_cast<int>(placement.memory_format)));
}

std::string describe_file(const fs::path& path) {
  return fmt::format("{} {} {}\n", path.string(), fs::file_size(path), fs::last_write_time(path).time_since_epoch().count());
}

// Adds the names, sizes and modification times of all files of the data set, to detect changes as `make` does.
void add_files(const data::DatasetFactory& dataset, Logger& logger, datasets::Digest& digest) {
  const auto folder = dataset.locate(logger);
  std::vector<fs::path> files;
  if (dataset.list_files) {
    files = dataset.list_files();
  } else {
    for (const auto& entry : fs::recursive_directory_iterator(folder, fs::directory_options::follow_directory_symlink)) {
      if (entry.is_regular_file()) files.push_back(fs::relative(entry.path(), folder));
    }
  }
  std::ranges::sort(files);
  for (const auto& file : files) digest.update(describe_file(folder / file));
}

// The training or validation samples whose features are wanted.
struct Request {
  engine::Samples samples;
  const std::vector<ComponentConfig>& transforms;
  std::string kind;            // such as "training"
  std::string transforms_key;  // such as "dataset.train_transforms"
};

// The name of the file of features; empty if the files of the data set are unknown.
std::string name_of(const Request& request, const config::Experiment& experiment, const engine::Network& network,
                    const data::DatasetFactory& dataset, Logger& logger) {
  if (!dataset.locate) return "";
  datasets::Digest digest("SHA256");
  digest.update(fmt::format("{} {}\n", run::trainer_version(), run::git_revision()));
  for (const auto& plugin : experiment.plugins) digest.update(describe_file(plugin));
  for (const auto& [key, text, facts] : config::values_of(experiment, recipe::all_registries())) {
    if (facts.affects_features || key == request.transforms_key) digest.update(fmt::format("{}: {}\n", key, text));
  }
  add_network(network, digest);
  digest.update(fmt::format("{}\n", experiment.training.overfit_batches.value_or(0)));
  const auto& samples = request.samples.dataset();
  for (int64_t i = 0; i < samples.size(); ++i) {
    const auto origin = samples.origin(i);
    digest.update(fmt::format("{} {}\n", origin.index, origin.name));
  }
  try {
    add_files(dataset, logger, digest);
  } catch (const UsageError&) {
    return "";  // the data set's files are not in one folder
  }
  return fmt::format("{}-{}-{}-{}.safetensors", experiment.model.component.name, experiment.dataset.component.name, request.kind,
                     digest.hexadecimal().substr(0, 16));
}

// The ranks of this host: their number, the index of this rank among them, and the lowest rank.
struct HostRanks {
  int size = 1;
  int index = 0;
  int first = 0;
};

HostRanks host_ranks_of(const RankContext& context) {
  const auto& infos = context.ranks().infos;
  HostRanks host{.size = 0};
  for (int rank = 0; rank < static_cast<int>(infos.size()); ++rank) {
    if (!distributed::same_host(infos[static_cast<size_t>(rank)], infos[static_cast<size_t>(context.rank())])) continue;
    if (host.size == 0) host.first = rank;
    if (rank == context.rank()) host.index = host.size;
    ++host.size;
  }
  return host.size == 0 ? HostRanks() : host;
}

// Computes this rank's part of the features, batch by batch; the ranks of the host divide the samples among themselves.
class Computation {
 public:
  Computation(const engine::Network& network, engine::DataSource source, const HostRanks& host)
      : network_(network), source_(std::move(source)), host_(host), batch_size_(source_.batches->batch_size()) {
    const int64_t num_samples = source_.samples.size();
    num_batches_ = (num_samples + batch_size_ - 1) / batch_size_;
    std::vector<int64_t> indices;
    std::vector<int64_t> sizes;
    for (int64_t number = host_.index; number < num_batches_; number += host_.size) {
      const auto end = std::min((number + 1) * batch_size_, num_samples);
      for (int64_t i = number * batch_size_; i < end; ++i) indices.push_back(i);
      sizes.push_back(end - number * batch_size_);
    }
    source_.batches->start_epoch(0, [&](int /*rank*/) {
      return engine::RankShard{data::SampleList(std::move(indices)), std::move(sizes)};
    });
  }

  bool is_done() const { return next_ >= num_batches_; }
  double part_done() const { return static_cast<double>(std::min(next_, num_batches_)) / static_cast<double>(num_batches_); }

  // Computes this rank's next batch, if it has one left. `use` receives the features of the batch, [N, ...] on the CPU, and the index of
  // its first sample.
  void step(const std::function<void(const torch::Tensor& features, int64_t first_sample)>& use) {
    const torch::InferenceMode inference;
    const auto number = next_ + host_.index;
    next_ += host_.size;
    if (number >= num_batches_) return;
    const auto* batch = source_.batches->next();
    const auto images = source_.on_device.copy(*batch).images;
    const amp::AutocastGuard autocast(network_.placement.device.type(), network_.placement.autocast_dtype);
    const device::NoSearchForSmallBatch no_search(batch->size < batch_size_);
    auto& model = dynamic_cast<models::BackboneModel&>(*network_.model);
    use(model.forward_features(images).to(torch::kCPU, torch::kFloat32).contiguous(), number * batch_size_);
  }

 private:
  const engine::Network& network_;
  engine::DataSource source_;
  HostRanks host_;
  int64_t batch_size_;
  int64_t num_batches_ = 0;
  int64_t next_ = 0;
};

// Collective. `path`: an existing file to write; empty on a host that already has the features.
void compute(RankContext& context, const HostRanks& host, const engine::Network& network, const Request& request,
             const std::vector<int64_t>& shape, const fs::path& path) {
  using Clock = std::chrono::steady_clock;
  auto& barrier = context.barrier();
  auto& logger = context.logger();
  const auto header = header_of(request.samples.size(), shape);
  const auto num_values = static_cast<uint64_t>(c10::multiply_integers(shape));
  auto logged = Clock::now();
  Descriptor file;
  std::optional<Computation> computation;
  barrier.on_all_ranks([&] {
    if (path.empty()) return;
    file = open_regular_file(path, O_WRONLY);
    if (file.number() < 0) fail_to_write(path);
    auto source = recipe::make_source(recipe::recipe_of(context.experiment(), logger), request.transforms, network.placement,
                                      context.ranks(), request.samples);
    computation.emplace(network, std::move(source), host);
    if (context.rank() != 0) return;
    logger.info("computing the features of {} (training.cache_features)", counted(request.samples.size(), request.kind + " image"));
  });
  // The ranks wait for each other regularly, so that none runs into the timeout of a barrier.
  constexpr std::chrono::seconds kBetweenWaits(5);
  const auto compute_some = [&]() -> std::string {
    if (!computation) return "";
    for (const auto begin = Clock::now(); Clock::now() - begin < kBetweenWaits && !computation->is_done();) {
      context.ranks().activity->enter(distributed::Phase::kValidation);
      if (stop_signal() != 0) throw Error("stopped on request while computing features", ExitCode::kStopped);
      computation->step([&](const torch::Tensor& features, int64_t first_sample) {
        const auto offset = header.size() + static_cast<uint64_t>(first_sample) * num_values * sizeof(float);
        write_at(file, {static_cast<const char*>(features.const_data_ptr()), features.nbytes()}, offset, path);
      });
    }
    if (context.rank() == 0 && Clock::now() - logged > std::chrono::seconds(10)) {
      logged = Clock::now();
      logger.info("features: {:.0f} %", 100 * computation->part_done());
    }
    context.ranks().activity->enter(distributed::Phase::kStartUp);
    return computation->is_done() ? "" : "not done";
  };
  const auto is_done = [](const std::string& text) { return text.empty(); };
  while (!std::ranges::all_of(barrier.gather(compute_some), is_done)) {
  }
  barrier.on_all_ranks([&] {
    if (path.empty()) return;
    if (context.rank() == host.first) write_at(file, header, 0, path);
    // Flushed so that the file is complete when a later run finds it under its final name, even after a power failure.
    if (::fdatasync(file.number()) != 0) fail_to_write(path);
  });
}

constexpr const char* kPartial = ".partial";

// An incomplete file. The destructor removes it unless it was renamed. A process that makes a file also removes those of killed processes,
// which nobody has written to for a day: whether a process of another host has ended cannot be known.
class PartialFile {
 public:
  explicit PartialFile(const fs::path& path) : path_(path) {
    if (open_regular_file(path, O_RDWR | O_CREAT).number() < 0) fail_to_write(path);
    const auto yesterday = fs::file_time_type::clock::now() - std::chrono::days(1);
    for (const auto& entry : fs::directory_iterator(path.parent_path())) {
      std::error_code removed;
      if (!entry.path().string().ends_with(kPartial)) continue;
      if (entry.last_write_time(removed) < yesterday && !removed) fs::remove(entry.path(), removed);
    }
  }
  ~PartialFile() {
    std::error_code ignored;
    fs::remove(path_, ignored);
  }
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

 private:
  fs::path path_;
};

// Calls `act`. Adds a remedy to its errors about files.
template <class Act>
auto with_remedy(const Act& act) {
  try {
    return act();
  } catch (const Error&) {
    throw;
  } catch (const std::runtime_error& error) {
    fail_to_store(error.what());
  }
}

engine::Samples cache(RankContext& context, const engine::Network& network, const Request& request, const std::vector<int64_t>& shape) {
  auto& barrier = context.barrier();
  auto& logger = context.logger();
  const auto host = host_ranks_of(context);
  const bool is_first = context.rank() == host.first;
  const auto dataset = samples::dataset_of(context.experiment());
  fs::path target;  // empty if a later run could not detect changes of the samples
  std::optional<PartialFile> partial;
  const auto places = barrier.gather([&]() -> std::string {
    if (!is_first) return "";
    return with_remedy([&]() -> std::string {
      const auto folder = fs::path(home_folder()) / "features";
      datasets::create_folders(folder);
      const auto name = name_of(request, context.experiment(), network, dataset, logger);
      if (!name.empty()) target = folder / name;
      if (!name.empty() && fs::exists(target)) return target.string();
      const auto path = folder / fmt::format(".{}{}", random_token(), kPartial);
      partial.emplace(path);
      return path.string();
    });
  });
  const auto is_missing = [&](const std::string& place) { return place.ends_with(kPartial); };
  const auto& place = places[static_cast<size_t>(host.first)];
  if (std::ranges::any_of(places, is_missing)) compute(context, host, network, request, shape, is_missing(place) ? place : "");
  const auto features = barrier.make_on_all_ranks([&] { return std::make_shared<FeatureDataset>(request.samples, shape, place); });
  barrier.on_all_ranks([&] {
    if (!partial || target.empty()) return;
    with_remedy([&] { fs::rename(place, target); });
    flush_folder(target.parent_path());
  });
  if (context.rank() == 0) {
    const auto what = fmt::format("the features of {}", counted(request.samples.size(), request.kind + " image"));
    if (partial) {
      logger.info("{} were computed for all epochs{}", what, target.empty() ? "" : "; they are stored in " + target.string());
    } else {
      logger.info("{} were found in {}", what, place);
    }
  }
  return {request.samples, features};
}

}  // namespace

std::vector<int64_t> shape_of_features(const engine::Network& network, const std::vector<int64_t>& sample_shape,
                                       const config::Experiment& experiment) {
  const auto refuse = [&](const char* problem) {
    throw UsageError(
        fmt::format("{}: the network {} {}", experiment.place_of("training.cache_features"), experiment.model.component.name, problem));
  };
  auto* model = dynamic_cast<models::BackboneModel*>(network.model.get());
  if (model == nullptr) refuse("does not separate its backbone from its head (models::BackboneModel); remove this key");
  model->eval();
  auto shape = sample_shape;
  shape.insert(shape.begin(), 1);
  const auto images = torch::zeros(shape, torch::TensorOptions(network.placement.device).dtype(network.placement.input_dtype));
  const amp::AutocastGuard autocast(network.placement.device.type(), network.placement.autocast_dtype);
  const auto features = model->forward_features(images);
  if (features.requires_grad()) refuse("trains parameters of its backbone, so its features change; set model.freeze: [backbone]");
  model->train();
  for (const auto& module : model->modules()) {
    const bool is_norm = dynamic_cast<const nn::BatchNorm2d*>(module.get()) != nullptr || nn::is_libtorch_batch_norm(*module);
    if (is_norm && module->is_training()) refuse("uses batch statistics in training, so its features change; set model.freeze: [backbone]");
  }
  model->eval();
  return features.sizes().slice(1).vec();
}

engine::Data cache_features(RankContext& context, engine::Network& network, engine::Data images,
                            const recipe::Recipe::MakeData& make_data) {
  const auto& section = context.experiment().dataset;
  const auto shape = context.barrier().make_on_all_ranks(
      [&] { return shape_of_features(network, images.train.pipeline.output_shape(), context.experiment()); });
  engine::TrainingSamples samples{
      {.train = cache(context, network, {images.train.samples, section.train_transforms, "training", "dataset.train_transforms"}, shape)},
      std::move(images.sampler),
      images.plan.samples_per_epoch};
  if (images.validation) {
    samples.opened.validation =
        cache(context, network, {images.validation->samples, section.validation_transforms, "validation", "dataset.validation_transforms"},
              shape);
  }
  network.model->train();
  dynamic_cast<models::BackboneModel&>(*network.model).take_features();
  return make_data(std::move(samples));
}

}  // namespace trainer::rank
