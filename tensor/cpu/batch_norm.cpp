// Batch normalisation: statistics and normalisation are a pass over memory each, the gradients two (sums,
// then the input's gradient). Arithmetic is in T, float or double; what a block of rows adds up to is
// combined in double.
#include <array>
#include <functional>
#include <utility>
#include <vector>

#include "tensor/cpu/columns.h"
#include "tensor/cpu/kernel_families.h"

namespace mezzo::cpu {
namespace {

/// The channels are the columns, all other dimensions the rows.
Columns channels_of(std::span<const View* const> views) {
  return Columns(views, static_cast<int>(views.size()), [](int d) { return d != 1; });
}

/// One number per channel, as T.
template <class T>
std::vector<T> per_channel(const View& view, int64_t channels, T otherwise) {
  std::vector<T> values(static_cast<size_t>(channels), otherwise);
  if (view.given()) load_run(values.data(), address(view, 0), view.dtype, view.strides[0], channels);
  return values;
}

void store_per_channel(const View& view, std::span<const double> values) {
  store_run(address(view, 0), view.dtype, view.strides[0], values.data(),
            static_cast<int64_t>(values.size()));
}

/// A strip's numbers per channel, repeated for each lane.
template <class T>
struct Lanes {
  T value[kChunk];
  Lanes(const std::vector<T>& channels, const Columns& columns, int64_t strip) {
    const int64_t width = columns.width(strip);
    std::copy_n(channels.data() + columns.first_column(strip), width, value);
    repeat_lanes(value, columns.lanes(strip), width);
  }
};

/// Two sums per channel of a block of rows or of all: side by side for a strip, or for all channels.
struct Pair {
  double *first, *second;
};

/// The pairs of every block; block 0 becomes the whole's.
class Partial {
 public:
  explicit Partial(const Columns& columns)
      : channels_(columns.columns()), values_(static_cast<size_t>(2 * channels_ * columns.blocks())) {}

  Pair at(int64_t block, int64_t channel = 0) {
    double* first = values_.data() + 2 * block * channels_ + channel;
    return {first, first + channels_};
  }
  std::span<const double> first() const { return {values_.data(), static_cast<size_t>(channels_)}; }
  std::span<const double> second() const {
    return {values_.data() + channels_, static_cast<size_t>(channels_)};
  }

 private:
  int64_t channels_;
  std::vector<double> values_;
};

/// Two sums per lane, in T for a few dozen additions, then in double: so the error is that of a short sum.
template <class T>
class Sums {
 public:
  T first[kChunk], second[kChunk];

  explicit Sums(int64_t lanes) : lanes_(lanes) {
    std::fill_n(total_first_, lanes, 0.0);
    std::fill_n(total_second_, lanes, 0.0);
    clear();
  }
  /// Says that each lane has been added to `times` times.
  void added(int64_t times) {
    additions_ += times;
    if (additions_ >= kShort) spill();
  }
  /// The sums per column.
  void finish(int64_t width, Pair out) {
    spill();
    fold_lanes(total_first_, lanes_, width, std::plus<double>());
    fold_lanes(total_second_, lanes_, width, std::plus<double>());
    std::copy_n(total_first_, width, out.first);
    std::copy_n(total_second_, width, out.second);
  }

 private:
  static constexpr int64_t kShort = 32;

  void clear() {
    std::fill_n(first, lanes_, T(0));
    std::fill_n(second, lanes_, T(0));
    additions_ = 0;
  }
  void spill() {
    for (int64_t j = 0; j < lanes_; ++j) {
      total_first_[j] += static_cast<double>(first[j]);
      total_second_[j] += static_cast<double>(second[j]);
    }
    clear();
  }

