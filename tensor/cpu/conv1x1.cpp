// 1x1 convolutions between batch normalisations, and linear maps, which are those without: a pass over
// memory for each direction. Pixels are rows; a thread takes a tile of rows at a time: it normalises what it
// reads while the tile is in the cache, multiplies, and reduces what it writes. Rows are converted one by
// one, so that dtypes are nobody else's matter.
//
// Rows are cut into chunks in a way that shapes alone decide, and what chunks add up to is combined in order:
// results have the same bits for any number of threads.
#include <limits>
#include <utility>
#include <vector>

#include "tensor/cpu/channels.h"
#include "tensor/cpu/kernel_families.h"
#include "tensor/cpu/linear.h"
#include "tensor/cpu/lines.h"
#include "tensor/cpu/panel_products.h"
#include "tensor/cpu/rounded_products.h"
#include "tensor/cpu/row_chunks.h"
#include "tensor/pointwise.h"

namespace mezzo::cpu {
namespace {

/// What becomes of an input before it is multiplied: a NormRelu, gelu or nothing. A norm that is not given
/// has no numbers.
template <class T>
struct Before : NormNumbers<T> {
  using NormNumbers<T>::mean, NormNumbers<T>::scale, NormNumbers<T>::bias;
  int64_t columns;
  bool norm, gelu;

  Before(const NormRelu& norm_relu, LinearWith with, int64_t columns)
      : NormNumbers<T>(norm_relu.mean.given() ? columns : 0, norm_relu.mean, norm_relu.invstd,
                       norm_relu.weight, norm_relu.bias),
        columns(columns),
        norm(norm_relu.mean.given()),
        gelu(with == LinearWith::gelu_before) {}

  bool nothing() const { return !norm && !gelu; }
  T before_relu(T x, size_t c) const { return (x - mean[c]) * scale[c] + bias[c]; }

  /// x itself, or what becomes of it, in `buffer`.
  const T* apply(const T* x, T* buffer) const {
    if (nothing()) return x;
    if (gelu) {
      fill_line(buffer, columns,
                [&](int64_t c, int64_t n) { return pointwise::Gelu::value(Vec<T>::load(x + c, n, 0)); });
      return buffer;
    }
#pragma omp simd
    for (size_t c = 0; c < mean.size(); ++c) {
      const T y = before_relu(x[c], c);
      buffer[c] = y < T(0) ? T(0) : y;
    }
    return buffer;
  }
  /// gelu(x) in `buffer`, and its slope, which has most of its terms.
  const T* apply_gelu(const T* x, T* buffer, T* slope) const {
    for_vectors<T>(0, columns, [&](int, int64_t c, int64_t n) {
      const Vec<T> v = Vec<T>::load(x + c, n, 0), probability = pointwise::Gelu::probability(v);
      (v * probability).store(buffer + c, n);
      (probability + v * pointwise::Gelu::density(v)).store(slope + c, n);
    });
    return buffer;
  }
};

/// Mean and squared deviations of columns, a tile after the other, each about its first row: within a tile a
/// first row far from the mean costs digits that it has to spare.
template <class T>
class Moments {
 public:
  explicit Moments(int64_t columns) : shift_(size(columns)), sum_(size(columns)), squares_(size(columns)) {}

  void add(const T* row) {
    if (rows_++ == 0) std::copy_n(row, shift_.size(), shift_.begin());
#pragma omp simd
    for (size_t c = 0; c < shift_.size(); ++c) {
      const T d = row[c] - shift_[c];
      sum_[c] += d;
      squares_[c] += d * d;
    }
  }

  /// Merges the tile into what `before` rows left in `total`.
  void finish_tile(Pair total, double before) {
    const auto n = static_cast<double>(std::exchange(rows_, 0));
    for (size_t c = 0; c < shift_.size(); ++c) {
      double above = static_cast<double>(std::exchange(sum_[c], T(0))) / n;
      double deviation = static_cast<double>(std::exchange(squares_[c], T(0))) - above * above * n;
      if (deviation < 0) deviation = 0;  // rounding; NaN stays
      double mean = static_cast<double>(shift_[c]) + above;
      merge_moments({total.first + c, total.second + c}, before, {&mean, &deviation}, n, 1);
    }
  }

