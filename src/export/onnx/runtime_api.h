#pragma once
// The functions of ONNX Runtime's C interface that runtime.cpp calls. Debian 12 has no package of the library, and the Python package
// contains it without its header. The interface is a table to which each version appends functions. The positions of these functions,
// which all versions from 1.2 on have, therefore never change (include/onnxruntime/core/session/onnxruntime_c_api.h of
// microsoft/onnxruntime).

#include <cstddef>
#include <cstdint>

namespace trainer::onnx::api {

struct Status;  // null means success
struct Env;
struct SessionOptions;
struct Session;
struct RunOptions;
struct Value;
struct TypeInfo;
struct TensorInfo;
struct MemoryInfo;
struct Allocator;
struct ModelMetadata;

inline constexpr int kLogFatal = 4;         // ORT_LOGGING_LEVEL_FATAL
inline constexpr int kArenaAllocator = 1;   // OrtArenaAllocator
inline constexpr int kDefaultMemory = 0;    // OrtMemTypeDefault
inline constexpr uint32_t kApiVersion = 2;  // the first version that has all of these functions

using Unused = void (*)();

struct Functions {
  Unused unused_0[2];
  const char* (*get_error_message)(const Status*);
  Status* (*create_env)(int log_level, const char* id, Env**);
  Unused unused_4[3];
  Status* (*create_session)(const Env*, const char* path, const SessionOptions*, Session**);
  Unused unused_8[1];
  Status* (*run)(Session*, const RunOptions*, const char* const* input_names, const Value* const* inputs, size_t num_inputs,
                 const char* const* output_names, size_t num_outputs, Value** outputs);
  Status* (*create_session_options)(SessionOptions**);
  Unused unused_11[13];
  Status* (*set_intra_op_num_threads)(SessionOptions*, int);
  Unused unused_25[5];
  Status* (*session_get_input_count)(const Session*, size_t*);
  Status* (*session_get_output_count)(const Session*, size_t*);
  Unused unused_32[1];
  Status* (*session_get_input_type_info)(const Session*, size_t index, TypeInfo**);
  Unused unused_34[2];
  Status* (*session_get_input_name)(const Session*, size_t index, Allocator*, char**);
  Status* (*session_get_output_name)(const Session*, size_t index, Allocator*, char**);
  Unused unused_38[11];
  Status* (*create_tensor_with_data)(const MemoryInfo*, void* data, size_t num_bytes, const int64_t* shape, size_t num_dimensions, int type,
                                     Value**);
  Unused unused_50[1];
  Status* (*get_tensor_mutable_data)(Value*, void**);
  Unused unused_52[3];
  Status* (*cast_type_info_to_tensor_info)(const TypeInfo*, const TensorInfo**);  // owned by the TypeInfo
  Unused unused_56[4];
  Status* (*get_tensor_element_type)(const TensorInfo*, int*);
  Status* (*get_dimensions_count)(const TensorInfo*, size_t*);
  Status* (*get_dimensions)(const TensorInfo*, int64_t*, size_t count);
  Unused unused_63[2];
  Status* (*get_tensor_type_and_shape)(const Value*, TensorInfo**);
  Unused unused_66[3];
  Status* (*create_cpu_memory_info)(int allocator_type, int memory_type, MemoryInfo**);
  Unused unused_70[6];
  Status* (*allocator_free)(Allocator*, void*);
  Unused unused_77[1];
  Status* (*get_default_allocator)(Allocator**);  // owned by the library
  Unused unused_79[13];
  void (*release_env)(Env*);
  void (*release_status)(Status*);
  void (*release_memory_info)(MemoryInfo*);
  void (*release_session)(Session*);
  void (*release_value)(Value*);
  Unused unused_97[1];
  void (*release_type_info)(TypeInfo*);
  void (*release_tensor_info)(TensorInfo*);
  void (*release_session_options)(SessionOptions*);
  Unused unused_101[10];
  Status* (*session_get_model_metadata)(const Session*, ModelMetadata**);
  Unused unused_112[4];
  Status* (*metadata_lookup)(const ModelMetadata*, Allocator*, const char* key, char**);  // null if there is no such key
  Unused unused_117[1];
  void (*release_model_metadata)(ModelMetadata*);
};
static_assert(offsetof(Functions, create_tensor_with_data) == 49 * sizeof(Unused));
static_assert(offsetof(Functions, release_model_metadata) == 118 * sizeof(Unused));

// The result of OrtGetApiBase, which the library exports.
struct Base {
  const Functions* (*get_functions)(uint32_t version);
  const char* (*get_version)();
};
inline constexpr const char* kEntry = "OrtGetApiBase";
using Entry = const Base* (*)();

}  // namespace trainer::onnx::api
