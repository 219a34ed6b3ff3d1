// Products of tiles in panels (tile_product.h), of floats or doubles.
#pragma once

#include <utility>
#include <vector>

#include "tensor/cpu/tile_product.h"
#include "tensor/cpu/tile_products.h"

namespace mezzo::cpu {

template <class T>
class PanelProducts {
 public:
  using Real = T;

  PanelProducts(const View& weight, int64_t rows, const ProductUse& use)
      : O_(weight.shape[0]),
        C_(weight.shape[1]),
        tile_rows_(tile_rows_for(rows, C_, O_)),
        use_(use),
        forward_(use.forward ? panel_bytes(C_, O_) : 0),
        backward_(use.input_grad ? panel_bytes(O_, C_) : 0) {
    const StagedInput dense(weight, dtype_of<T>, {C_, 1});
    const T* lines = dense.view().template as<T>();
    const auto in_parts = [&](int64_t count, auto&& f) {
      parallel_for(count, 1 + kParallelElements * count / std::max<int64_t>(1, O_ * C_), f);
    };
    if (use.forward) {
      in_parts(Tile<T>::panels(O_), [&](int64_t begin, int64_t end) {
        put_transposed(forward_weight(), lines, C_, C_, begin, end);
      });
    }
    if (use.input_grad) {
      in_parts(O_, [&](int64_t begin, int64_t end) {
        for (int64_t o = begin; o < end; ++o) backward_weight().put(o, lines + o * C_);
      });
    }
  }

  int64_t tile_rows() const { return tile_rows_; }
  size_t workspace_bytes() const {
    return tile_bytes(C_) + (use_.forward ? 0 : tile_bytes(O_)) + tile_bytes(std::max(C_, O_));
  }

  class Tiles {
   public:
    Tiles(const PanelProducts& products, std::byte* memory)
        : products_(products), memory_(reinterpret_cast<T*>(memory)) {
      // Left operands lie in rows, right ones in panels.
      const bool transposed = products.weight_grad_is_transposed();
      input_ = take(products.C_, products.use_.forward || transposed);
      if (!products.use_.forward) grad_ = take(products.O_, !transposed);
    }

    void put_input(int64_t row, const T* line) const { input_.put(row, line); }
    void put_grad(int64_t row, const T* line) const { grad_.put(row, line); }
    /// Instead of put_input, in forward, and of put_grad: rows of a matrix where they lie, if they can be
    /// read so.
    bool take_input(const View& x, int64_t row, int64_t rows) {
      return take_lines(input_, Tile<T>::rows_of(x, row, rows));
    }
    bool take_grad(const View& grad, int64_t row, int64_t rows) {
      // The product over rows reads columns by blocks of kRows, too.
      return products_.O_ % Tile<T>::kRows == 0 && !products_.weight_grad_is_transposed() &&
             take_lines(grad_, Tile<T>::rows_of(grad, row, rows));
    }
    /// Results of `columns` columns go to rows of `out` if they can be written there, else to memory of ours.
    void put_result_in(const View& out, int64_t row, int64_t rows, int64_t columns) {
      const Tile<T> lines = Tile<T>::rows_of(out, row, rows);
      result_ = lines.data && columns % Tile<T>::kWidth == 0 ? lines : Tile<T>::in_rows(memory_, columns);
    }
    const T* result(int64_t row) const { return result_.at(row, 0); }
    /// result = input weightᵀ + bias, with relu max(0, that). `bias` is filled up to whole panels.
    void multiply_input(int64_t rows, const std::vector<T>& bias, bool relu, Ahead& ahead) const {
      multiply(result_, input_, products_.forward_weight(), rows, {.start = bias.data(), .relu = relu},
               ahead);
    }
    /// result = gradient weight, times factors or a slope if they are given.
    void multiply_grad(int64_t rows, const Finish<T>& finish, Ahead& ahead) const {
      multiply(result_, grad_, products_.backward_weight(), rows, finish, ahead);
    }
    /// partial (+)= gradientᵀ input.
    void add_weight_grad(T* partial, int64_t rows, bool accumulate, Ahead& ahead) const {
      // The smaller of two: with few input channels most of the columns would be filling.
      if (products_.weight_grad_is_transposed())
        multiply_transposed(products_.weight_grad(partial), input_, grad_, rows, accumulate, ahead);
      else
        multiply_transposed(products_.weight_grad(partial), grad_, input_, rows, accumulate, ahead);
    }

   private:
    static bool take_lines(Tile<T>& operand, const Tile<T>& lines) {
      if (lines.data) operand = lines;
      return lines.data != nullptr;
    }
    Tile<T> take(int64_t columns, bool in_rows) {
      T* data = std::exchange(memory_, memory_ + Tile<T>::size_in_rows(products_.tile_rows_, columns));
      return in_rows ? Tile<T>::in_rows(data, columns)
                     : Tile<T>::in_panels(data, products_.tile_rows_, columns);
    }

    const PanelProducts& products_;
    T* memory_;  ///< of the result
    Tile<T> input_, grad_, result_;
  };
  Tiles tiles(std::byte* memory) const { return Tiles(*this, memory); }

  /// What a tile adds is summed by itself before: chunks of one tile each may share memory.
  Partials<T> partials(int64_t chunks, bool of_one_tile) const {
    return {chunks,
            weight_grad_is_transposed() ? Tile<T>::size_in_panels(C_, O_) : Tile<T>::size_in_panels(O_, C_),
            of_one_tile ? 4 : 1};
  }
  void finish_weight_grad(const View& out, const Partials<T>& partials) const {
    constexpr int64_t W = Tile<T>::kWidth;
    static_assert(kChunk >= W);
    const bool transposed = weight_grad_is_transposed();
    add_up_rows<T>(out, partials, transposed ? kChunk : W,
                   [&](int64_t chunk, int64_t o, int64_t first, int64_t n, T* sums) {
                     const Tile<T> part = weight_grad(partials.at(chunk));
                     if (transposed) {
                       for (int64_t c = 0; c < n; ++c) sums[c] += part.at(first + c, o / W)[o % W];
                       return;
                     }
                     const T* from = part.at(o, first / W);
                     if (n == W)  // a constant, for the compiler
                       for (int64_t j = 0; j < W; ++j) sums[j] += from[j];
                     else
                       for (int64_t j = 0; j < n; ++j) sums[j] += from[j];
                   });
  }

 private:
  static size_t panel_bytes(int64_t rows, int64_t columns) {
    return static_cast<size_t>(Tile<T>::size_in_panels(rows, columns)) * sizeof(T);
  }
  size_t tile_bytes(int64_t columns) const {
    return static_cast<size_t>(Tile<T>::size_in_rows(tile_rows_, columns)) * sizeof(T);
  }
  Tile<T> forward_weight() const { return Tile<T>::in_panels(forward_.as<T>(), C_, O_); }
  Tile<T> backward_weight() const { return Tile<T>::in_panels(backward_.as<T>(), O_, C_); }
  bool weight_grad_is_transposed() const {
    return Tile<T>::size_in_panels(C_, O_) < Tile<T>::size_in_panels(O_, C_);
  }
  Tile<T> weight_grad(T* partial) const {
    return weight_grad_is_transposed() ? Tile<T>::in_panels(partial, C_, O_)
                                       : Tile<T>::in_panels(partial, O_, C_);
  }

  int64_t O_, C_, tile_rows_;
  ProductUse use_;
  Scratch forward_, backward_;
};

}  // namespace mezzo::cpu
