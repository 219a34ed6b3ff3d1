// The products of ops.cpp by oneDNN called directly, each by the fastest of the primitives that compute it,
// on operands in the layouts that the primitive likes best: what a product of ours can reach at most.
// Convolutions are direct ones: Winograd's round otherwise.
#include <chrono>
#include <dnnl.hpp>
#include <limits>
#include <unordered_map>
#include <vector>

#include "bench/measure.h"

using dnnl::memory;
using dnnl::prop_kind;

namespace {

const dnnl::engine& engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

dnnl::stream& stream() {
  static dnnl::stream stream(engine());
  return stream;
}

/// A primitive with memory for all of its operands.
class Call {
 public:
  template <class Desc>
  Call(std::string name, const Desc& desc, const dnnl::primitive& primitive)
      : name_(std::move(name)), primitive_(primitive) {
    for (const int argument : {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DST, DNNL_ARG_DIFF_SRC,
                               DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST}) {
      const memory::desc layout = desc.query_md(dnnl::query::exec_arg_md, argument);
      if (layout.get_size() == 0) continue;
      const memory operand(layout, engine());
      // About 1 in float32 and in bfloat16.
      std::fill_n(static_cast<uint32_t*>(operand.get_data_handle()), layout.get_size() / sizeof(uint32_t),
                  0x3f803f80u);
      operands_.emplace(argument, operand);
    }
  }

  const std::string& name() const { return name_; }
  void operator()() {
    primitive_.execute(stream(), operands_);
    stream().wait();
  }
  /// Of the fastest of a few calls.
  double seconds() {
    std::chrono::duration<double> best = std::chrono::hours(1);
    for (int i = 0; i < 6; ++i) {
      const auto start = std::chrono::steady_clock::now();
      (*this)();
      best = std::min<std::chrono::duration<double>>(best, std::chrono::steady_clock::now() - start);
    }
    return best.count();
  }

 private:
  std::string name_;
  dnnl::primitive primitive_;
  std::unordered_map<int, memory> operands_;
};

/// The primitives that compute one product.
class Candidates {
 public:
  explicit Candidates(memory::data_type dtype) : dtype_(dtype) {}

  /// An operand in the layout that the tag names; format_tag::any: in the primitive's own.
  memory::desc operand(const memory::dims& dims, memory::format_tag layout = memory::format_tag::any) const {
    return {dims, dtype_, layout};
  }
  /// Adds make()'s primitive of that description, unless oneDNN has none for this dtype on this processor.
  template <class Primitive, class Make>
  void add(const std::string& name, Make&& make) {
    try {
      const typename Primitive::primitive_desc desc = make();
      calls_.emplace_back(name, desc, Primitive(desc));
    } catch (const dnnl::error& error) {
      if (error.status != dnnl_unimplemented) throw;
    }
  }

  /// [m, k] by [k, n] as matmul and as a layer's forward; `transposed`: the left one lies in memory as [k,
  /// m], as in a weight's gradient.
  void add_products(const bench::MatrixShape& shape, bool bias, bool transposed = false) {
    using enum memory::format_tag;
    const int64_t m = shape.rows, k = shape.inner, n = shape.columns;
    const auto bias_of = [&](const memory::dims& dims) {
      return bias ? operand(dims, dims.size() == 1 ? a : ab) : memory::desc();
    };
    for (const auto weight : {ab, any})
      add<dnnl::matmul>(weight == ab ? "matmul" : "matmul, own layout", [&] {
        return dnnl::matmul::primitive_desc({operand({m, k}, transposed ? ba : ab), operand({k, n}, weight),
                                             bias_of({1, n}), operand({m, n}, ab)},
                                            engine());
      });
    if (transposed)
      add<dnnl::inner_product_backward_weights>("inner product", [&] {
        const auto x = operand({k, n}), g = operand({k, m}), weight = operand({m, n});
        const dnnl::inner_product_forward::primitive_desc hint({prop_kind::forward_training, x, weight, g},
                                                               engine());
        return dnnl::inner_product_backward_weights::primitive_desc({x, weight, g}, engine(), hint);
      });
    else
      add<dnnl::inner_product_forward>("inner product", [&] {
        return dnnl::inner_product_forward::primitive_desc(
            {prop_kind::forward_inference, operand({m, k}), operand({n, k}), bias_of({n}), operand({m, n})},
            engine());
      });
  }

