#include "export/onnx/runtime.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/program.h"
#include "base/text.h"
#include "export/interface.h"
#include "export/onnx/runtime_api.h"
#include "trainer/error.h"

namespace trainer::onnx {
namespace {

namespace fs = std::filesystem;

// Returns the library of the Python package onnxruntime, or an empty string if python3 or the package is not installed.
std::string find_python_package() {
  std::string python;
  try {
    python = find_program("python3");
  } catch (const Error&) {
    return "";
  }
  // It is quoted for the shell.
  if (python.find('\'') != std::string::npos) return "";
  // Only absolute folders, because Python would search the current folder first, and execute what lies there.
  constexpr auto kCommand =
      "' -c 'import sys; sys.path = [p for p in sys.path if p.startswith(\"/\")]; import glob, importlib.util as u; s = "
      "u.find_spec(\"onnxruntime\"); "
      "print(*glob.glob((s.submodule_search_locations[0] if s else \"/none\") + \"/capi/libonnxruntime.so*\"), sep=\"\\n\")' 2> /dev/null";
  std::string output;
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(('\'' + python + kCommand).c_str(), "re"), &::pclose);
  std::array<char, 4096> part{};
  while (pipe && std::fgets(part.data(), part.size(), pipe.get()) != nullptr) output += part.data();
  return output.substr(0, output.find('\n'));
}

// The library is never closed, because its threads may outlive a session.
const api::Base& load_runtime(const fs::path& runtime) {
  std::vector<std::string> files = {"libonnxruntime.so.1", "libonnxruntime.so"};
  if (!runtime.empty()) files = {runtime.string()};
  void* library = nullptr;
  std::string file, reason;
  const auto open = [&](const std::string& name) {
    file = name;
    library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) reason = ::dlerror();
    return library != nullptr;
  };
  if (!std::ranges::any_of(files, open) && !runtime.empty()) {
    throw UsageError(fmt::format("--runtime {}: the library cannot be loaded: {}; give libonnxruntime.so of ONNX Runtime", file, reason));
  }
  if (library == nullptr) {
    const auto package = find_python_package();
    if (package.empty() || !open(package)) {
      throw UsageError(
          fmt::format("ONNX Runtime, which runs .onnx files, cannot be loaded: {}; install it for the python3 in PATH "
                      "(pip install onnxruntime), or give its library with --runtime",
                      reason));
    }
  }
  const auto entry = reinterpret_cast<api::Entry>(::dlsym(library, api::kEntry));
  if (entry != nullptr) return *entry();
  throw UsageError(fmt::format("{}: it is not the library of ONNX Runtime; give libonnxruntime.so with --runtime", file));
}

// ONNX's numbers for the types that a network's input and output can have.
constexpr std::array<std::pair<int, torch::ScalarType>, 4> kTypes = {
    {{1, torch::kFloat32}, {2, torch::kUInt8}, {10, torch::kFloat16}, {11, torch::kFloat64}}};

std::optional<torch::ScalarType> dtype_of(int type) {
  for (const auto& [number, dtype] : kTypes) {
    if (number == type) return dtype;
  }
  return std::nullopt;
}

int type_of(torch::ScalarType dtype) {
  for (const auto& [number, other] : kTypes) {
    if (other == dtype) return number;
  }
  throw std::logic_error("unsupported type of an input");
}

class Network : public exported::ExportedNetwork {
  using Functions = api::Functions;

 public:
  Network(const fs::path& file, const fs::path& runtime, int num_threads) : file_(file), base_(load_runtime(runtime)) {
    engine = fmt::format("ONNX Runtime {}", base_.get_version());
    functions_ = base_.get_functions(api::kApiVersion);
    if (functions_ == nullptr) throw UsageError(fmt::format("{} is too old; install version 1.2 or later", engine));
    env_ = create(&Functions::release_env, &Functions::create_env, api::kLogFatal, "trainer");
    memory_ = create(&Functions::release_memory_info, &Functions::create_cpu_memory_info, api::kArenaAllocator, api::kDefaultMemory);
    allocator_ = get<api::Allocator*>(&Functions::get_default_allocator);
    const auto options = create(&Functions::release_session_options, &Functions::create_session_options);
    check(functions_->set_intra_op_num_threads(options.get(), num_threads));
    session_ = create(&Functions::release_session, &Functions::create_session, env_.get(), file_.c_str(), options.get());
    read_input();
    read_output();
    read_description();
  }