 private:
  static size_t size(int64_t columns) { return static_cast<size_t>(columns); }
  std::vector<T> shift_, sum_, squares_;
  int64_t rows_ = 0;
};

/// `rows` rows of a matrix, of which the first and some may lie behind the end.
void add_ahead(Ahead& ahead, const View& matrix, int64_t row, int64_t rows) {
  if (matrix.given()) ahead.add(matrix, row * matrix.strides[0], std::min(rows, matrix.shape[0] - row));
}

/// mean and var may be not given.
template <class Products>
void forward_as(const View& out, const View& mean, const View& var, const View& x, const NormRelu& norm_relu,
                const View& weight, const View& bias, LinearWith with) {
  using T = typename Products::Real;
  const int64_t P = x.shape[0], C = x.shape[1], O = out.shape[1];
  const Products products(weight, P, {.forward = true});
  // As many as threads could share; each has sums of its own, so more would cost memory.
  const Chunks chunks(P, products.tile_rows(), 64);
  const Workspaces<Products> workspaces(products, chunks.parts(C * O), C, O);
  const int64_t measured = mean.given() ? O : 0;
  std::vector<Moments<T>> moments(static_cast<size_t>(chunks.parts(C * O)), Moments<T>(measured));
  ChunkSums totals(std::max<int64_t>(1, chunks.count), measured);
  const Before<T> before(norm_relu, with, C);
  auto biases = per_channel<T>(bias, O, 0);
  biases.resize(static_cast<size_t>(Tile<T>::panels(O) * Tile<T>::kWidth));

  chunks.for_tiles(C * O, [&](int64_t chunk, int64_t first, int64_t rows, int64_t part) {
    auto tiles = products.tiles(workspaces.products(part));
    T *buffer = workspaces.line(part, 0), *line = workspaces.line(part, 1);
    if (!before.nothing() || !tiles.take_input(x, first, rows)) {
      for (int64_t i = 0; i < rows; ++i)
        tiles.put_input(i, before.apply(Rows<T>{x}.read(first + i, buffer), line));
    }
    tiles.put_result_in(out, first, rows, O);
    Ahead ahead;
    add_ahead(ahead, x, first + rows, rows);
    tiles.multiply_input(rows, biases, with == LinearWith::relu_after, ahead);
    for (int64_t i = 0; i < rows; ++i) {
      Rows<T>{out}.finish(first + i, tiles.result(i));
      if (mean.given())
        moments[static_cast<size_t>(part)].add(Rows<T>{out}.read(first + i, buffer));  // rounded
    }
    if (mean.given())
      moments[static_cast<size_t>(part)].finish_tile(totals.at(chunk),
                                                     static_cast<double>(first - chunks.begin(chunk)));
  });

  if (!mean.given()) return;
  for (int64_t chunk = 1; chunk < chunks.count; ++chunk) {
    const int64_t begin = chunks.begin(chunk);
    merge_moments(totals.at(0), static_cast<double>(begin), totals.at(chunk),
                  static_cast<double>(chunks.begin(chunk + 1) - begin), O);
  }
  const double unknown = P == 0 ? std::numeric_limits<double>::quiet_NaN() : 0;  // of no pixels
  std::vector<double> means, variances;
  for (const double m : totals.first()) means.push_back(m + unknown);
  for (const double m2 : totals.second()) variances.push_back(m2 / static_cast<double>(P));
  store_per_channel(mean, means);
  store_per_channel(var, variances);
}

/// G = grad_out + offset + slope * (out - mean), where the latter are what the gradients of the statistics
/// add; or, after a relu, grad_out where `out` is not 0.
template <class T>
struct OutputGradient {
  std::vector<T> offset, slope, mean;
  bool relu, plain;  ///< plain: G is grad_out

