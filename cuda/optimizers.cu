// Optimizer steps: all tensors of a parameter are read once and written once, many parameters in one launch
// where their tensors are dense, of one layout and of the usual dtypes; others have a launch each. Formulas
// as in tensor/reference/optimizers.cpp. Loss scaling is in loss_scaling.cu.
#include <array>
#include <cmath>
#include <span>
#include <tuple>

#include "cuda/kernel_families.h"
#include "cuda/multi_tensor.cuh"

namespace mezzo::cuda {
namespace {

/// What is a parameter's own in a step, besides its memory. Made on the device, from what lies there.
template <class T>
struct Own {
  T lr, decay;               // the latter multiplies the parameter
  T step_size, root_factor;  // of Adam, the latter 1 / bias2_sqrt: a division less
  bool first, skipped;

  template <class Other>
  __device__ explicit Own(const Own<Other>& other)
      : lr(static_cast<T>(other.lr)),
        decay(static_cast<T>(other.decay)),
        step_size(static_cast<T>(other.step_size)),
        root_factor(static_cast<T>(other.root_factor)),
        first(other.first),
        skipped(other.skipped) {}
  __device__ Own(T lr, T decay, T step_size, T root_factor, bool first, bool skipped)
      : lr(lr),
        decay(decay),
        step_size(step_size),
        root_factor(root_factor),
        first(first),
        skipped(skipped) {}
};

/// Options of a rule that the numbers of a step are made from; 0 where the rule has none.
struct Constants {
  double beta1 = 0, beta2 = 0, decoupled_decay = 0;
};

/// Counters of parameters, as a parameter of a kernel; null: none is kept.
struct Counters {
  static constexpr int kCapacity = 480;  // 4 KiB, less what else there is
  int64_t* of[kCapacity];
  int size;
};

/// own[i] for counter i, which counts the step unless it is skipped.
__global__ void count_steps(const Counters counters, Own<double>* own, const double* lr,
                            const float* found_inf, const Constants constants) {
  const auto i = static_cast<int>(first_item());
  if (i >= counters.size) return;
  const bool skipped = found_inf != nullptr && *found_inf != 0;
  int64_t t = 1;
  if (int64_t* const steps = counters.of[i]; steps != nullptr && !skipped) t = ++*steps;
  const auto power = static_cast<double>(t);
  own[i] = Own<double>(*lr, 1 - *lr * constants.decoupled_decay, *lr / (1 - std::pow(constants.beta1, power)),
                       1 / std::sqrt(1 - std::pow(constants.beta2, power)), t == 1, skipped);
}

/// The numbers of a step for a list of parameters, on the device until the kernels that read them have been
/// launched.
class Numbers {
 public:
  template <class Tensors>
  Numbers(std::span<const Tensors> parameters, const StepState& state, const Constants& constants)
      : scratch_(std::max<size_t>(1, parameters.size()) * sizeof(Own<double>)) {
    Counters counters{};
    size_t done = 0;
    const auto flush = [&] {
      if (counters.size == 0) return;
      launch(count_steps, grid_for(counters.size), counters, scratch_.as<Own<double>>() + done,
             state.lr.as<double>(), state.found_inf.as<float>(), constants);
      done += static_cast<size_t>(counters.size);
      counters.size = 0;
    };
    for (const Tensors& x : parameters) {
      counters.of[counters.size++] = x.steps.template as<int64_t>();
      if (counters.size == Counters::kCapacity) flush();
    }
    flush();
  }
  const Own<double>* of(size_t parameter) const { return scratch_.as<Own<double>>() + parameter; }

 private:
  Scratch scratch_;
};

// A rule updates x, the elements of a parameter's tensors: x[0] of the parameter, x[1] of the gradient, which
// it leaves as it is, then those of the state. Arithmetic is in T.

/// The gradient g of parameter p as the update takes it. Without `decays` it has no part of p, also of an
/// infinite one.
template <class T>
struct Decay {
  T weight_decay, sign;
  bool decays;
  template <class Args>
  explicit Decay(const Args& args)
      : weight_decay(static_cast<T>(args.weight_decay)),
        sign(static_cast<T>(args.maximize ? -1 : 1)),
        decays(args.weight_decay != 0) {
    if constexpr (requires { args.decoupled; }) decays = decays && !args.decoupled;
  }
  __device__ T operator()(T g, T p) const { return decays ? sign * g + weight_decay * p : sign * g; }
};

/// Kingma and Ba (2015); with five tensors that of Reddi et al. (2018), whose last is the running maximum.
template <class T, int n>
struct AdamRule {
  static constexpr int views = n;
  Decay<T> gradient;
  T rest1, beta2, rest2, eps;
  explicit AdamRule(const AdamArgs& args)
      : gradient(args),
        rest1(static_cast<T>(1 - args.beta1)),
        beta2(static_cast<T>(args.beta2)),
        rest2(static_cast<T>(1 - args.beta2)),
        eps(static_cast<T>(args.eps)) {}

