// Batch normalisation with a residual addition and an activation on a GPU, for tensors in channels_last. NVRTC compiles this text after
// gpu_arguments.h; tests compile both for the host. The including code defines TRAINER_VALUE, the type of the tensors: float, BFloat16 or
// Float16, TRAINER_KERNEL(name), the beginning of a kernel's declaration, TRAINER_UNROLL, which unrolls the loop after it: without it,
// NVRTC may keep the values of a thread in memory instead of registers, and TRAINER_ACTIVATION(used), which is `used` but lets the compiler
// know the only activation other than none.
//
// Kernels over rows: the threads of a block in x compute neighbouring vectors of 16 bytes, those in y different rows. The block (x, y)
// computes the x-th group of channels of the y-th part of the rows. The last block of a group of channels to write its sums also adds those
// of all parts, which saves another kernel. Sums are added in an order that depends only on the shape.
//
// Kernels over channels have one thread for each channel.

namespace trainer::nn::fused_norm {

struct BFloat16 {
  unsigned short bits;
};
struct Float16 {
  unsigned short bits;
};

__device__ inline float to_float(float value) { return value; }
__device__ inline float to_float(BFloat16 value) { return __builtin_bit_cast(float, static_cast<unsigned>(value.bits) << 16); }
__device__ inline void from_float(float value, float& result) { result = value; }
#ifdef __CUDA_ARCH__
__device__ inline float to_float(Float16 value) {
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
  return result;
}
__device__ inline void from_float(float value, Float16& result) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(value)); }
#else
#ifdef __aarch64__
using HostHalf = __fp16;
#else
using HostHalf = _Float16;
#endif
__device__ inline float to_float(Float16 value) { return static_cast<float>(__builtin_bit_cast(HostHalf, value.bits)); }
__device__ inline void from_float(float value, Float16& result) {
  result.bits = __builtin_bit_cast(unsigned short, static_cast<HostHalf>(value));
}
#endif
__device__ inline void from_float(float value, BFloat16& result) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
#else
  const auto bits = __builtin_bit_cast(unsigned, value);
  const unsigned rounded = bits + 0x7fff + (bits >> 16 & 1);
  result.bits = static_cast<unsigned short>(value != value ? 0x7fff : rounded >> 16);
#endif
}

// The values that one thread reads at once: 16 bytes.
template <class S>
constexpr int kWidth = static_cast<int>(16 / sizeof(S));

template <class S>
struct alignas(16) Vector {
  S values[kWidth<S>];
};

// The position of a thread in a kernel over rows.
template <class S>
struct Place {
  int channel;           // the first of kWidth<S>
  bool is_inside;        // whether the thread has channels
  long long begin, end;  // the part of the rows

  __device__ explicit Place(const Rows& rows) {
    channel = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) * kWidth<S>;
    is_inside = channel < rows.num_channels;
    begin = rows.num_rows * blockIdx.y / gridDim.y;
    end = rows.num_rows * (blockIdx.y + 1) / gridDim.y;
  }

  // Calls act(read(index), index) with the index of the first value of each of the thread's vectors. Reads kAtOnce vectors before it uses
  // the first of them, so that the memory has more to do at a time.
  template <int kAtOnce, class Read, class Act>
  __device__ void for_each_vector(const Rows& rows, const Read& read, const Act& act) const {
    if (!is_inside) return;
    const long long step = static_cast<long long>(blockDim.y) * rows.num_channels;
    long long index = (begin + threadIdx.y) * rows.num_channels + channel;
    const long long last = end * rows.num_channels;
    for (; index + (kAtOnce - 1) * step < last; index += kAtOnce * step) {
      decltype(read(index)) values[kAtOnce];
      TRAINER_UNROLL
      for (int i = 0; i < kAtOnce; ++i) values[i] = read(index + i * step);
      TRAINER_UNROLL
      for (int i = 0; i < kAtOnce; ++i) act(values[i], index + i * step);
    }
    for (; index < last; index += step) act(read(index), index);
  }
};

template <class S>
__device__ inline Vector<S> load(const void* values, long long index) {
  return *reinterpret_cast<const Vector<S>*>(static_cast<const S*>(values) + index);
}

