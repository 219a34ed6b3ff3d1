// The three products of a linear map over tiles of rows, by one thread each: y = x Wᵀ, dx = g W, dW = gᵀ x,
// with W [O, C]. Two classes of one interface: in panels of floats or doubles, which serves every dtype, and
// in bfloat16 by oneDNN, where the processor multiplies that.
#pragma once

#include <array>
#include <vector>

#include "tensor/cpu/onednn/products.h"
#include "tensor/cpu/parallel.h"
#include "tensor/cpu/runs.h"
#include "tensor/cpu/scratch.h"
#include "tensor/cpu/tile_product.h"

namespace mezzo::cpu {

/// Which of the products are wanted.
struct ProductUse {
  bool forward = false, weight_grad = false, input_grad = false;
};

/// Rows of a tile, so that it stays in a cache of 1 MiB with the others.
inline int64_t tile_rows_for(int64_t rows, int64_t C, int64_t O, int64_t most) {
  constexpr int64_t kTileElements = 1 << 17, kMultiple = 8;
  const int64_t fit = std::clamp(kTileElements / (C + O) / kMultiple * kMultiple, int64_t{32}, most);
  return std::min(fit, std::max(kMultiple, (rows + kMultiple - 1) / kMultiple * kMultiple));
}

/// Calls f(o, w[o]) with the rows of a matrix as arrays of T.
template <class T, class F>
void for_rows(const View& matrix, F&& f) {
  std::vector<T> buffer(static_cast<size_t>(matrix.shape[1]));
  for (int64_t o = 0; o < matrix.shape[0]; ++o)
    f(o, read_run(matrix, o * matrix.strides[0], matrix.strides[1], matrix.shape[1], buffer.data()));
}

/// Gradients of the weight, one for each chunk of rows.
template <class T>
struct Partials {
  int64_t size;  ///< elements of one
  Scratch scratch;

