// Vec<T>: a register of floats or doubles with the operators and functions that pointwise formulas use, on
// Eigen's packets, so one formula runs on SSE, AVX and AVX-512. What Eigen lacks runs lane by lane.
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <unsupported/Eigen/SpecialFunctions>

namespace mezzo::cpu {

namespace ei = Eigen::internal;

template <class T>
struct Vec {
  using Packet = typename ei::packet_traits<T>::type;
  static constexpr int size = ei::unpacket_traits<Packet>::size;

  /// Lanes of a comparison: all bits set where it holds.
  struct Mask {
    Packet bits;
  };

  Packet packet;

  Vec(Packet packet) : packet(packet) {}
  explicit Vec(double constant) : packet(ei::pset1<Packet>(static_cast<T>(constant))) {}
  static Vec load(const T* from) { return ei::ploadu<Packet>(from); }
  /// n elements, and `rest` in the lanes that are left.
  static Vec load(const T* from, int64_t n, T rest) {
    if (n >= size) return load(from);
    T x[size];
    std::fill(std::copy_n(from, n, x), x + size, rest);
    return load(x);
  }
  void store(T* to) const { ei::pstoreu(to, packet); }
  /// The first n lanes.
  void store(T* to, int64_t n) const {
    if (n >= size) return store(to);
    T x[size];
    store(x);
    std::copy_n(x, n, to);
  }
  T sum_of_lanes() const { return ei::predux(packet); }
  T largest_lane() const { return ei::predux_max(packet); }

  friend Vec operator+(Vec a, Vec b) { return ei::padd(a.packet, b.packet); }
  friend Vec operator-(Vec a, Vec b) { return ei::psub(a.packet, b.packet); }
  friend Vec operator*(Vec a, Vec b) { return ei::pmul(a.packet, b.packet); }
  friend Vec operator/(Vec a, Vec b) { return ei::pdiv(a.packet, b.packet); }
  friend Vec operator-(Vec a) { return Vec(-0.0) - a; }  // Eigen's gives 0 for 0
  friend Mask operator<(Vec a, Vec b) { return {ei::pcmp_lt(a.packet, b.packet)}; }
  friend Mask operator>(Vec a, Vec b) { return b < a; }
  friend Mask operator==(Vec a, Vec b) { return {ei::pcmp_eq(a.packet, b.packet)}; }
  friend Mask operator!=(Vec a, Vec b) {
    return {ei::pandnot(ei::ptrue(a.packet), ei::pcmp_eq(a.packet, b.packet))};
  }
  friend bool any(Mask c) { return ei::predux_any(c.bits); }
  friend Vec select(Mask c, Vec a, Vec b) { return ei::pselect(c.bits, a.packet, b.packet); }