template <class S>
__device__ inline void store(const Vector<S>& vector, void* values, long long index) {
  *reinterpret_cast<Vector<S>*>(static_cast<S*>(values) + index) = vector;
}

// Reads one value per channel, from an address that is a multiple of 16.
template <class S>
__device__ inline void read_channels(float (&result)[kWidth<S>], const float* values, const Place<S>& place) {
  if (!place.is_inside) return;
  for (int i = 0; i < kWidth<S>; i += kWidth<float>) {
    const auto vector = load<float>(values, place.channel + i);
    for (int j = 0; j < kWidth<float>; ++j) result[i + j] = vector.values[j];
  }
}

// Replaces `values` of the block's first row of threads by the sums of those of all rows of threads.
template <int kSize>
__device__ inline void add_rows_of_threads(float (&values)[kSize], float (&shared)[kSize][kSumThreads]) {
  const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
  for (int i = 0; i < kSize; ++i) shared[i][thread] = values[i];
  for (unsigned half = blockDim.y / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.y < half) {
      for (int i = 0; i < kSize; ++i) shared[i][thread] += shared[i][thread + half * blockDim.x];
    }
  }
  for (int i = 0; i < kSize; ++i) values[i] = shared[i][thread];
}

// Unlike max(), keeps NaN.
__device__ inline float positive_or_zero(float value) { return value < 0 ? 0 : value; }

__device__ inline float zero_to_six(float value) { return value > 6 ? 6 : positive_or_zero(value); }
__device__ inline float sigmoid(float value) { return 1 / (1 + expf(-value)); }

__device__ inline float activated(GpuActivation activation, float value) {
  switch (activation) {
    case kGpuRelu:
      return positive_or_zero(value);
    case kGpuRelu6:
      return zero_to_six(value);
    case kGpuHardswish:
      return value * zero_to_six(value + 3) / 6;
    case kGpuSilu:
      return value * sigmoid(value);
    default:
      return value;
  }
}

// The gradient of an activation with this input; for a ReLU, its output may be given instead. For NaN, the gradient of the output of a
// ReLU, ReLU6 or hardswish passes, as in LibTorch.
__device__ inline float passed_back(GpuActivation activation, float value, float gradient) {
  switch (activation) {
    case kGpuRelu:
      return value <= 0 ? 0 : gradient;
    case kGpuRelu6:
      return value <= 0 || value >= 6 ? 0 : gradient;
    case kGpuHardswish:
      return value <= -3 ? 0 : value < 3 ? gradient * (value / 3 + 0.5F) : gradient;
    case kGpuSilu: {
      const float share = sigmoid(value);
      return gradient * (share * fmaf(value, 1 - share, 1.0F));
    }
    default:
      return gradient;
  }
}

// Whether this block is the last one of its group of channels to call this function; what the others have written before is visible then.
// `num_arrived`: a counter for each group of channels, which is 0 before and after the kernel.
__device__ inline bool is_last_block(unsigned* num_arrived) {
  __shared__ bool is_last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0 && threadIdx.y == 0) {
    is_last = atomicAdd(num_arrived + blockIdx.x, 1U) == gridDim.y - 1;
    if (is_last) num_arrived[blockIdx.x] = 0;
  }
  __syncthreads();
  __threadfence();
  return is_last;
}

// Adds values of all parts, in a kernel over channels.
struct OneThread {
  int channel;

  template <class Value>
  __device__ double sum(int num_parts, const Value& value) const {
    double sum = 0;
    for (int part = 0; part < num_parts; ++part) sum += value(part);
    return sum;
  }
};

// Adds values of all parts, in the last block of a group of channels. The threads of a channel share the parts.
struct LastBlock {
  int channel;     // of threads beyond the last channel, the last one
  bool is_writer;  // whether the thread writes the results of the channel
  int group_size, lane, num_lanes;
  double* shared;  // kSumThreads values

  template <class S>
  __device__ static LastBlock make(int num_channels, S /*type*/, double* shared) {
    const int thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
    const int size = static_cast<int>(blockDim.x) * kWidth<S>;
    const int channel = static_cast<int>(blockIdx.x) * size + thread % size;
    const bool is_inside = channel < num_channels;
    return {is_inside ? channel : num_channels - 1, is_inside && thread < size, size, thread / size, kSumThreads / size, shared};
  }

