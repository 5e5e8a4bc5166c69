// Vector instructions as functions, for registers of 8 (AVX2) or 16 floats (AVX-512): what the two
// sets spell differently is here, and so are the functions of vector_math.h, step by step as there.
#pragma once
#include <xbyak/xbyak.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <vector>

namespace adjoint {

using Vec = Xbyak::Xmm;  // in fact a Ymm or Zmm: the width is in the value

enum class Compare : uint8_t {
  kEqual = 0,
  kUnordered = 3,
  kNotEqual = 4,
  kLess = 17,
  kNotLess = 21
};
inline Compare negated(Compare c) { return static_cast<Compare>(static_cast<int>(c) ^ 4); }

class VectorCode : public Xbyak::CodeGenerator {
 public:
  explicit VectorCode(bool wide)
      : CodeGenerator(4096, Xbyak::AutoGrow),
        wide(wide),
        lanes(wide ? 16 : 8),
        num_registers(wide ? 32 : 16) {}

  const bool wide;
  const int lanes, num_registers;

  // All of a register, and what code works on: one number a row needs no more than a quarter, and
  // short divisions and roots take half the time of long ones.
  Vec whole(int i) const { return wide ? Vec(Xbyak::Zmm(i)) : Vec(Xbyak::Ymm(i)); }
  Vec vec(int i) const { return for_scalars ? Vec(i) : whole(i); }
  bool for_scalars = false;

  // A constant as an operand: 64 bytes of it lie in memory, and the hottest in registers.
  const Xbyak::Operand& constant(float value) { return bits(std::bit_cast<uint32_t>(value)); }
  const Xbyak::Operand& bits(uint32_t value) {
    const auto [it, added] = places_.try_emplace(value, places_.size());
    if (added) addresses_.emplace(value, constant_at(it->second));
    ++uses[value];
    if (const auto pin = pins.find(value); pin != pins.end()) return pin->second;
    return addresses_.at(value);
  }
  Xbyak::Address constant_at(size_t place) { return ptr[r10 + 128 + 64 * static_cast<int>(place)]; }
  Xbyak::Address constant_address(uint32_t value) { return constant_at(places_.at(value)); }
  void load(const Vec& to, const Xbyak::Operand& from) { vmovups(to, from); }

  // The pool: ones and zeros that masks of AVX2 are cut from, then the constants.
  struct alignas(64) Line {
    uint32_t words[16] = {};
  };
  std::vector<Line> pool() const {
    std::vector<Line> lines(2 + places_.size());
    std::fill_n(lines[0].words, 16, ~0u);
    for (const auto& [value, place] : places_) std::fill_n(lines[2 + place].words, 16, value);
    return lines;
  }

  std::map<uint32_t, Vec> pins;  // constants in registers
  std::map<uint32_t, int> uses;  // how often each was asked for

  // y = condition ? yes : 0 and the like; `spare` is any register (AVX2 keeps the mask there).
  void mask(const Vec& spare, const Vec& a, const Xbyak::Operand& b, Compare how) {
    if (wide) {
      vcmpps(k2, a, b, static_cast<uint8_t>(how));
    } else {
      vcmpps(spare, a, b, static_cast<uint8_t>(how));
    }
  }
  void masked_or_zero(const Vec& y, const Vec& spare, const Xbyak::Operand& yes) {
    if (wide) {
      vmovups(y | k2 | T_z, yes);
    } else {
      vandps(y, spare, yes);
    }
  }
  void masked_or(const Vec& y, const Vec& spare, const Xbyak::Operand& yes, const Vec& no) {
    if (wide) {
      vblendmps(y | k2, no, yes);
    } else {
      vblendvps(y, no, yes, spare);
    }
  }

  // y = exp(x); t are 4 registers beside y and x; y may be x.
  void exponential(const Vec& y, const Vec& x, const Vec* t) {
    const Vec &r = t[0], &n = t[1], &p = t[2], &s = t[3];
    load(r, constant(89.0f));
    vminps(r, r, x);
    load(s, constant(1.44269504f));
    vfmadd213ps(s, r, constant(12582912.0f));
    vsubps(n, s, constant(12582912.0f));
    vfmadd231ps(r, n, constant(-0.693359375f));
    vfmadd231ps(r, n, constant(2.12194440e-4f));
    polynomial(p, r,
               {1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f,
                1.6666665459e-1f, 5.0000001201e-1f, 1.0f, 1.0f});
    if (wide) {
      mask(p, x, constant(-87.3365f), Compare::kNotLess);
      vscalefps(y | k2 | T_z, p, n);
      return;
    }
    vpsubd(s, s, bits(0x4B400000));
    vpsrad(n, s, 1);
    vpsubd(s, s, n);
    for (const Vec& half : {n, s}) {
      vpaddd(half, half, bits(127));
      vpslld(half, half, 23);
      vmulps(p, p, half);
    }
    mask(n, x, constant(-87.3365f), Compare::kNotLess);
    vandps(y, p, n);
  }

  // y = 1 / (1 + exp(-x)); t as above, and y may be x.
  void logistic(const Vec& y, const Vec& x, const Vec* t) {
    const Vec& negative = t[4];
    vxorps(negative, x, bits(0x80000000));
    exponential(negative, negative, t);
    vaddps(negative, negative, constant(1.0f));
    load(t[0], constant(1.0f));
    vdivps(y, t[0], negative);
  }

