// 1x1 convolutions between batch normalisations, a pass over memory for each direction. Pixels are rows; a
// thread takes a tile of rows at a time: it normalises what it reads while the tile is in the cache,
// multiplies, and reduces what it writes. Rows are converted one by one, so that dtypes are nobody else's
// matter.
//
// Rows are cut into chunks in a way that shapes alone decide, and what chunks add up to is combined in order:
// results have the same bits for any number of threads.
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "tensor/cpu/channels.h"
#include "tensor/cpu/kernel_families.h"
#include "tensor/cpu/panel_products.h"
#include "tensor/cpu/rounded_products.h"

namespace mezzo::cpu {
namespace {

/// The rows of a matrix as arrays of T.
template <class T>
struct Rows {
  const View& view;

  int64_t columns() const { return view.shape[1]; }
  const T* read(int64_t row, T* buffer) const {
    return read_run(view, row * view.strides[0], view.strides[1], columns(), buffer);
  }
  T* write(int64_t row, T* buffer) const {
    return write_run(view, row * view.strides[0], view.strides[1], columns(), buffer);
  }
  void finish(int64_t row, const T* run) const {
    write_back(view, row * view.strides[0], view.strides[1], columns(), run);
  }
};

/// A NormRelu's numbers per column.
template <class T>
struct Norm {
  bool given;
  std::vector<T> mean, invstd, scale, bias;

  Norm(const NormRelu& norm, int64_t columns)
      : given(norm.mean.given()),
        mean(per_channel<T>(norm.mean, columns, 0)),
        invstd(per_channel<T>(norm.invstd, columns, 1)),
        scale(per_channel<T>(norm.weight, columns, 1)),
        bias(per_channel<T>(norm.bias, columns, 0)) {
    for (size_t c = 0; c < scale.size(); ++c) scale[c] *= invstd[c];
  }

  T before_relu(T x, size_t c) const { return (x - mean[c]) * scale[c] + bias[c]; }

  /// x itself, or what becomes of it, in `buffer`.
  const T* apply(const T* x, T* buffer) const {
    if (!given) return x;
#pragma omp simd
    for (size_t c = 0; c < mean.size(); ++c) {
      const T y = before_relu(x[c], c);
      buffer[c] = y < T(0) ? T(0) : y;
    }
    return buffer;
  }
};

/// How P rows are cut: into chunks that begin at tiles.
struct Chunks {
  int64_t rows, tile_rows, count;

  Chunks(int64_t rows, int64_t tile_rows, int64_t most) : rows(rows), tile_rows(tile_rows) {
    count = std::min(most, tiles());
  }
  int64_t tiles() const { return (rows + tile_rows - 1) / tile_rows; }
  /// First row of a chunk; of chunk `count`: the end.
  int64_t begin(int64_t chunk) const { return std::min(rows, tiles() * chunk / count * tile_rows); }

  /// f(chunk, first row, number of rows, part) for the tiles of all chunks, chunks in parallel.
  template <class F>
  void for_tiles(int64_t terms_of_row, F&& f) const {
    parallel_for(count, grain(terms_of_row), [&](int64_t first, int64_t last, int64_t part) {
      for (int64_t chunk = first; chunk < last; ++chunk)
        for (int64_t row = begin(chunk); row < begin(chunk + 1); row += tile_rows)
          f(chunk, row, std::min(tile_rows, begin(chunk + 1) - row), part);
    });
  }
  int64_t parts(int64_t terms_of_row) const { return parallel_parts(count, grain(terms_of_row)); }

 private:
  /// Chunks for which waking another thread pays.
  int64_t grain(int64_t terms_of_row) const {
    constexpr int64_t kTerms = 1 << 16;
    return 1 + kTerms / std::max<int64_t>(1, rows / std::max<int64_t>(1, count) * terms_of_row);
  }
};

/// Memory of a part of the work: the products' tiles and some lines.
template <class Products>
class Workspaces {
 public:
  using T = typename Products::Real;
  static constexpr int64_t kLines = 4;

  Workspaces(const Products& products, int64_t parts, int64_t in, int64_t out)
      : line_((std::max(in, out) + 15) / 16 * 16),
        bytes_(products.workspace_bytes() + static_cast<size_t>(kLines * line_) * sizeof(T)),
        scratch_(static_cast<size_t>(parts) * bytes_) {}

  std::byte* products(int64_t part) const {
    return scratch_.as<std::byte>() + static_cast<size_t>(part) * bytes_;
  }
  T* line(int64_t part, int64_t i) const {
    return reinterpret_cast<T*>(products(part + 1)) - (i + 1) * line_;
  }