  __device__ void operator()(T (&x)[n], const Own<T>& own) const {
    const T p = x[0] * own.decay, g = gradient(x[1], p);
    x[2] += rest1 * (g - x[2]);
    x[3] = beta2 * x[3] + rest2 * g * g;
    T divisor = x[3];
    if constexpr (n == 5) {
      if (!(divisor > x[4] || divisor != divisor)) divisor = x[4];  // a NaN on either side is the result
      x[4] = divisor;
    }
    x[0] = p - own.step_size * x[2] / (std::sqrt(divisor) * own.root_factor + eps);
  }
};

/// With three tensors by momentum, of which the last is the buffer.
template <class T, int n>
struct SgdRule {
  static constexpr int views = n;
  Decay<T> gradient;
  T momentum, fresh;
  bool nesterov;
  explicit SgdRule(const SgdArgs& args)
      : gradient(args),
        momentum(static_cast<T>(args.momentum)),
        fresh(static_cast<T>(1 - args.dampening)),
        nesterov(args.nesterov) {}

  __device__ void operator()(T (&x)[n], const Own<T>& own) const {
    T g = gradient(x[1], x[0]);
    if constexpr (n == 3) {
      x[2] = own.first ? g : momentum * x[2] + fresh * g;
      g = nesterov ? g + momentum * x[2] : x[2];
    }
    x[0] -= own.lr * g;
  }
};

/// The tensors of a parameter as kernels get them. The cast, which may be null, is written with what the
/// parameter becomes.
template <class T, int views>
struct Parameter {
  void* data[views];
  void* cast;
  DType cast_dtype;
  int64_t count;
  const Own<double>* own;
};

/// Parameters and gradients are of type E, the state of its compute type.
template <class E, class T, class Rule>
__global__ void __launch_bounds__(kTableThreads)
    update_all(const Table<Parameter<T, Rule::views>> table, const Rule rule, const float* scale) {
  static_assert(sizeof(table) + sizeof(rule) + sizeof(scale) <= 4096);
  constexpr int views = Rule::views, size = 16 / sizeof(T);
  const Chunk chunk = chunk_of_block(table);
  const Parameter<T, views>& parameter = table.items[chunk.item];
  const Own<T> own(*parameter.own);
  if (own.skipped) return;
  const T factor = static_cast<T>(inverse_of(scale));
  for_chunk<size>(chunk, [&]<int length>(int64_t i, std::integral_constant<int, length>) {
    T x[views][length];
    load_pack<E>(x[0], parameter.data[0], {}, i);
    load_pack<E>(x[1], parameter.data[1], {}, i);
    for (int v = 2; v < views; ++v) load_pack<T>(x[v], parameter.data[v], {}, i);
    if (factor != 1) {
      for (T& g : x[1]) g = convert_to<T>(convert_to<E>(g * factor));
      store_pack<E>(parameter.data[1], {}, i, x[1]);
    }
    for (int j = 0; j < length; ++j) {
      T element[views];
      for (int v = 0; v < views; ++v) element[v] = x[v][j];
      rule(element, own);
      for (int v = 0; v < views; ++v) x[v][j] = element[v];
    }
    store_pack<E>(parameter.data[0], {}, i, x[0]);
    if (std::is_same_v<E, float> && parameter.cast != nullptr)
      with_floating(parameter.cast_dtype,
                    [&](auto to) { store_pack<decltype(to)>(parameter.cast, {}, i, x[0]); });
    for (int v = 2; v < views; ++v) store_pack<T>(parameter.data[v], {}, i, x[v]);
  });
}

template <int views>
struct Dtypes {
  DType of[views];
};

/// One parameter whose tensors have any layouts and dtypes.
template <class T, class Rule>
__global__ void update_one(const Walk<Rule::views> walk, const Parameter<T, Rule::views> parameter,
                           const Dtypes<Rule::views> dtypes, const Rule rule, const float* scale) {
  const Own<T> own(*parameter.own);
  if (own.skipped) return;
  const T factor = static_cast<T>(inverse_of(scale));
  for (int64_t i = first_item(); i < walk.count; i += grid_stride()) {
    int64_t place[Rule::views];
    walk.places(i, place);
    T x[Rule::views];
    for (int v = 0; v < Rule::views; ++v) x[v] = load<T>(parameter.data[v], dtypes.of[v], place[v]);
    if (factor != 1) {
      store(parameter.data[1], dtypes.of[1], place[1], x[1] * factor);
      x[1] = load<T>(parameter.data[1], dtypes.of[1], place[1]);
    }
    rule(x, own);
    for (int v = 0; v < Rule::views; ++v) {
      if (v != 1) store(parameter.data[v], dtypes.of[v], place[v], x[v]);
    }
    if (parameter.cast != nullptr)
      store(parameter.cast, parameter.cast_dtype, place[0],
            load<T>(parameter.data[0], dtypes.of[0], place[0]));
  }
}

template <class T, size_t views>
Parameter<T, static_cast<int>(views)> parameter_of(const std::array<const View*, views>& tensors,
                                                   const View& cast, const Own<double>* own) {
  Parameter<T, static_cast<int>(views)> parameter{};
  for (size_t v = 0; v < views; ++v) parameter.data[v] = tensors[v]->data;
  parameter.cast = cast.data;
  parameter.cast_dtype = cast.dtype;
  parameter.count = tensors[0]->numel();
  parameter.own = own;
  return parameter;
}

/// Parameters whose memory is runs of E, and of the compute type for the state.
template <class E, template <class, int> class MakeRule, int views, class Args>
class Runs {
 public:
  using T = Compute<E>;
  using Rule = MakeRule<T, views>;
  using Tensors = std::array<const View*, views>;

