// Products of tiles in panels (tile_product.h), of floats or doubles.
#pragma once

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
        tile_rows_(tile_rows_for(rows, C_, O_, 128)),
        use_(use),
        forward_(use.forward ? bytes(C_, O_) : 0),
        backward_(use.input_grad ? bytes(O_, C_) : 0) {
    const StagedInput dense(weight, dtype_of<T>, {C_, 1});
    const T* rows_of_weight = dense.view().template as<T>();
    if (use.forward) put_transposed(forward_weight(), rows_of_weight, C_);
    if (use.input_grad) {
      for (int64_t o = 0; o < O_; ++o) backward_weight().put(o, rows_of_weight + o * C_);
    }
  }

  int64_t tile_rows() const { return tile_rows_; }
  size_t workspace_bytes() const {
    return bytes(tile_rows_, C_) + (use_.forward ? 0 : bytes(tile_rows_, O_)) +
           bytes(tile_rows_, std::max(C_, O_));
  }

  class Tiles {
   public:
    Tiles(const PanelProducts& products, std::byte* memory)
        : products_(products),
          input_(take(memory, products.C_)),
          grad_(products.use_.forward ? Tile<T>{} : take(memory, products.O_)),
          result_(reinterpret_cast<T*>(memory)) {}

    void put_input(int64_t row, const T* line) const { input_.put(row, line); }
    void put_grad(int64_t row, const T* line) const { grad_.put(row, line); }
    void multiply_input(int64_t rows, Ahead& ahead) const {
      multiply(result(products_.O_), input_, products_.forward_weight(), rows, ahead);
    }
    void multiply_grad(int64_t rows, Ahead& ahead) const {
      multiply(result(products_.C_), grad_, products_.backward_weight(), rows, ahead);
    }
    /// Row of the last result, of `columns` columns.
    const T* get(int64_t row, int64_t columns, T* buffer) const {
      result(columns).get(row, buffer);
      return buffer;
    }
    void add_weight_grad(T* partial, int64_t rows, Ahead& ahead) const {
      // The smaller of two: with few input channels most of the columns would be filling.
      if (products_.weight_grad_is_transposed())
        multiply_transposed(products_.weight_grad(partial), input_, grad_, rows, ahead);
      else
        multiply_transposed(products_.weight_grad(partial), grad_, input_, rows, ahead);
    }

   private:
    Tile<T> take(std::byte*& memory, int64_t columns) const {
      const Tile<T> tile{reinterpret_cast<T*>(memory), Tile<T>::padded_rows(products_.tile_rows_), columns};
      memory += bytes(products_.tile_rows_, columns);
      return tile;
    }
    Tile<T> result(int64_t columns) const {
      return {result_, Tile<T>::padded_rows(products_.tile_rows_), columns};
    }

    const PanelProducts& products_;
    Tile<T> input_, grad_;
    T* result_;
  };
  Tiles tiles(std::byte* memory) const { return Tiles(*this, memory); }

  Partials<T> partials(int64_t chunks) const {
    return {chunks, weight_grad_is_transposed() ? Tile<T>::size(C_, O_) : Tile<T>::size(O_, C_)};
  }
  void finish_weight_grad(const View& out, const Partials<T>& partials, int64_t chunks) const {
    add_up_rows<T>(out, chunks, [&](int64_t chunk, int64_t o, int64_t first, int64_t n, T* sums) {
      const Tile<T> part = weight_grad(partials.at(chunk));
      constexpr int64_t W = Tile<T>::kWidth;
      static_assert(kChunk % W == 0);
      if (weight_grad_is_transposed()) {
        for (int64_t c = 0; c < n; ++c) sums[c] += part.at(first + c, o / W)[o % W];
        return;
      }
      for (int64_t c = 0; c < n; c += W) {
        const T* from = part.at(o, (first + c) / W);
        for (int64_t j = 0; j < std::min(W, n - c); ++j) sums[c + j] += from[j];
      }
    });
  }

 private:
  static size_t bytes(int64_t rows, int64_t columns) {
    return static_cast<size_t>(Tile<T>::size(rows, columns)) * sizeof(T);
  }
  Tile<T> forward_weight() const { return {forward_.as<T>(), Tile<T>::padded_rows(C_), O_}; }
  Tile<T> backward_weight() const { return {backward_.as<T>(), Tile<T>::padded_rows(O_), C_}; }
  bool weight_grad_is_transposed() const { return Tile<T>::size(C_, O_) < Tile<T>::size(O_, C_); }
  Tile<T> weight_grad(T* partial) const {
    if (weight_grad_is_transposed()) return {partial, Tile<T>::padded_rows(C_), O_};
    return {partial, Tile<T>::padded_rows(O_), C_};
  }

  int64_t O_, C_, tile_rows_;
  ProductUse use_;
  Scratch forward_, backward_;
};

}  // namespace mezzo::cpu