  int64_t lanes_, additions_;
  double total_first_[kChunk], total_second_[kChunk];
};

// --- statistics

/// Means of a piece's columns, one for each lane.
template <class T>
void piece_means(T* means, const T* x, int64_t n, int64_t lanes, int64_t width) {
  std::fill_n(means, lanes, T(0));
  for (int64_t i = 0; i < n; i += lanes) {
    const int64_t m = std::min(lanes, n - i);
#pragma omp simd
    for (int64_t j = 0; j < m; ++j) means[j] += x[i + j];
  }
  fold_lanes(means, lanes, width, std::plus<T>());
  for (int64_t j = 0; j < width; ++j) means[j] /= static_cast<T>(n / width);
  repeat_lanes(means, lanes, width);
}

/// Mean and sum of squared deviations from it, over a block of a strip, from sums of x - shift: near the
/// mean, here that of the block's first piece, nothing cancels.
template <class T>
void block_moments(const Columns& columns, int64_t strip, int64_t block, const View& input, Pair out) {
  const int64_t width = columns.width(strip), lanes = columns.lanes(strip), stride = columns.stride(0);
  T shift[kChunk] = {};
  bool first = true;
  Sums<T> sums(lanes);
  columns.for_pieces(strip, block, [&](const Columns::Offsets& at, int64_t n, int64_t) {
    T buffer[kChunk];
    const T* x = read_run(input, at[0], stride, n, buffer);
    if (std::exchange(first, false)) piece_means(shift, x, n, lanes, width);
    for (int64_t i = 0; i < n; i += lanes) {
      const int64_t m = std::min(lanes, n - i);
#pragma omp simd
      for (int64_t j = 0; j < m; ++j) {
        const T d = x[i + j] - shift[j];
        sums.first[j] += d;
        sums.second[j] += d * d;
      }
    }
    sums.added((n + lanes - 1) / lanes);
  });
  sums.finish(width, out);
  const auto n = static_cast<double>(columns.rows_of(block));
  for (int64_t j = 0; j < width; ++j) {
    const double above = out.first[j] / n, deviation = out.second[j] - above * above * n;
    out.first[j] = static_cast<double>(shift[j]) + above;
    out.second[j] = deviation < 0 ? 0 : deviation;  // rounding; NaN stays
  }
}

/// Merges the mean and squared deviations of n_b rows into those of n_a rows. Chan, Golub, LeVeque (1979).
void merge_moments(Pair a, double n_a, Pair b, double n_b, int64_t channels) {
  const double share = n_b / (n_a + n_b);
  for (int64_t c = 0; c < channels; ++c) {
    const double delta = b.first[c] - a.first[c];
    a.first[c] += delta * share;
    a.second[c] += b.second[c] + delta * delta * n_a * share;
  }
}

template <class T>
void statistics_as(const View& mean, const View& var, const View& input) {
  const std::array<const View*, 1> views{&input};
  const Columns columns = channels_of(views);
  Partial partial(columns);
  columns.for_blocks([&](int64_t strip, int64_t block) {
    block_moments<T>(columns, strip, block, input, partial.at(block, columns.first_column(strip)));
  });
  auto n = static_cast<double>(columns.rows_of(0));
  for (int64_t block = 1; block < columns.blocks(); ++block) {
    const auto more = static_cast<double>(columns.rows_of(block));
    merge_moments(partial.at(0), n, partial.at(block), more, columns.columns());
    n += more;
  }
  store_per_channel(mean, partial.first());
  std::vector<double> variances(partial.second().begin(), partial.second().end());
  for (double& variance : variances) variance /= n;
  store_per_channel(var, variances);
}

// --- forward

template <class T>
void forward_as(const View& out, const View& input, const View& mean_, const View& invstd, const View& weight,
                const View& bias_) {
  const std::array<const View*, 2> views{&input, &out};
  const Columns columns = channels_of(views);
  const int64_t channels = columns.columns();
  const auto means = per_channel<T>(mean_, channels, 0), biases = per_channel<T>(bias_, channels, 0);
  const auto weights = per_channel<T>(weight, channels, 1);
  auto scales = per_channel<T>(invstd, channels, 1);
  for (size_t c = 0; c < scales.size(); ++c) scales[c] *= weights[c];

  columns.for_blocks([&](int64_t strip, int64_t block) {
    const Lanes<T> mean(means, columns, strip), scale(scales, columns, strip), bias(biases, columns, strip);
    const int64_t lanes = columns.lanes(strip);
    columns.for_pieces(strip, block, [&](const Columns::Offsets& at, int64_t n, int64_t) {
      T in_buffer[kChunk], out_buffer[kChunk];
      const T* x = read_run(input, at[0], columns.stride(0), n, in_buffer);
      T* y = write_run(out, at[1], columns.stride(1), n, out_buffer);
      for (int64_t i = 0; i < n; i += lanes) {
        const int64_t m = std::min(lanes, n - i);
#pragma omp simd
        for (int64_t j = 0; j < m; ++j) {
          y[i + j] = (x[i + j] - mean.value[j]) * scale.value[j] + bias.value[j];
        }
      }
      write_back(out, at[1], columns.stride(1), n, y);
    });
  });
}

// --- backward

/// Sums of g and of g * (x - mean) over a block of a strip.
template <class T>
void block_sums(const Columns& columns, int64_t strip, int64_t block, const View& grad_out, const View& input,
                const std::vector<T>& means, Pair out) {
  const int64_t width = columns.width(strip), lanes = columns.lanes(strip);
  const Lanes<T> mean(means, columns, strip);
  Sums<T> sums(lanes);
  columns.for_pieces(strip, block, [&](const Columns::Offsets& at, int64_t n, int64_t) {
    T x_buffer[kChunk], g_buffer[kChunk];
    const T* x = read_run(input, at[0], columns.stride(0), n, x_buffer);
    const T* g = read_run(grad_out, at[1], columns.stride(1), n, g_buffer);
    for (int64_t i = 0; i < n; i += lanes) {
      const int64_t m = std::min(lanes, n - i);
#pragma omp simd
      for (int64_t j = 0; j < m; ++j) {
        sums.first[j] += g[i + j];
        sums.second[j] += g[i + j] * (x[i + j] - mean.value[j]);
      }
    }
    sums.added((n + lanes - 1) / lanes);
  });
  sums.finish(width, out);
}

/// grad_input = factor * (g - base - (x - mean) * slope), or factor * g without `batch_statistics`.
template <class T, bool batch_statistics>
void input_gradient(const Columns& columns, const View& grad_input, const View& grad_out, const View& input,
                    const std::vector<T>& factors, const std::vector<T>& means, const std::vector<T>& bases,
                    const std::vector<T>& slopes) {
  columns.for_blocks([&](int64_t strip, int64_t block) {
    const Lanes<T> factor(factors, columns, strip), mean(means, columns, strip);
    const Lanes<T> base(bases, columns, strip), slope(slopes, columns, strip);
    const int64_t lanes = columns.lanes(strip);
    columns.for_pieces(strip, block, [&](const Columns::Offsets& at, int64_t n, int64_t) {
      T x_buffer[kChunk], g_buffer[kChunk], out_buffer[kChunk];
      const T* x = batch_statistics ? read_run(input, at[0], columns.stride(0), n, x_buffer) : nullptr;
      const T* g = read_run(grad_out, at[1], columns.stride(1), n, g_buffer);
      T* out = write_run(grad_input, at[2], columns.stride(2), n, out_buffer);
      for (int64_t i = 0; i < n; i += lanes) {
        const int64_t m = std::min(lanes, n - i);
#pragma omp simd
        for (int64_t j = 0; j < m; ++j) {
          T value = g[i + j];
          if constexpr (batch_statistics)
            value -= base.value[j] + (x[i + j] - mean.value[j]) * slope.value[j];
          out[i + j] = factor.value[j] * value;
        }
      }
      write_back(grad_input, at[2], columns.stride(2), n, out);
    });
  });
}

template <class T>
void backward_as(const View& grad_input, const View& grad_weight, const View& grad_bias, const View& grad_out,
                 const View& input, const View& mean, const View& invstd, const View& weight,
                 bool batch_statistics) {
  const std::array<const View*, 3> views{&input, &grad_out, &grad_input};
  const Columns columns = channels_of(std::span(views).first(grad_input.given() ? 3 : 2));
  const int64_t channels = columns.columns();
  const auto means = per_channel<T>(mean, channels, 0), invstds = per_channel<T>(invstd, channels, 1);

  Partial partial(columns);
  columns.for_blocks([&](int64_t strip, int64_t block) {
    block_sums(columns, strip, block, grad_out, input, means, partial.at(block, columns.first_column(strip)));
  });
  const Pair sums = partial.at(0);
  for (int64_t block = 1; block < columns.blocks(); ++block) {
    const Pair more = partial.at(block);
    for (int64_t c = 0; c < channels; ++c) {
      sums.first[c] += more.first[c];
      sums.second[c] += more.second[c];
    }
  }
  for (size_t c = 0; c < invstds.size(); ++c) sums.second[c] *= static_cast<double>(invstds[c]);
  store_per_channel(grad_bias, partial.first());
  store_per_channel(grad_weight, partial.second());
  if (!grad_input.given()) return;

  auto factors = per_channel<T>(weight, channels, 1);
  std::vector<T> bases(factors.size()), slopes(factors.size());
  const auto n = static_cast<double>(columns.rows());
  for (size_t c = 0; c < factors.size(); ++c) {
    factors[c] *= invstds[c];
    bases[c] = static_cast<T>(sums.first[c] / n);
    slopes[c] = static_cast<T>(sums.second[c] * static_cast<double>(invstds[c]) / n);
  }
  const auto run = batch_statistics ? input_gradient<T, true> : input_gradient<T, false>;
  run(columns, grad_input, grad_out, input, factors, means, bases, slopes);
}

// --- the table's entries

void statistics(const View& mean, const View& var, const View& input) {
  (input.dtype == DType::float64 ? statistics_as<double> : statistics_as<float>)(mean, var, input);
}

void forward(const View& out, const View& input, const View& mean, const View& invstd, const View& weight,
             const View& bias) {
  (input.dtype == DType::float64 ? forward_as<double> : forward_as<float>)(out, input, mean, invstd, weight,
                                                                           bias);
}

void backward(const View& grad_input, const View& grad_weight, const View& grad_bias, const View& grad_out,
              const View& input, const View& mean, const View& invstd, const View& weight,
              bool batch_statistics) {
  (input.dtype == DType::float64 ? backward_as<double>
                                 : backward_as<float>)(grad_input, grad_weight, grad_bias, grad_out, input,
                                                       mean, invstd, weight, batch_statistics);
}

}  // namespace

void add_batch_norm(Kernels& table) {
  table.batch_norm_statistics = statistics;
  table.batch_norm = forward;
  table.batch_norm_grad = backward;
}

}  // namespace mezzo::cpu