  torch::Tensor run(const torch::Tensor& input) override {
    const auto value = create(&Functions::release_value, &Functions::create_tensor_with_data, memory_.get(), input.data_ptr(),
                              input.nbytes(), input.sizes().data(), input.sizes().size(), type_of(input.scalar_type()));
    const std::array<const api::Value*, 1> values = {value.get()};
    const std::array<const char*, 1> input_names = {input_name_.c_str()};
    const std::array<const char*, 1> output_names = {output_name_.c_str()};
    const auto output = create(&Functions::release_value, &Functions::run, session_.get(), nullptr, input_names.data(), values.data(), 1,
                               output_names.data(), 1);
    const auto info = create(&Functions::release_tensor_info, &Functions::get_tensor_type_and_shape, output.get());
    const auto dtype = dtype_of(get<int>(&Functions::get_tensor_element_type, info.get()));
    if (!dtype || dtype == torch::kUInt8)
      throw Error(fmt::format("{}: its output {} does not consist of floating-point numbers; give a file with a floating-point output",
                              file_.string(), output_name_));
    auto* data = get<void*>(&Functions::get_tensor_mutable_data, output.get());
    return torch::from_blob(data, shape_of(info.get()), *dtype).clone();
  }

 private:
  // Owns an object that the library has created.
  template <class T>
  using Owner = std::unique_ptr<T, std::function<void(T*)>>;

  // Calls a function whose last parameter receives the result.
  template <class T, class... Parameters, class... Arguments>
  T get(api::Status* (*Functions::*function)(Parameters...), Arguments... arguments) const {
    T result{};
    check((functions_->*function)(arguments..., &result));
    return result;
  }

  template <class T, class... Parameters, class... Arguments>
  Owner<T> create(void (*Functions::*release)(T*), api::Status* (*Functions::*function)(Parameters...), Arguments... arguments) const {
    return {get<T*>(function, arguments...), functions_->*release};
  }

  void check(api::Status* status) const {
    if (status == nullptr) return;
    const auto message = printable_line(functions_->get_error_message(status));
    functions_->release_status(status);
    const auto text = fmt::format("{}: {} cannot run this network: {}", file_.string(), engine, message);
    if (session_ == nullptr) throw UsageError(text);
    throw Error(text);
  }

  std::string take_text(char* text) const {
    if (text == nullptr) return "";
    std::string copy = text;
    check(functions_->allocator_free(allocator_, text));
    return copy;
  }

  std::vector<int64_t> shape_of(const api::TensorInfo* info) const {
    std::vector<int64_t> shape(get<size_t>(&Functions::get_dimensions_count, info));
    check(functions_->get_dimensions(info, shape.data(), shape.size()));
    return shape;
  }

  void read_input() {
    const auto count = get<size_t>(&Functions::session_get_input_count, session_.get());
    if (count != 1)
      throw UsageError(fmt::format("{}: the network has {} inputs; give a file with a network that has one input", file_.string(), count));
    input_name_ = take_text(get<char*>(&Functions::session_get_input_name, session_.get(), 0, allocator_));
    const auto type_info = create(&Functions::release_type_info, &Functions::session_get_input_type_info, session_.get(), 0);
    const auto* info = get<const api::TensorInfo*>(&Functions::cast_type_info_to_tensor_info, type_info.get());
    const auto dtype = info == nullptr ? std::nullopt : dtype_of(get<int>(&Functions::get_tensor_element_type, info));
    if (!dtype) {
      throw UsageError(fmt::format(
          "{}: its input {} consists neither of pixels (uint8) nor of floating-point numbers; give a file with an input of these types",
          file_.string(), input_name_));
    }
    input_dtype = *dtype;
    input_shape = shape_of(info);
  }

  void read_output() {
    const auto count = get<size_t>(&Functions::session_get_output_count, session_.get());
    for (size_t i = 0; i < count && !gives_answers; ++i) {
      const auto text = take_text(get<char*>(&Functions::session_get_output_name, session_.get(), i, allocator_));
      gives_answers = exported::are_answers(text);
      if (i == 0 || gives_answers) output_name_ = text;
    }
  }

  void read_description() {
    const auto metadata = create(&Functions::release_model_metadata, &Functions::session_get_model_metadata, session_.get());
    const auto text = take_text(get<char*>(&Functions::metadata_lookup, metadata.get(), allocator_, "trainer"));
    checkpoint_sha256 = exported::read_description(text, file_.string()).checkpoint_sha256;
  }

  fs::path file_;
  const api::Base& base_;
  const Functions* functions_ = nullptr;
  Owner<api::Env> env_;
  Owner<api::MemoryInfo> memory_;
  api::Allocator* allocator_ = nullptr;
  Owner<api::Session> session_;
  std::string input_name_;
  std::string output_name_;
};

}  // namespace

std::unique_ptr<exported::ExportedNetwork> open_network(const fs::path& file, const fs::path& runtime, int num_threads) {
  return std::make_unique<Network>(file, runtime, num_threads);
}

}  // namespace trainer::onnx