  Partials(int64_t count, int64_t size)
      : size(size), scratch(static_cast<size_t>(count * size) * sizeof(T)) {}
  T* at(int64_t chunk) const { return scratch.as<T>() + chunk * size; }
};

/// out[o] = sum over the chunks of read(chunk, o, buffer), an array of C.
template <class T, class Read>
void add_up_rows(const View& out, int64_t chunks, Read&& read) {
  const int64_t C = out.shape[1];
  parallel_for(out.shape[0], 1 + kParallelElements / std::max<int64_t>(1, chunks * C),
               [&](int64_t begin, int64_t end) {
                 for (int64_t o = begin; o < end; ++o) {
                   for (int64_t c = 0; c < C; c += kChunk) {
                     const int64_t n = std::min(kChunk, C - c);
                     T sums[kChunk] = {};
                     for (int64_t chunk = 0; chunk < chunks; ++chunk) read(chunk, o, c, n, sums);
                     store_run(address(out, o * out.strides[0] + c * out.strides[1]), out.dtype,
                               out.strides[1], sums, n);
                   }
                 }
               });
}

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
    if (use.forward) {
      const Tile<T> packed = forward_weight();
      std::fill_n(packed.data, Tile<T>::size(C_, O_), T(0));
      for_rows<T>(weight, [&](int64_t o, const T* row) {
        for (int64_t c = 0; c < C_; ++c) packed.at(c, o / Tile<T>::kWidth)[o % Tile<T>::kWidth] = row[c];
      });
    }
    if (use.input_grad) for_rows<T>(weight, [&](int64_t o, const T* row) { backward_weight().put(o, row); });
  }

  int64_t tile_rows() const { return tile_rows_; }
  size_t workspace_bytes() const {
    return bytes(tile_rows_, C_) + (use_.weight_grad ? bytes(tile_rows_, O_) : 0) +
           bytes(tile_rows_, std::max(C_, O_));
  }

  class Tiles {
   public:
    Tiles(const PanelProducts& products, std::byte* memory)
        : products_(products),
          input_(take(memory, products.C_)),
          grad_(products.use_.weight_grad ? take(memory, products.O_) : Tile<T>{}),
          result_(reinterpret_cast<T*>(memory)) {}

    void put_input(int64_t row, const T* line) const { input_.put(row, line); }
    void put_grad(int64_t row, const T* line) const { grad_.put(row, line); }
    void multiply_input(int64_t rows) const {
      multiply(result(products_.O_), input_, products_.forward_weight(), rows);
    }
    void multiply_grad(int64_t rows) const {
      multiply(result(products_.C_), grad_, products_.backward_weight(), rows);
    }
    /// Row of the last result, of `columns` columns.
    const T* get(int64_t row, int64_t columns, T* buffer) const {
      result(columns).get(row, buffer);
      return buffer;
    }
    void add_weight_grad(T* partial, int64_t rows) const {
      multiply_transposed(products_.weight_grad(partial), grad_, input_, rows);
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

  Partials<T> partials(int64_t chunks) const { return {chunks, Tile<T>::size(O_, C_)}; }
  void finish_weight_grad(const View& out, const Partials<T>& partials, int64_t chunks) const {
    add_up_rows<T>(out, chunks, [&](int64_t chunk, int64_t o, int64_t first, int64_t n, T* sums) {
      const Tile<T> part = weight_grad(partials.at(chunk));
      constexpr int64_t W = Tile<T>::kWidth;
      static_assert(kChunk % W == 0);
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
  Tile<T> weight_grad(T* partial) const { return {partial, Tile<T>::padded_rows(O_), C_}; }

  int64_t O_, C_, tile_rows_;
  ProductUse use_;
  Scratch forward_, backward_;
};

/// Operands are row-major tiles of bfloat16, sums are float32.
class RoundedProducts {
 public:
  using Real = float;

  /// Whether it is faster than panels.
  static bool serve(DType dtype, int64_t C, int64_t O) {
    return dtype == DType::bfloat16 && onednn::multiplies_in_hardware(dtype) && C >= 32 && O >= 32;
  }

  RoundedProducts(const View& weight, int64_t rows, const ProductUse& use)
      : O_(weight.shape[0]),
        C_(weight.shape[1]),
        rows_(rows),
        tile_rows_(tile_rows_for(rows, C_, O_, 256)),
        use_(use),
        weight_(static_cast<size_t>(O_ * C_) * sizeof(BFloat16)) {
    const View packed = use.forward ? View{weight_.as<void>(), DType::bfloat16, {O_, C_}, {1, O_}}
                                    : View{weight_.as<void>(), DType::bfloat16, {O_, C_}, {C_, 1}};
    copy(packed, weight);
    for (size_t last = 0; last < 2; ++last) {
      const int64_t n = last ? rows % tile_rows_ : std::min(rows, tile_rows_);
      if (n == 0) continue;
      if (use.forward) forward_[last] = onednn::TileProduct(n, O_, C_, false);
      if (use.input_grad) input_grad_[last] = onednn::TileProduct(n, C_, O_, false);
      if (use.weight_grad) weight_grad_[last] = onednn::TileProduct(O_, C_, n, true);
      for (const auto* products : {&forward_, &input_grad_, &weight_grad_})
        scratch_bytes_ = std::max(scratch_bytes_, (*products)[last].scratch_bytes());
    }
  }

  int64_t tile_rows() const { return tile_rows_; }
  size_t workspace_bytes() const {
    return operand_bytes(C_) + operand_bytes(O_) + 2 * operand_bytes(std::max(C_, O_)) + scratch_bytes_;
  }

  class Tiles {
   public:
    Tiles(const RoundedProducts& products, std::byte* memory)
        : products_(products),
          input_(reinterpret_cast<BFloat16*>(memory)),
          grad_(reinterpret_cast<BFloat16*>(memory += products.operand_bytes(products.C_))),
          result_(reinterpret_cast<float*>(memory += products.operand_bytes(products.O_))),
          scratch_(memory + 2 * products.operand_bytes(std::max(products.C_, products.O_))) {}

    void put_input(int64_t row, const float* line) const {
      round_run(input_ + row * products_.C_, line, products_.C_);
    }
    void put_grad(int64_t row, const float* line) const {
      round_run(grad_ + row * products_.O_, line, products_.O_);
    }
    void multiply_input(int64_t rows) const {
      products_.of(products_.forward_, rows).run(result_, input_, products_.weight_.as<BFloat16>(), scratch_);
    }
    void multiply_grad(int64_t rows) const {
      products_.of(products_.input_grad_, rows)
          .run(result_, grad_, products_.weight_.as<BFloat16>(), scratch_);
    }
    const float* get(int64_t row, int64_t columns, float*) const { return result_ + row * columns; }
    void add_weight_grad(float* partial, int64_t rows) const {
      products_.of(products_.weight_grad_, rows).run(partial, grad_, input_, scratch_);
    }

   private:
    const RoundedProducts& products_;
    BFloat16 *input_, *grad_;
    float* result_;
    std::byte* scratch_;
  };
  Tiles tiles(std::byte* memory) const { return Tiles(*this, memory); }

  Partials<float> partials(int64_t chunks) const { return {chunks, O_ * C_}; }
  void finish_weight_grad(const View& out, const Partials<float>& partials, int64_t chunks) const {
    add_up_rows<float>(out, chunks, [&](int64_t chunk, int64_t o, int64_t first, int64_t n, float* sums) {
      const float* from = partials.at(chunk) + o * C_ + first;
      for (int64_t c = 0; c < n; ++c) sums[c] += from[c];
    });
  }

 private:
  using Sizes = std::array<onednn::TileProduct, 2>;  // of a full tile, and of the last one

  size_t operand_bytes(int64_t columns) const {
    return static_cast<size_t>((tile_rows_ * columns + 31) / 32 * 32) * sizeof(BFloat16);
  }
  const onednn::TileProduct& of(const Sizes& products, int64_t rows) const {
    return products[rows == std::min(rows_, tile_rows_) ? 0 : 1];
  }

  int64_t O_, C_, rows_, tile_rows_;
  ProductUse use_;
  Scratch weight_;
  Sizes forward_, input_grad_, weight_grad_;
  size_t scratch_bytes_ = 0;
};

}  // namespace mezzo::cpu