  // Called by all threads of the block.
  template <class Value>
  __device__ double sum(int num_parts, const Value& value) const {
    const int thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
    double sum = 0;
    for (int part = lane; part < num_parts; part += num_lanes) sum += value(part);
    __syncthreads();
    shared[thread] = sum;
    for (int half = num_lanes / 2; half > 0; half /= 2) {
      __syncthreads();
      if (lane < half) shared[thread] += shared[thread + half * group_size];
    }
    __syncthreads();
    return shared[thread % group_size];
  }
};

struct Moments {
  double mean, var, count;
};

// var_of(value) is the variance for the value that a part has for it. `parts` is volatile, because other blocks may have written it during
// the kernel.
template <class Adder, class VarOf>
__device__ inline Moments merged_moments(const Adder& adder, const volatile float* parts, int num_parts, int num_channels,
                                         const VarOf& var_of) {
  const auto value = [=](int part, int index) { return static_cast<double>(parts[part * (2LL * num_channels + 1) + index]); };
  const int at_count = 2 * num_channels;
  const int c = adder.channel;
  Moments all{};
  all.count = adder.sum(num_parts, [&](int part) { return value(part, at_count); });
  if (all.count == 0) return all;  // a rank without samples
  all.mean = adder.sum(num_parts, [&](int part) { return value(part, c) * value(part, at_count); }) / all.count;
  all.var = adder.sum(num_parts, [&](int part) {
    const double difference = value(part, c) - all.mean;
    const double count = value(part, at_count);
    return count == 0 ? 0 : (var_of(value(part, num_channels + c)) + difference * difference) * count;
  });
  all.var /= all.count;
  return all;
}

__device__ inline void write_statistics(const StatisticsArguments& a, int c, const Moments& all) {
  const double invstd = 1 / sqrt(all.var + a.eps);
  const double scale = invstd * a.weight[c];
  a.mean[c] = static_cast<float>(all.mean);
  a.invstd[c] = static_cast<float>(invstd);
  a.scale[c] = static_cast<float>(scale);
  a.shift[c] = static_cast<float>(a.bias[c] - all.mean * scale);
  if (c == 0) *a.count = static_cast<float>(all.count);
}

__device__ inline void update_running_statistics(const StatisticsArguments& a, int c, const Moments& all) {
  const double mean = a.running_mean[c];
  const double var = a.running_var[c];
  const double unbiased_var = all.var * all.count / (all.count - 1);
  a.running_mean[c] = static_cast<float>(mean + (all.mean - mean) * a.batch_weight);
  a.running_var[c] = static_cast<float>(var + (unbiased_var - var) * a.batch_weight);
}

// Differences from the first row of the part are added, so that a large mean does not round them.
TRAINER_KERNEL(moments)(MomentsArguments a) {
  using S = TRAINER_VALUE;
  constexpr int kSize = kWidth<S>;
  __shared__ float shared[kSize][kSumThreads];
  __shared__ double sums[kSumThreads];
  const int num_channels = a.rows.num_channels;
  const Place<S> place(a.rows);
  float first[kSize] = {};
  float sum[kSize] = {};
  float square[kSize] = {};
  if (place.is_inside) {
    const auto x = load<S>(a.x, place.begin * num_channels + place.channel);
    for (int i = 0; i < kSize; ++i) first[i] = to_float(x.values[i]);
  }
  const auto read = [&](long long index) { return load<S>(a.x, index); };
  place.for_each_vector<4>(a.rows, read, [&](const Vector<S>& x, long long) {
    for (int i = 0; i < kSize; ++i) {
      const float difference = to_float(x.values[i]) - first[i];
      sum[i] += difference;
      square[i] = fmaf(difference, difference, square[i]);
    }
  });
  add_rows_of_threads(sum, shared);
  __syncthreads();
  add_rows_of_threads(square, shared);
  if (threadIdx.y == 0 && place.is_inside) {
    const auto count = static_cast<float>(place.end - place.begin);
    float* part = a.parts + blockIdx.y * (2LL * num_channels + 1);
    for (int i = 0; i < kSize; ++i) {
      const float mean = sum[i] / count;
      part[place.channel + i] = first[i] + mean;
      part[num_channels + place.channel + i] = positive_or_zero(square[i] / count - mean * mean);
    }
    // Each group of channels writes the count, so that its last block need not wait for another group.
    if (threadIdx.x == 0) part[2LL * num_channels] = count;
  }
  if (!is_last_block(a.num_arrived)) return;
  const auto last = LastBlock::make(num_channels, S(), sums);
  const auto all = merged_moments(last, a.parts, static_cast<int>(gridDim.y), num_channels, [](double var) { return var; });
  if (!last.is_writer) return;
  const int c = last.channel;
  if (a.merged == nullptr) {
    write_statistics(a.statistics, c, all);
    update_running_statistics(a.statistics, c, all);
  } else {
    a.merged[c] = static_cast<float>(all.mean);
    a.merged[num_channels + c] = static_cast<float>(1 / sqrt(all.var + a.statistics.eps));
    if (c == 0) a.merged[2LL * num_channels] = static_cast<float>(all.count);
  }
}