  OutputGradient(const View& grad_mean, const View& grad_var, const View& mean_, bool relu, int64_t P,
                 int64_t O)
      : offset(per_channel<T>(grad_mean, O, 0)),
        slope(per_channel<T>(grad_var, O, 0)),
        mean(per_channel<T>(mean_, O, 0)),
        relu(relu),
        plain(!grad_mean.given() && !grad_var.given() && !relu) {
    for (T& value : offset) value /= static_cast<T>(P);
    for (T& value : slope) value *= 2 / static_cast<T>(P);
  }
  const T* apply(const T* g, const T* out, T* buffer) const {
    if (plain) return g;
    if (relu) {
#pragma omp simd
      for (size_t o = 0; o < mean.size(); ++o) buffer[o] = out[o] == T(0) ? T(0) : g[o];  // NaN passes
      return buffer;
    }
#pragma omp simd
    for (size_t o = 0; o < mean.size(); ++o) buffer[o] = g[o] + (offset[o] + slope[o] * (out[o] - mean[o]));
    return buffer;
  }
};

template <class Products>
void backward_as(const Conv1x1Grads& grads, const View& grad_out, const View& grad_mean, const View& grad_var,
                 const View& out, const View& mean, const View& x, const NormRelu& norm_relu,
                 const View& weight, LinearWith with) {
  using T = typename Products::Real;
  const int64_t P = (x.given() ? x : grad_out).shape[0], C = weight.shape[1], O = weight.shape[0];
  const Products products(weight, P, {.weight_grad = grads.weight.given(), .input_grad = grads.x.given()});
  // Each chunk has a gradient of the weight of its own: together they are a 32nd of x, or eight of them.
  const Chunks chunks(P, products.tile_rows(), std::clamp<int64_t>(P / (32 * O), 8, 32));
  const int64_t parts = chunks.parts(3 * C * O);
  const Workspaces<Products> workspaces(products, parts, C, O);
  auto partials = products.partials(grads.weight.given() ? chunks.count : 0, chunks.count == chunks.tiles());
  const Before<T> before(norm_relu, with, C);
  const int64_t width = before.norm ? Tile<T>::panels(C) * Tile<T>::kWidth : 0;
  ChunkSums norm_sums(std::max<int64_t>(1, chunks.count), width),
      bias_sums(std::max<int64_t>(1, chunks.count), O);
  const OutputGradient<T> output(grad_mean, grad_var, mean, with == LinearWith::relu_after, P, O);
  struct OfPart {
    std::vector<T> bias, norm_bias, norm_weight;  // sums of a tile
    int64_t first_chunk = -1;
  };
  const auto filled_up = [&](std::vector<T> numbers) {
    numbers.resize(static_cast<size_t>(width));
    return numbers;
  };
  const std::vector<T> mean_of_x = filled_up(before.mean), scale = filled_up(before.scale),
                       bias = filled_up(before.bias), of_in = filled_up({}), of_out(static_cast<size_t>(O));
  std::vector<OfPart> sums(static_cast<size_t>(parts), {of_out, of_in, of_in});

  const int64_t beside_size = before.nothing() ? 0 : Tile<T>::size_in_rows(products.tile_rows(), C);
  const Scratch beside_memory(static_cast<size_t>(parts * beside_size) * sizeof(T));

  chunks.for_tiles(3 * C * O, [&](int64_t chunk, int64_t first, int64_t rows, int64_t part) {
    auto tiles = products.tiles(workspaces.products(part));
    // What is normalised, where it lies if it is whole blocks; else a copy of it, or slopes of gelu.
    const Tile<T> lying = width == C ? Tile<T>::rows_of(x, first, rows) : Tile<T>{};
    const Tile<T> beside =
        lying.data ? lying : Tile<T>::in_rows(beside_memory.as<T>() + part * beside_size, C);
    OfPart& sum = sums[static_cast<size_t>(part)];
    if (sum.first_chunk < 0) sum.first_chunk = chunk;
    T *buffer = workspaces.line(part, 0), *line = workspaces.line(part, 1), *other = workspaces.line(part, 2);
    if (!grad_out.given()) std::fill_n(other, O, T(0));
    // Where it lies, unless the gradient of x is to be written there.
    const bool taken =
        output.plain && grad_out.data != grads.x.data && tiles.take_grad(grad_out, first, rows);
    for (int64_t i = 0; i < rows; ++i) {
      const T* g = grad_out.given() ? Rows<T>{grad_out}.read(first + i, other) : other;
      const T* y = output.plain ? nullptr : Rows<T>{out}.read(first + i, buffer);
      const T* total = output.apply(g, y, line);
#pragma omp simd
      for (size_t o = 0; o < sum.bias.size(); ++o) sum.bias[o] += total[o];
      if (!taken) tiles.put_grad(i, total);
      if (before.gelu && x.given()) {
        const T* a = before.apply_gelu(Rows<T>{x}.read(first + i, buffer), line, beside.at(i, 0));
        if (grads.weight.given()) tiles.put_input(i, a);
      } else if (before.norm) {
        if (!lying.data)
          load_run(beside.at(i, 0), address(x, (first + i) * x.strides[0]), x.dtype, x.strides[1], C);
        if (grads.weight.given()) tiles.put_input(i, before.apply(beside.at(i, 0), line));
      } else if (grads.weight.given()) {
        tiles.put_input(i, before.apply(Rows<T>{x}.read(first + i, buffer), line));
      }
    }
    Ahead ahead;
    for (const View* matrix : {&x, &out, &grad_out}) add_ahead(ahead, *matrix, first + rows, rows);
    if (grads.weight.given()) {
      const int64_t place = partials.place(chunk, sum.first_chunk);
      tiles.add_weight_grad(partials.at(place), rows, first != chunks.begin(place), ahead);
    }
    move_into(bias_sums.at(chunk).first, sum.bias);
    if (!grads.x.given()) return;
    tiles.put_result_in(grads.x, first, rows, C);
    const NormSlope<T> norm{beside,      mean_of_x.data(),     scale.data(),
                            bias.data(), sum.norm_bias.data(), sum.norm_weight.data(),
                            rows};
    tiles.multiply_grad(rows,
                        {.factor = before.gelu ? beside.data : nullptr,
                         .factor_row = beside.row_stride,
                         .norm = before.norm ? &norm : nullptr},
                        ahead);
    for (int64_t i = 0; i < rows; ++i) Rows<T>{grads.x}.finish(first + i, tiles.result(i));
    move_into(norm_sums.at(chunk).first, sum.norm_bias);
    move_into(norm_sums.at(chunk).second, sum.norm_weight);
  });

  if (grads.weight.given()) products.finish_weight_grad(grads.weight, partials);
  if (grads.bias.given()) {
    bias_sums.add_up();
    store_per_channel(grads.bias, bias_sums.first());
  }
  if (!before.norm) return;
  norm_sums.add_up();
  const auto channels = static_cast<size_t>(C);
  std::vector<double> weights(norm_sums.second().begin(), norm_sums.second().begin() + C);
  for (size_t c = 0; c < channels && P > 0; ++c) weights[c] *= static_cast<double>(before.invstd[c]);
  store_per_channel(grads.norm_bias, norm_sums.first().first(channels));
  store_per_channel(grads.norm_weight, weights);
}

/// Calls f with the type of panels for a weight.
template <class F>
void with_panels(const View& weight, F&& f) {
  if (weight.dtype == DType::float64) return f.template operator()<PanelProducts<double>>();
  f.template operator()<PanelProducts<float>>();
}

/// Calls f with the type of products for a weight.
template <class F>
void with_products(const View& weight, F&& f) {
  if constexpr (onednn::available) {
    if (RoundedProducts::serve(weight.dtype, weight.shape[1], weight.shape[0]))
      return f.template operator()<RoundedProducts>();
  }
  with_panels(weight, f);
}

void conv1x1_stats(const View& out, const View& mean, const View& var, const View& x, const NormRelu& norm,
                   const View& weight, const View& bias) {
  with_products(weight, [&]<class Products>() {
    forward_as<Products>(out, mean, var, x, norm, weight, bias, LinearWith::nothing);
  });
}

void conv1x1_stats_grad(const Conv1x1Grads& grads, const View& grad_out, const View& grad_mean,
                        const View& grad_var, const View& out, const View& mean, const View& x,
                        const NormRelu& norm, const View& weight) {
  with_products(weight, [&]<class Products>() {
    backward_as<Products>(grads, grad_out, grad_mean, grad_var, out, mean, x, norm, weight,
                          LinearWith::nothing);
  });
}

}  // namespace

void linear_in_tiles(const View& out, const View& x, const View& weight, const View& bias, LinearWith with) {
  with_panels(weight,
              [&]<class Products>() { forward_as<Products>(out, {}, {}, x, {}, weight, bias, with); });
}

void linear_grad_in_tiles(const LinearGrads& grads, const View& grad_out, const View& out, const View& x,
                          const View& weight, LinearWith with) {
  with_panels(weight, [&]<class Products>() {
    backward_as<Products>({grads.x, grads.weight, grads.bias, {}, {}}, grad_out, {}, {}, out, {}, x, {},
                          weight, with);
  });
}

void add_conv1x1(Kernels& table) {
  table.conv1x1_stats = conv1x1_stats;
  table.conv1x1_stats_grad = conv1x1_stats_grad;
}

}  // namespace mezzo::cpu