  enum class Direction { forward, input, weight };
  /// A convolution in one of its directions.
  void add_convs(const bench::ConvShape& shape, Direction direction) {
    using enum memory::format_tag;
    using Forward = dnnl::convolution_forward;
    constexpr auto direct = dnnl::algorithm::convolution_direct;
    const int64_t channels = shape.channels, side = shape.side, kernel = shape.kernel;
    const memory::dims stride{1, 1}, padding{kernel / 2, kernel / 2};
    const memory::desc weight = operand({channels, channels, kernel, kernel});
    for (const auto layout : {nhwc, any}) {
      const std::string name = layout == nhwc ? "channels-last" : "own layout";
      const memory::desc image = operand({1, channels, side, side}, layout);
      const auto forward = [&](prop_kind kind) {
        return Forward::primitive_desc({kind, direct, image, weight, image, stride, padding, padding},
                                       engine());
      };
      if (direction == Direction::forward) {
        add<Forward>(name, [&] { return forward(prop_kind::forward_inference); });
      } else if (direction == Direction::input) {
        using Backward = dnnl::convolution_backward_data;
        add<Backward>(name, [&] {
          return Backward::primitive_desc({direct, image, weight, image, stride, padding, padding}, engine(),
                                          forward(prop_kind::forward_training));
        });
      } else {
        using Backward = dnnl::convolution_backward_weights;
        add<Backward>(name, [&] {
          return Backward::primitive_desc({direct, image, weight, image, stride, padding, padding}, engine(),
                                          forward(prop_kind::forward_training));
        });
      }
    }
    if (kernel == 1) {  // pixels by channels
      const int64_t pixels = side * side;
      if (direction == Direction::weight)
        add_products({channels, pixels, channels}, false, true);
      else
        add_products({pixels, channels, channels}, false);
    }
  }

  /// Null if there is none.
  Call* fastest() {
    Call* best = nullptr;
    double least = std::numeric_limits<double>::infinity();
    for (Call& call : calls_) {
      const double seconds = call.seconds();
      if (seconds < least) least = seconds, best = &call;
    }
    return best;
  }

 private:
  memory::data_type dtype_;
  std::vector<Call> calls_;
};

void add_rows(memory::data_type dtype, const std::string& suffix) {
  const auto row = [&](const std::string& name, double flop, const std::function<void(Candidates&)>& fill) {
    bench::add(name + suffix, [=](auto& state) {
      Candidates candidates(dtype);
      fill(candidates);
      Call* const call = candidates.fastest();
      if (!call) return state.SkipWithError("oneDNN has no primitive for it on this processor");
      bench::time(state, {.flop = flop}, *call);
      state.SetLabel(call->name());
    });
  };
  row("matmul/1024 x 1024 x 1024", bench::kMatmul.flop(),
      [](Candidates& candidates) { candidates.add_products(bench::kMatmul, false); });
  row("linear/1024, 128 to 512", bench::kLinear.flop(),
      [](Candidates& candidates) { candidates.add_products(bench::kLinear, true); });
  using enum Candidates::Direction;
  for (const bench::ConvShape& shape : bench::kConvs)
    for (const auto& [name, direction] :
         {std::pair("forward", forward), {"input", input}, {"weight", weight}})
      row(std::string("conv2d/") + shape.name + ' ' + name, shape.flop(),
          [=, direction = direction](Candidates& candidates) { candidates.add_convs(shape, direction); });
}

}  // namespace

int main(int argc, char** argv) {
  add_rows(memory::data_type::f32, "");
  add_rows(memory::data_type::bf16, bench::kBFloat16);
  return bench::run(argc, argv);
}