TRAINER_KERNEL(statistics)(StatisticsArguments a) {
  const int c = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (c >= a.num_channels) return;
  if (a.parts == nullptr) {
    write_statistics(a, c, {a.running_mean[c], a.running_var[c], 1});
  } else {
    const auto var_of = [&](double invstd) {
      const double var = 1 / (invstd * invstd) - a.eps;
      return var < 0 ? 0 : var;
    };
    const auto all = merged_moments(OneThread{c}, a.parts, a.num_parts, a.num_channels, var_of);
    write_statistics(a, c, all);
    update_running_statistics(a, c, all);
  }
}

TRAINER_KERNEL(normalise)(NormaliseArguments a) {
  using S = TRAINER_VALUE;
  constexpr int kSize = kWidth<S>;
  const Place<S> place(a.rows);
  float scale[kSize];
  float shift[kSize];
  read_channels<S>(scale, a.scale, place);
  read_channels<S>(shift, a.shift, place);
  struct Values {
    Vector<S> x, residual;
  };
  const auto read = [&](long long index) {
    return Values{load<S>(a.x, index), a.residual != nullptr ? load<S>(a.residual, index) : Vector<S>{}};
  };
  place.for_each_vector<2>(a.rows, read, [&](const Values& values, long long index) {
    Vector<S> y;
    for (int i = 0; i < kSize; ++i) {
      const float value = fmaf(to_float(values.x.values[i]), scale[i], shift[i]) + to_float(values.residual.values[i]);
      from_float(activated(TRAINER_ACTIVATION(a.activation), value), y.values[i]);
    }
    store(y, a.y, index);
  });
}

// Computes the wanted results of a channel from the sums of dy and of dy * (x - mean).
__device__ inline void write_gradients(const GradientsArguments& a, int c, double sum, double product) {
  if (a.sums != nullptr) {
    a.sums[c] = static_cast<float>(sum);
    a.sums[a.num_channels + c] = static_cast<float>(product);
  }
  const double invstd = a.invstd[c];
  if (a.dweight != nullptr) a.dweight[c] = static_cast<float>(product * invstd);
  if (a.dbias != nullptr) a.dbias[c] = static_cast<float>(sum);
  if (a.x_factor == nullptr) return;
  // dx = (dy - mean(dy) - (x - mean) * invstd² * mean(dy * (x - mean))) * scale
  const double share = a.scale[c] / static_cast<double>(*a.count);
  const double x_factor = -share * invstd * invstd * product;
  a.x_factor[c] = static_cast<float>(x_factor);
  a.constant[c] = static_cast<float>(-share * sum - x_factor * a.mean[c]);
}

