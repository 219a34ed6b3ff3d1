// Gradients of batch normalisation, and of the relu after it: two passes over memory, sums over each channel,
// then the input's gradient.
#include <array>
#include <vector>

#include "tensor/cpu/channel_sums.h"
#include "tensor/cpu/kernel_families.h"

namespace mezzo::cpu {
namespace {

/// What both passes read, and the second writes.
struct Operands {
  View grad_input, grad_residual, grad_out, out, input;
  bool relu;
};

/// The walk over an Operands' views. What is not given takes the input's place: it is neither read nor
/// written.
enum Walked { input, grad_out, out, grad_residual, grad_input, kWalked };
Columns columns_of(const Operands& operands) {
  const auto or_input = [&](const View& view) { return view.given() ? &view : &operands.input; };
  const std::array<const View*, kWalked> views{&operands.input, &operands.grad_out, or_input(operands.out),
                                               or_input(operands.grad_residual),
                                               or_input(operands.grad_input)};
  return channels_of(views);
}

/// The gradients that reach the normalised sum in a strip: all of grad_out, or what passes the relu, where
/// its output was not 0. Where no output is given, the sum is made again.
template <class T>
class Arriving {
 public:
  Arriving(const Operands& operands, const Columns& columns, const NormNumbers<T>& numbers, int64_t strip)
      : operands_(operands),
        columns_(columns),
        lanes_(columns.lanes(strip)),
        mean_(numbers.mean, columns, strip),
        scale_(numbers.scale, columns, strip),
        bias_(numbers.bias, columns, strip) {}

  /// Those of a piece with inputs x: in memory, or in `buffer`.
  const T* read(const Columns::Offsets& at, const T* x, int64_t n, T* buffer) const {
    const T* g = read_run(operands_.grad_out, at[grad_out], columns_.stride(grad_out), n, buffer);
    if (!operands_.relu) return g;
    if (operands_.out.given()) {
      T out_buffer[kChunk];
      const T* y = read_run(operands_.out, at[out], columns_.stride(out), n, out_buffer);
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) buffer[i] = y[i] == T(0) ? T(0) : g[i];  // NaN passes
      return buffer;
    }
    for (int64_t i = 0; i < n; i += lanes_) {
      const int64_t m = std::min(lanes_, n - i);
#pragma omp simd
      for (int64_t j = 0; j < m; ++j) {
        const T sum = (x[i + j] - mean_.value[j]) * scale_.value[j] + bias_.value[j];
        buffer[i + j] = sum <= T(0) ? T(0) : g[i + j];
      }
    }
    return buffer;
  }

