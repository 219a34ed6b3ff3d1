// Products of tiles in bfloat16, by oneDNN.
#pragma once

#include <array>

#include "tensor/cpu/onednn/products.h"
#include "tensor/cpu/tile_product.h"
#include "tensor/cpu/tile_products.h"

namespace mezzo::cpu {

/// Operands are row-major tiles of bfloat16, sums are float32. Nothing is fetched ahead: a product is one
/// call.
class RoundedProducts {
 public:
  using Real = float;

  /// Whether it is faster than panels.
  static bool serve(DType dtype, int64_t C, int64_t O) {
    return dtype == DType::bfloat16 && !onednn::bfloat16_unit().empty() && C >= 32 && O >= 32;
  }

  RoundedProducts(const View& weight, int64_t rows, const ProductUse& use)
      : O_(weight.shape[0]),
        C_(weight.shape[1]),
        rows_(rows),
        tile_rows_(tile_rows_for(rows, C_, O_)),
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
    /// Operands are converted to rows of ours in any case, and so are results.
    bool take_input(const View&, int64_t, int64_t) const { return false; }
    bool take_grad(const View&, int64_t, int64_t) const { return false; }
    void put_result_in(const View&, int64_t, int64_t, int64_t columns) { columns_ = columns; }
    const float* result(int64_t row) const { return result_ + row * columns_; }
    void multiply_input(int64_t rows, const std::vector<float>& bias, bool relu, const Ahead&) const {
      products_.of(products_.forward_, rows).run(result_, input_, products_.weight_.as<BFloat16>(), scratch_);
      for (int64_t i = 0; i < rows; ++i) {
        float* y = result_ + i * columns_;
#pragma omp simd
        for (int64_t o = 0; o < columns_; ++o) {
          const float sum = y[o] + bias[static_cast<size_t>(o)];
          y[o] = relu && sum < 0 ? 0 : sum;
        }
      }
    }
    void multiply_grad(int64_t rows, const Finish<float>& finish, const Ahead&) const {
      products_.of(products_.input_grad_, rows)
          .run(result_, grad_, products_.weight_.as<BFloat16>(), scratch_);
      for (int64_t i = 0; i < rows; ++i) {
        float* y = result_ + i * columns_;
        if (finish.factor) {
          const float* factor = finish.factor + i * finish.factor_row;
#pragma omp simd
          for (int64_t c = 0; c < columns_; ++c) y[c] *= factor[c];
        }
        using V = Vec<float>;
        for (int64_t c = 0; finish.norm && c < columns_; c += V::size) {
          V::Packet grad[1][1] = {{V::load(y + c, columns_ - c, 0).packet}};
          multiply_by_slope<float>(grad, {.norm = finish.norm, .row = i, .column = c},
                                   [](int, int64_t) { return 0; });
          V(grad[0][0]).store(y + c, columns_ - c);
        }
      }
    }
    void add_weight_grad(float* partial, int64_t rows, bool accumulate, const Ahead&) const {
      if (!accumulate) std::fill_n(partial, products_.O_ * products_.C_, 0.0f);
      products_.of(products_.weight_grad_, rows).run(partial, grad_, input_, scratch_);
    }

   private:
    const RoundedProducts& products_;
    BFloat16 *input_, *grad_;
    float* result_;
    int64_t columns_ = 0;  ///< of the result
    std::byte* scratch_;
  };
  Tiles tiles(std::byte* memory) const { return Tiles(*this, memory); }

  Partials<float> partials(int64_t chunks, bool) const { return {chunks, O_ * C_, 1}; }
  void finish_weight_grad(const View& out, const Partials<float>& partials) const {
    add_up_rows<float>(out, partials, kChunk,
                       [&](int64_t chunk, int64_t o, int64_t first, int64_t n, float* sums) {
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