 private:
  int64_t line_;
  size_t bytes_;
  Scratch scratch_;
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

/// Two sums for each column, of each chunk: in T within a tile, in double above.
class ChunkSums {
 public:
  ChunkSums(int64_t chunks, int64_t columns)
      : chunks_(chunks), columns_(columns), values_(static_cast<size_t>(2 * chunks * columns)) {}
  Pair at(int64_t chunk) {
    double* first = values_.data() + 2 * chunk * columns_;
    return {first, first + columns_};
  }
  std::span<const double> first() const { return {values_.data(), static_cast<size_t>(columns_)}; }
  std::span<const double> second() const {
    return {values_.data() + columns_, static_cast<size_t>(columns_)};
  }
  /// Chunk 0 becomes the sum of all.
  void add_up() {
    for (int64_t i = 1; i < chunks_; ++i)
      for (int64_t c = 0; c < 2 * columns_; ++c)
        values_[static_cast<size_t>(c)] += values_[static_cast<size_t>(2 * i * columns_ + c)];
  }

 private:
  int64_t chunks_, columns_;
  std::vector<double> values_;
};

template <class T>
void move_into(double* total, std::vector<T>& sums) {
  for (size_t c = 0; c < sums.size(); ++c) total[c] += static_cast<double>(std::exchange(sums[c], T(0)));
}

/// `rows` rows of a matrix, of which the first and some may lie behind the end.
void add_ahead(Ahead& ahead, const View& matrix, int64_t row, int64_t rows) {
  rows = std::min(rows, matrix.given() ? matrix.shape[0] - row : 0);
  if (rows <= 0 || matrix.strides[1] != 1) return;
  ahead.add(address(matrix, row * matrix.strides[0]),
            rows * matrix.strides[0] * static_cast<int64_t>(size_of(matrix.dtype)));
}

template <class Products>
void forward_as(const View& out, const View& mean, const View& var, const View& x, const NormRelu& norm_relu,
                const View& weight, const View& bias) {
  using T = typename Products::Real;
  const int64_t P = x.shape[0], C = x.shape[1], O = out.shape[1];
  const Products products(weight, P, {.forward = true});
  const Chunks chunks(P, products.tile_rows(), 256);
  const Workspaces<Products> workspaces(products, chunks.parts(C * O), C, O);
  std::vector<Moments<T>> moments(static_cast<size_t>(chunks.parts(C * O)), Moments<T>(O));
  ChunkSums totals(std::max<int64_t>(1, chunks.count), O);
  const Norm<T> norm(norm_relu, C);
  const auto biases = per_channel<T>(bias, O, 0);

  chunks.for_tiles(C * O, [&](int64_t chunk, int64_t first, int64_t rows, int64_t part) {
    const auto tiles = products.tiles(workspaces.products(part));
    T *buffer = workspaces.line(part, 0), *line = workspaces.line(part, 1);
    for (int64_t i = 0; i < rows; ++i)
      tiles.put_input(i, norm.apply(Rows<T>{x}.read(first + i, buffer), line));
    Ahead ahead;
    add_ahead(ahead, x, first + rows, rows);
    tiles.multiply_input(rows, ahead);
    for (int64_t i = 0; i < rows; ++i) {
      const T* sums = tiles.get(i, O, buffer);
      T* y = Rows<T>{out}.write(first + i, line);
#pragma omp simd
      for (int64_t o = 0; o < O; ++o) y[o] = sums[o] + biases[static_cast<size_t>(o)];
      Rows<T>{out}.finish(first + i, y);
      moments[static_cast<size_t>(part)].add(Rows<T>{out}.read(first + i, buffer));  // rounded
    }
    moments[static_cast<size_t>(part)].finish_tile(totals.at(chunk),
                                                   static_cast<double>(first - chunks.begin(chunk)));
  });

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

/// G = grad_out + offset + slope * (out - mean): what the gradients of the statistics add.
template <class T>
struct OutputGradient {
  std::vector<T> offset, slope, mean;
  bool constant;  ///< slope and offset are 0

  OutputGradient(const View& grad_mean, const View& grad_var, const View& mean_, int64_t P, int64_t O)
      : offset(per_channel<T>(grad_mean, O, 0)),
        slope(per_channel<T>(grad_var, O, 0)),
        mean(per_channel<T>(mean_, O, 0)),
        constant(!grad_mean.given() && !grad_var.given()) {
    for (T& value : offset) value /= static_cast<T>(P);
    for (T& value : slope) value *= 2 / static_cast<T>(P);
  }
  const T* apply(const T* g, const T* out, T* buffer) const {
    if (constant) return g;
#pragma omp simd
    for (size_t o = 0; o < mean.size(); ++o) buffer[o] = g[o] + (offset[o] + slope[o] * (out[o] - mean[o]));
    return buffer;
  }
};

template <class Products>
void backward_as(const Conv1x1Grads& grads, const View& grad_out, const View& grad_mean, const View& grad_var,
                 const View& out, const View& mean, const View& x, const NormRelu& norm_relu,
                 const View& weight) {
  using T = typename Products::Real;
  const int64_t P = x.shape[0], C = x.shape[1], O = out.shape[1];
  const Products products(weight, P, {.weight_grad = true, .input_grad = grads.x.given()});
  // Each chunk has a gradient of the weight of its own: together they are a 32nd of x, or eight of them.
  const Chunks chunks(P, products.tile_rows(), std::clamp<int64_t>(P / (32 * O), 8, 32));
  const int64_t parts = chunks.parts(3 * C * O);
  const Workspaces<Products> workspaces(products, parts, C, O);
  const auto partials = products.partials(chunks.count);
  ChunkSums norm_sums(std::max<int64_t>(1, chunks.count), C),
      bias_sums(std::max<int64_t>(1, chunks.count), O);
  const Norm<T> norm(norm_relu, C);
  const OutputGradient<T> output(grad_mean, grad_var, mean, P, O);
  struct TileSums {
    std::vector<T> bias, norm_bias, norm_weight;
  };
  const std::vector<T> of_in(static_cast<size_t>(C)), of_out(static_cast<size_t>(O));
  std::vector<TileSums> sums(static_cast<size_t>(parts), {of_out, of_in, of_in});

  chunks.for_tiles(3 * C * O, [&](int64_t chunk, int64_t first, int64_t rows, int64_t part) {
    const auto tiles = products.tiles(workspaces.products(part));
    TileSums& sum = sums[static_cast<size_t>(part)];
    T *buffer = workspaces.line(part, 0), *line = workspaces.line(part, 1), *other = workspaces.line(part, 2);
    if (!grad_out.given()) std::fill_n(other, O, T(0));
    for (int64_t i = 0; i < rows; ++i) {
      const T* g = grad_out.given() ? Rows<T>{grad_out}.read(first + i, other) : other;
      const T* y = output.constant ? nullptr : Rows<T>{out}.read(first + i, buffer);
      const T* total = output.apply(g, y, line);
#pragma omp simd
      for (size_t o = 0; o < sum.bias.size(); ++o) sum.bias[o] += total[o];
      tiles.put_grad(i, total);
      tiles.put_input(i, norm.apply(Rows<T>{x}.read(first + i, buffer), line));
    }
    if (first == chunks.begin(chunk)) std::fill_n(partials.at(chunk), partials.size, T(0));
    Ahead ahead;
    for (const View* matrix : {&x, &out, &grad_out}) add_ahead(ahead, *matrix, first + rows, rows);
    tiles.add_weight_grad(partials.at(chunk), rows, ahead);
    move_into(bias_sums.at(chunk).first, sum.bias);
    if (!grads.x.given()) return;
    tiles.multiply_grad(rows, ahead);
    for (int64_t i = 0; i < rows; ++i) {
      const T* da = tiles.get(i, C, buffer);
      T* dx = Rows<T>{grads.x}.write(first + i, line);
      if (norm.given) {
        const T* in = Rows<T>{x}.read(first + i, other);
        T *norm_bias = sum.norm_bias.data(), *norm_weight = sum.norm_weight.data();
#pragma omp simd
        for (size_t c = 0; c < norm.mean.size(); ++c) {
          const T centred = in[c] - norm.mean[c];
          const T passed = centred * norm.scale[c] + norm.bias[c] > T(0) ? da[c] : T(0);
          norm_bias[c] += passed;
          norm_weight[c] += passed * centred;
          dx[c] = passed * norm.scale[c];
        }
      } else {
        std::copy_n(da, C, dx);
      }
      Rows<T>{grads.x}.finish(first + i, dx);
    }
    move_into(norm_sums.at(chunk).first, sum.norm_bias);
    move_into(norm_sums.at(chunk).second, sum.norm_weight);
  });

  products.finish_weight_grad(grads.weight, partials, chunks.count);
  if (grads.bias.given()) {
    bias_sums.add_up();
    store_per_channel(grads.bias, bias_sums.first());
  }
  if (!norm.given) return;
  norm_sums.add_up();
  std::vector<double> weights(norm_sums.second().begin(), norm_sums.second().end());
  for (size_t c = 0; c < weights.size(); ++c) weights[c] *= static_cast<double>(norm.invstd[c]);
  store_per_channel(grads.norm_bias, norm_sums.first());
  store_per_channel(grads.norm_weight, weights);
}

/// Calls f with the type of products for x's dtype.
template <class F>
void with_products(const View& x, int64_t out_channels, F&& f) {
  if (x.dtype == DType::float64) return f.template operator()<PanelProducts<double>>();
  if constexpr (onednn::available) {
    if (RoundedProducts::serve(x.dtype, x.shape[1], out_channels))
      return f.template operator()<RoundedProducts>();
  }
  f.template operator()<PanelProducts<float>>();
}

void forward(const View& out, const View& mean, const View& var, const View& x, const NormRelu& norm,
             const View& weight, const View& bias) {
  with_products(x, out.shape[1],
                [&]<class Products>() { forward_as<Products>(out, mean, var, x, norm, weight, bias); });
}

void backward(const Conv1x1Grads& grads, const View& grad_out, const View& grad_mean, const View& grad_var,
              const View& out, const View& mean, const View& x, const NormRelu& norm, const View& weight) {
  with_products(x, out.shape[1], [&]<class Products>() {
    backward_as<Products>(grads, grad_out, grad_mean, grad_var, out, mean, x, norm, weight);
  });
}

}  // namespace

void add_conv1x1(Kernels& table) {
  table.conv1x1_stats = forward;
  table.conv1x1_stats_grad = backward;
}

}  // namespace mezzo::cpu