 private:
  const Operands& operands_;
  const Columns& columns_;
  int64_t lanes_;
  Lanes<T> mean_, scale_, bias_;
};

/// Sums of g and of g * (x - mean) over a block of a strip.
template <class T>
void block_sums(const Operands& operands, const Columns& columns, const NormNumbers<T>& numbers,
                int64_t strip, int64_t block, Pair sums_out) {
  const int64_t width = columns.width(strip), lanes = columns.lanes(strip);
  const Lanes<T> mean(numbers.mean, columns, strip);
  const Arriving<T> arriving(operands, columns, numbers, strip);
  Sums<T> sums(lanes);
  columns.for_pieces(strip, block, [&](const Columns::Offsets& at, int64_t n, int64_t) {
    T x_buffer[kChunk], g_buffer[kChunk];
    const T* x = read_run(operands.input, at[input], columns.stride(input), n, x_buffer);
    const T* g = arriving.read(at, x, n, g_buffer);
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
  sums.finish(width, sums_out);
}

/// grad_input = scale * (g - base - (x - mean) * slope), or scale * g without `batch_statistics`; and
/// grad_residual = g.
template <class T, bool batch_statistics>
void write_gradients(const Operands& operands, const Columns& columns, const NormNumbers<T>& numbers,
                     const std::vector<T>& bases, const std::vector<T>& slopes) {
  columns.for_blocks([&](int64_t strip, int64_t block) {
    const Lanes<T> scale(numbers.scale, columns, strip), mean(numbers.mean, columns, strip);
    const Lanes<T> base(bases, columns, strip), slope(slopes, columns, strip);
    const Arriving<T> arriving(operands, columns, numbers, strip);
    const int64_t lanes = columns.lanes(strip);
    columns.for_pieces(strip, block, [&](const Columns::Offsets& at, int64_t n, int64_t) {
      T x_buffer[kChunk], g_buffer[kChunk], dx_buffer[kChunk];
      const T* x = read_run(operands.input, at[input], columns.stride(input), n, x_buffer);
      const T* g = arriving.read(at, x, n, g_buffer);
      if (operands.grad_residual.given())
        store_run(address(operands.grad_residual, at[grad_residual]), operands.grad_residual.dtype,
                  columns.stride(grad_residual), g, n);
      if (!operands.grad_input.given()) return;
      T* dx = write_run(operands.grad_input, at[grad_input], columns.stride(grad_input), n, dx_buffer);
      for (int64_t i = 0; i < n; i += lanes) {
        const int64_t m = std::min(lanes, n - i);
#pragma omp simd
        for (int64_t j = 0; j < m; ++j) {
          T value = g[i + j];
          if constexpr (batch_statistics)
            value -= base.value[j] + (x[i + j] - mean.value[j]) * slope.value[j];
          dx[i + j] = scale.value[j] * value;
        }
      }
      write_back(operands.grad_input, at[grad_input], columns.stride(grad_input), n, dx);
    });
  });
}

template <class T>
void backward_as(const Operands& operands, const View& grad_weight, const View& grad_bias, const View& mean,
                 const View& invstd, const View& weight, const View& bias, bool batch_statistics) {
  const Columns columns = columns_of(operands);
  const int64_t channels = columns.columns();
  // Of no rows the sums are 0, and invstd is NaN.
  const NormNumbers<T> numbers(channels, mean, columns.rows() == 0 ? View() : invstd, weight, bias);

  Partial partial(columns);
  columns.for_blocks([&](int64_t strip, int64_t block) {
    block_sums(operands, columns, numbers, strip, block, partial.at(block, columns.first_column(strip)));
  });
  const Pair sums = partial.at(0);
  for (int64_t block = 1; block < columns.blocks(); ++block) {
    const Pair more = partial.at(block);
    for (int64_t c = 0; c < channels; ++c) {
      sums.first[c] += more.first[c];
      sums.second[c] += more.second[c];
    }
  }
  for (size_t c = 0; c < numbers.invstd.size(); ++c) sums.second[c] *= static_cast<double>(numbers.invstd[c]);
  store_per_channel(grad_bias, partial.first());
  store_per_channel(grad_weight, partial.second());
  if (!operands.grad_input.given() && !operands.grad_residual.given()) return;

  std::vector<T> bases(numbers.mean.size()), slopes(numbers.mean.size());
  const auto n = static_cast<double>(columns.rows());
  for (size_t c = 0; c < bases.size(); ++c) {
    bases[c] = static_cast<T>(sums.first[c] / n);
    slopes[c] = static_cast<T>(sums.second[c] * static_cast<double>(numbers.invstd[c]) / n);
  }
  (batch_statistics ? write_gradients<T, true> : write_gradients<T, false>)(operands, columns, numbers, bases,
                                                                            slopes);
}

void backward(const View& grad_input, const View& grad_weight, const View& grad_bias, const View& grad_out,
              const View& input, const View& mean, const View& invstd, const View& weight,
              bool batch_statistics) {
  const auto run = input.dtype == DType::float64 ? backward_as<double> : backward_as<float>;
  run({grad_input, {}, grad_out, {}, input, false}, grad_weight, grad_bias, mean, invstd, weight, {},
      batch_statistics);
}

void backward_relu(const View& grad_input, const View& grad_weight, const View& grad_bias,
                   const View& grad_residual, const View& grad_out, const View& out, const View& input,
                   const View& mean, const View& invstd, const View& weight, const View& bias,
                   bool batch_statistics) {
  const auto run = input.dtype == DType::float64 ? backward_as<double> : backward_as<float>;
  run({grad_input, grad_residual, grad_out, out, input, true}, grad_weight, grad_bias, mean, invstd, weight,
      bias, batch_statistics);
}

}  // namespace

void add_batch_norm_grad(Kernels& table) {
  table.batch_norm_grad = backward;
  table.batch_norm_relu_grad = backward_relu;
}

}  // namespace mezzo::cpu