  // y = tanh(x); t are 5 registers.
  void hyperbolic_tangent(const Vec& y, const Vec& x, const Vec* t) {
    const Vec& far = t[4];
    vandps(far, x, bits(0x7fffffff));
    vaddps(far, far, far);
    exponential(far, far, t);
    vaddps(far, far, constant(1.0f));
    load(t[0], constant(2.0f));
    vdivps(far, t[0], far);
    load(t[0], constant(1.0f));
    vsubps(far, t[0], far);
    vandps(far, far, bits(0x7fffffff));
    vandps(t[0], x, bits(0x80000000));
    vorps(far, far, t[0]);
    const Vec &z = t[0], &p = t[1];
    vmulps(z, x, x);
    polynomial(p, z,
               {-5.70498872745e-3f, 2.06390887954e-2f, -5.37397155531e-2f, 1.33314422036e-1f,
                -3.33332819422e-1f});
    vmulps(z, z, x);
    vfmadd213ps(p, z, x);
    vandps(t[2], x, bits(0x7fffffff));
    mask(t[2], t[2], constant(0.625f), Compare::kLess);
    masked_or(y, t[2], p, far);
  }

  // y = erf(x); t are 5 registers.
  void error_function(const Vec& y, const Vec& x, const Vec* t) {
    const Vec &far = t[4], &a = t[0], &p = t[1];
    vandps(a, x, bits(0x7fffffff));
    load(far, constant(4.0f));
    vminps(a, far, a);
    polynomial(far, a,
               {-1.72853470e-5f, 3.83197126e-4f, -3.88396438e-3f, 2.42546219e-2f, -1.06777877e-1f,
                -6.34846687e-1f, -1.28717512e-1f});
    vfmsub213ps(far, a, a);
    exponential(far, far, t);
    load(p, constant(1.0f));
    vsubps(far, p, far);
    vandps(far, far, bits(0x7fffffff));
    vandps(p, x, bits(0x80000000));
    vorps(far, far, p);
    const Vec& z = t[0];
    vmulps(z, x, x);
    polynomial(p, z,
               {-5.96761703e-4f, 4.99119423e-3f, -2.67681349e-2f, 1.12819925e-1f, -3.76125336e-1f,
                1.28379166e-1f});
    vfmadd213ps(p, x, x);
    vandps(z, x, bits(0x7fffffff));
    mask(z, z, constant(0.927734375f), Compare::kLess);
    masked_or(y, z, p, far);
  }

  // y = log(x); t are 5 registers.
  void logarithm(const Vec& y, const Vec& x, const Vec* t) {
    const Vec &f = t[0], &n = t[1], &z = t[2], &p = t[3], &s = t[4];
    vmulps(f, x, constant(0x1p23f));
    mask(s, x, constant(0x1p-126f), Compare::kLess);
    masked_or(f, s, f, x);
    masked_or_zero(z, s, constant(23.0f));
    vpsubd(n, f, bits(0x3f3504f3));
    vpsrad(n, n, 23);
    vpslld(p, n, 23);
    vpsubd(f, f, p);
    vcvtdq2ps(n, n);
    vsubps(n, n, z);
    vsubps(f, f, constant(1.0f));
    vmulps(z, f, f);
    polynomial(
        p, f,
        {7.0376836292e-2f, -1.1514610310e-1f, 1.1676998740e-1f, -1.2420140846e-1f, 1.4249322787e-1f,
         -1.6668057665e-1f, 2.0000714765e-1f, -2.4999993993e-1f, 3.3333331174e-1f});
    vmulps(s, f, z);
    vmulps(p, s, p);
    vfmadd231ps(p, n, constant(-2.12194440e-4f));
    vfmadd231ps(p, z, constant(-0.5f));
    vaddps(p, f, p);
    vfmadd231ps(p, n, constant(0.693359375f));
    mask(s, x, constant(INFINITY), Compare::kLess);
    masked_or(p, s, p, x);
    // 0 and below: minus infinity, and no number.
    load(n, bits(0x7fc00000));
    mask(s, x, constant(0.0f), Compare::kEqual);
    masked_or(n, s, constant(-INFINITY), n);
    load(z, constant(0.0f));
    mask(s, z, x, Compare::kLess);
    masked_or(y, s, p, n);
  }

  // y = the polynomial in x with these coefficients, the highest power's first.
  void polynomial(const Vec& y, const Vec& x, std::initializer_list<float> coefficients) {
    load(y, constant(*coefficients.begin()));
    for (auto c = coefficients.begin() + 1; c != coefficients.end(); ++c) {
      vfmadd213ps(y, x, constant(*c));
    }
  }

  // The nearest bfloat16 in the upper half of each word, anything in the lower; y is not x.
  void round_bf16(const Vec& y, const Vec& x, const Vec& spare, const Vec& spare2) {
    vpsrld(y, x, 16);
    vandps(y, y, bits(1));
    vpaddd(y, y, bits(0x7fff));
    vpaddd(y, y, x);
    // Not a number: one bit of it must outlive the cut.
    mask(spare, x, x, Compare::kUnordered);
    vorps(spare2, x, bits(0x400000));
    masked_or(y, spare, spare2, y);
  }

 private:
  std::map<uint32_t, size_t> places_;
  std::map<uint32_t, Xbyak::Address> addresses_;
};

}  // namespace adjoint