  /// b where it is larger, else a; so a NaN in b is passed over.
  friend Vec larger(Vec a, Vec b) { return ei::pmax(a.packet, b.packet); }
  /// Lane by lane in the source, one instruction in the program: Eigen's goes through an estimate that is
  /// wrong at infinity, -0 and subnormal numbers.
  friend Vec sqrt(Vec x) {
    return lanes(x, [](T v) { return std::sqrt(v); });
  }
  friend Vec floor(Vec x) { return ei::pfloor(x.packet); }
  friend Vec ceil(Vec x) { return ei::pceil(x.packet); }
  friend Vec rint(Vec x) { return ei::print(x.packet); }
  friend Vec trunc(Vec x) { return select(x < Vec(0), ei::pceil(x.packet), ei::pfloor(x.packet)); }
  /// Eigen's log takes subnormal numbers for the smallest normal one.
  friend Vec log(Vec x) {
    if (ei::predux_min(x.packet) < std::numeric_limits<T>::min())
      return lanes(x, [](T v) { return std::log(v); });
    return ei::plog(x.packet);
  }
  /// Eigen's exp stops falling at the smallest normal number, below which the answer is 0 here, and is
  /// infinite a little too early.
  friend Vec exp(Vec x) {
#ifdef __AVX512F__
    if constexpr (std::is_same_v<T, float>) return exp_512(x.packet);
#endif
    const T lowest = std::log(std::numeric_limits<T>::min()),
            highest = std::log(std::numeric_limits<T>::max()) - 1;
    if (any(x > Vec(highest))) return lanes(x, [](T v) { return std::exp(v); });
    return select(x < Vec(lowest), Vec(0), ei::pexp(x.packet));
  }
  friend Vec sin(Vec x) {
    if constexpr (ei::packet_traits<T>::HasSin)
      return ei::psin(x.packet);
    else
      return lanes(x, [](T v) { return std::sin(v); });
  }
  friend Vec cos(Vec x) {
    if constexpr (ei::packet_traits<T>::HasCos)
      return ei::pcos(x.packet);
    else
      return lanes(x, [](T v) { return std::cos(v); });
  }
  /// Eigen's tanh clamps its argument, which loses NaN.
  friend Vec tanh(Vec x) {
    if constexpr (ei::packet_traits<T>::HasTanh)
      return select(x == x, ei::ptanh(x.packet), x);
    else
      return lanes(x, [](T v) { return std::tanh(v); });
  }
  friend Vec expm1(Vec x) {
    return lanes(x, [](T v) { return std::expm1(v); });
  }
  friend Vec log1p(Vec x) {
    return lanes(x, [](T v) { return std::log1p(v); });
  }
  friend Vec log2(Vec x) {
    return lanes(x, [](T v) { return std::log2(v); });
  }
  /// Eigen's is for float32, within 3 units of the last place.
  friend Vec erf(Vec x) {
    if constexpr (std::is_same_v<T, float>) return ei::perf(x.packet);
    return lanes(x, [](T v) { return std::erf(v); });
  }
  /// Squares, and the power of 1 that their slope takes, are most of what is asked for.
  friend Vec pow(Vec a, Vec b) {
    const T lowest = ei::predux_min(b.packet), highest = ei::predux_max(b.packet);
    if (lowest == T(2) && highest == T(2)) return a * a;
    if (lowest == T(1) && highest == T(1)) return a;
    return lanes(a, b, [](T x, T y) { return std::pow(x, y); });
  }
  friend Vec fmod(Vec a, Vec b) {
    return lanes(a, b, [](T x, T y) { return std::fmod(x, y); });
  }

 private:
#ifdef __AVX512F__
  /// e^x = 2^n e^r with n = x / ln 2 rounded, |r| <= ln 2 / 2. The polynomial is that of Moshier's Cephes
  /// (expf), ln 2 is in two parts, and 2^n an instruction that knows infinity. 0 below the normal numbers:
  /// the processor takes 150 cycles for a vector with a subnormal result. Within 1.3 units of the last place,
  /// in two thirds of the time of Eigen's with its ends mended.
  static __m512 exp_512(__m512 x) {
    const auto c = [](float value) { return _mm512_set1_ps(value); };
    const __mmask16 is_normal = _mm512_cmp_ps_mask(x, c(-87.3365448f), _CMP_NLT_UQ);  // or NaN
    x = _mm512_min_ps(c(89), x);          // infinity in any case beyond; NaN, as the second operand, stays
    const __m512 rounder = c(0x1.8p23f);  // a number so large rounds what is added to it
    const __m512 n = _mm512_sub_ps(_mm512_fmadd_ps(x, c(1.44269504088896341f), rounder), rounder);
    const __m512 r = _mm512_fnmadd_ps(n, c(-2.12194440e-4f), _mm512_fnmadd_ps(n, c(0.693359375f), x));
    __m512 y = c(1.9875691500e-4f);
    for (const float next :
         {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f})
      y = _mm512_fmadd_ps(y, r, c(next));
    y = _mm512_fmadd_ps(y, _mm512_mul_ps(r, r), _mm512_add_ps(r, c(1)));
    return _mm512_maskz_scalef_ps(is_normal, y, n);
  }
#endif
  template <class F>
  static Vec lanes(Vec a, F f) {
    T x[size];
    a.store(x);
    for (T& v : x) v = f(v);
    return load(x);
  }
  template <class F>
  static Vec lanes(Vec a, Vec b, F f) {
    T x[size], y[size];
    a.store(x);
    b.store(y);
    for (int i = 0; i < size; ++i) x[i] = f(x[i], y[i]);
    return load(x);
  }
};

}  // namespace mezzo::cpu