TRAINER_KERNEL(gradient_sums)(GradientSumsArguments a) {
  using S = TRAINER_VALUE;
  constexpr int kSize = kWidth<S>;
  __shared__ float shared[kSize][kSumThreads];
  __shared__ double sums[kSumThreads];
  const int num_channels = a.rows.num_channels;
  const Place<S> place(a.rows);
  float mean[kSize];
  float scale[kSize];
  float shift[kSize];
  read_channels<S>(mean, a.gradients.mean, place);
  read_channels<S>(scale, a.gradients.scale, place);
  read_channels<S>(shift, a.shift, place);
  float sum[kSize] = {};
  float product[kSize] = {};
  struct Values {
    Vector<S> x, dy, y;
  };
  const auto read = [&](long long index) {
    return Values{load<S>(a.x, index), load<S>(a.dy, index), a.y != nullptr ? load<S>(a.y, index) : Vector<S>{}};
  };
  place.for_each_vector<2>(a.rows, read, [&](const Values& values, long long index) {
    Vector<S> masked = values.dy;
    for (int i = 0; i < kSize; ++i) {
      const float x = to_float(values.x.values[i]);
      const float y = a.y != nullptr ? to_float(values.y.values[i]) : fmaf(x, scale[i], shift[i]);
      const float gradient = passed_back(TRAINER_ACTIVATION(a.activation), y, to_float(values.dy.values[i]));
      from_float(gradient, masked.values[i]);
      sum[i] += gradient;
      product[i] = fmaf(gradient, x - mean[i], product[i]);
    }
    if (a.masked != nullptr) store(masked, a.masked, index);
  });
  add_rows_of_threads(sum, shared);
  __syncthreads();
  add_rows_of_threads(product, shared);
  if (threadIdx.y == 0 && place.is_inside) {
    float* part = a.parts + blockIdx.y * 2LL * num_channels + place.channel;
    for (int i = 0; i < kSize; ++i) {
      part[i] = sum[i];
      part[num_channels + i] = product[i];
    }
  }
  if (!is_last_block(a.num_arrived)) return;
  const auto last = LastBlock::make(num_channels, S(), sums);
  const int c = last.channel;
  const volatile float* parts = a.parts;
  const auto value = [=](int part, int row) { return static_cast<double>(parts[(part * 2LL + row) * num_channels + c]); };
  const int num_parts = static_cast<int>(gridDim.y);
  const double all_sum = last.sum(num_parts, [&](int part) { return value(part, 0); });
  const double all_product = last.sum(num_parts, [&](int part) { return value(part, 1); });
  if (last.is_writer) write_gradients(a.gradients, c, all_sum, all_product);
}

// For sums over all ranks.
TRAINER_KERNEL(gradients)(GradientsArguments a) {
  const int c = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (c < a.num_channels) write_gradients(a, c, a.sums[c], a.sums[a.num_channels + c]);
}

TRAINER_KERNEL(input_gradient)(InputGradientArguments a) {
  using S = TRAINER_VALUE;
  constexpr int kSize = kWidth<S>;
  const Place<S> place(a.rows);
  const bool has_statistics = a.x_factor != nullptr;
  float scale[kSize];
  float shift[kSize];
  float x_factor[kSize];
  float constant[kSize];
  read_channels<S>(scale, a.scale, place);
  read_channels<S>(shift, a.shift, place);
  if (has_statistics) {
    read_channels<S>(x_factor, a.x_factor, place);
    read_channels<S>(constant, a.constant, place);
  }
  struct Values {
    Vector<S> x, dy;
  };
  const auto read = [&](long long index) {
    return Values{has_statistics || a.activation != kGpuNone ? load<S>(a.x, index) : Vector<S>{}, load<S>(a.dy, index)};
  };
  place.for_each_vector<2>(a.rows, read, [&](const Values& values, long long index) {
    Vector<S> dx;
    for (int i = 0; i < kSize; ++i) {
      const float x = to_float(values.x.values[i]);
      const float gradient = passed_back(TRAINER_ACTIVATION(a.activation), fmaf(x, scale[i], shift[i]), to_float(values.dy.values[i]));
      // Without batch statistics, x is not multiplied by 0, because it may be infinite.
      const float result = has_statistics ? fmaf(gradient, scale[i], fmaf(x, x_factor[i], constant[i])) : gradient * scale[i];
      from_float(result, dx.values[i]);
    }
    store(dx, a.dx, index);
  });
}

}  // namespace trainer::nn::fused_norm
