// Batch normalisation forward: statistics and normalisation are a pass over memory each. Arithmetic is in T,
// float or double; what a block of rows adds up to is combined in double.
#include <array>
#include <functional>
#include <utility>
#include <vector>

#include "tensor/cpu/channel_sums.h"
#include "tensor/cpu/kernel_families.h"

namespace mezzo::cpu {
namespace {

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
                const View& bias_, const View& residual, bool relu) {
  const std::array<const View*, 3> views{&input, &out, &residual};
  const Columns columns = channels_of(std::span(views).first(residual.given() ? 3 : 2));
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
      if (residual.given()) {
        const T* r = read_run(residual, at[2], columns.stride(2), n, in_buffer);
#pragma omp simd
        for (int64_t i = 0; i < n; ++i) y[i] += r[i];
      }
      if (relu) {
#pragma omp simd
        for (int64_t i = 0; i < n; ++i) y[i] = y[i] < T(0) ? T(0) : y[i];
      }
      write_back(out, at[1], columns.stride(1), n, y);
    });
  });
}

// --- the table's entries

void statistics(const View& mean, const View& var, const View& input) {
  (input.dtype == DType::float64 ? statistics_as<double> : statistics_as<float>)(mean, var, input);
}

void forward(const View& out, const View& input, const View& mean, const View& invstd, const View& weight,
             const View& bias) {
  const auto run = input.dtype == DType::float64 ? forward_as<double> : forward_as<float>;
  run(out, input, mean, invstd, weight, bias, {}, false);
}

void forward_relu(const View& out, const View& input, const View& mean, const View& invstd,
                  const View& weight, const View& bias, const View& residual) {
  const auto run = input.dtype == DType::float64 ? forward_as<double> : forward_as<float>;
  run(out, input, mean, invstd, weight, bias, residual, true);
}

}  // namespace

void add_batch_norm(Kernels& table) {
  table.batch_norm_statistics = statistics;
  table.batch_norm = forward;
  table.batch_norm_relu = forward_relu;
}

}  // namespace mezzo::cpu