  explicit Runs(const Args& args) : batch_({Rule(args), args.state.loss_scale.template as<float>()}) {}
  bool takes(const Tensors& tensors) const {
    for (size_t v = 0; v < views; ++v) {
      if (tensors[v]->dtype != (v < 2 ? dtype_of<E> : dtype_of<T>) || !is_aligned(tensors[v]->data))
        return false;
    }
    return true;
  }
  bool add(const Tensors& tensors, const View& cast, const Own<double>* own) {
    if (!takes(tensors) || (cast.given() && (!std::is_same_v<E, float> || !is_aligned(cast.data))))
      return false;
    batch_.add(parameter_of<T>(tensors, cast, own));
    return true;
  }
  void flush() { batch_.flush(); }

 private:
  struct Launch {
    Rule rule;
    const float* scale;
    void operator()(const Table<Parameter<T, views>>& table) const {
      launch(update_all<E, T, Rule>, table.grid(), table, rule, scale);
    }
  };
  Batch<Parameter<T, views>, Launch> batch_;
};

/// All parameters that have `views` tensors.
template <template <class, int> class MakeRule, int views, class Args>
class Step {
 public:
  explicit Step(const Args& args) : args_(args), runs_(args, args, args, args) {}

  void add(const std::array<const View*, views>& tensors, const View& cast, const Own<double>* own) {
    if (tensors[0]->numel() == 0) return;
    const Walk<views> walk(tensors);
    const auto taken = [&](auto&... runs) { return (runs.add(tensors, cast, own) || ...); };
    if (walk.is_linear() && std::apply(taken, runs_)) return;
    tensors[0]->dtype == DType::float64 ? one<double>(walk, tensors, cast, own)
                                        : one<float>(walk, tensors, cast, own);
  }
  void flush() {
    std::apply([](auto&... runs) { (runs.flush(), ...); }, runs_);
  }

 private:
  template <class T>
  void one(const Walk<views>& walk, const std::array<const View*, views>& tensors, const View& cast,
           const Own<double>* own) {
    Dtypes<views> dtypes;
    for (size_t v = 0; v < views; ++v) dtypes.of[v] = tensors[v]->dtype;
    launch(update_one<T, MakeRule<T, views>>, grid_for(walk.count), walk, parameter_of<T>(tensors, cast, own),
           dtypes, MakeRule<T, views>(args_), args_.state.loss_scale.template as<float>());
  }

  const Args& args_;
  std::tuple<Runs<float, MakeRule, views, Args>, Runs<Half, MakeRule, views, Args>,
             Runs<BFloat16, MakeRule, views, Args>, Runs<double, MakeRule, views, Args>>
      runs_;
};

void adam(std::span<const AdamTensors> parameters, const AdamArgs& args) {
  Step<AdamRule, 4, AdamArgs> plain(args);
  Step<AdamRule, 5, AdamArgs> with_maximum(args);
  const Numbers numbers(parameters, args.state,
                        {args.beta1, args.beta2, args.decoupled ? args.weight_decay : 0});
  for (size_t i = 0; i < parameters.size(); ++i) {
    const AdamTensors& x = parameters[i];
    const Own<double>* const own = numbers.of(i);
    if (x.max_exp_avg_sq.given())
      with_maximum.add({&x.param, &x.grad, &x.exp_avg, &x.exp_avg_sq, &x.max_exp_avg_sq}, x.cast, own);
    else
      plain.add({&x.param, &x.grad, &x.exp_avg, &x.exp_avg_sq}, x.cast, own);
  }
  plain.flush();
  with_maximum.flush();
}

void sgd(std::span<const SgdTensors> parameters, const SgdArgs& args) {
  Step<SgdRule, 2, SgdArgs> plain(args);
  Step<SgdRule, 3, SgdArgs> with_momentum(args);
  const Numbers numbers(parameters, args.state, {});
  for (size_t i = 0; i < parameters.size(); ++i) {
    const SgdTensors& x = parameters[i];
    const Own<double>* const own = numbers.of(i);
    if (x.momentum_buffer.given())
      with_momentum.add({&x.param, &x.grad, &x.momentum_buffer}, x.cast, own);
    else
      plain.add({&x.param, &x.grad}, x.cast, own);
  }
  plain.flush();
  with_momentum.flush();
}

}  // namespace

void add_optimizers(Kernels& table) {
  table.adam = adam;
  table.sgd = sgd;
  add_loss_scaling(table);
}

}  // namespace mezzo::cuda
