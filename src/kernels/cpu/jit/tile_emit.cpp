// The instructions of each node, and how rows are read, reduced and stored.
#if ADJOINT_XBYAK
#include "body/facts.h"
#include "kernels/cpu/jit/tile_generator.h"

namespace adjoint {

void TileGenerator::emit(int i) {
  const ExprNode& n = node(i);
  const auto with_temps = [&](int count, auto&& f) {
    const Vec x = vec(reg(n.args[0]));
    std::vector<Vec> t;
    for (int k = 0; k < count; ++k) t.push_back(vec(temp()));
    f(vec(result(i)), x, t.data());
  };
  switch (n.kind) {
    case ExprKind::kInput:
      emit_input_scalar(i, result(i));
      break;
    case ExprKind::kNeg: {
      const Vec x = vec(reg(n.args[0]));
      vxorps(vec(result(i)), x, bits(0x80000000));
      break;
    }
    case ExprKind::kSqrt: {
      const Xbyak::Operand& x = operand(n.args[0]);
      vsqrtps(vec(result(i)), x);
      break;
    }
    case ExprKind::kExp:
      with_temps(4, [&](const Vec& y, const Vec& x, const Vec* t) { exponential(y, x, t); });
      break;
    case ExprKind::kTanh:
      with_temps(5, [&](const Vec& y, const Vec& x, const Vec* t) { hyperbolic_tangent(y, x, t); });
      break;
    case ExprKind::kSigmoid:
      with_temps(5, [&](const Vec& y, const Vec& x, const Vec* t) { logistic(y, x, t); });
      break;
    case ExprKind::kErf:
      with_temps(5, [&](const Vec& y, const Vec& x, const Vec* t) { error_function(y, x, t); });
      break;
    case ExprKind::kLog:
      with_temps(5, [&](const Vec& y, const Vec& x, const Vec* t) { logarithm(y, x, t); });
      break;
    case ExprKind::kFinite:
      with_temps(1, [&](const Vec& y, const Vec& x, const Vec* t) {
        vsubps(t[0], x, x);
        mask(t[0], t[0], constant(0.0f), Compare::kEqual);
        masked_or_zero(y, t[0], constant(1.0f));
      });
      break;
    case ExprKind::kWhole: {
      constexpr uint8_t kNearestEven = 8;  // and no exception where something was rounded
      const Xbyak::Operand& x = operand(n.args[0]);
      if (wide) {
        vrndscaleps(vec(result(i)), x, kNearestEven);
      } else {
        vroundps(vec(result(i)), x, kNearestEven);
      }
      break;
    }
    case ExprKind::kRound:
      if (static_cast<Dtype>(n.index) != Dtype::kBF16) {
        const Vec x = vec(reg(n.args[0]));
        vmovups(vec(result(i)), x);
        break;
      }
      with_temps(3, [&](const Vec& y, const Vec& x, const Vec* t) {
        round_bf16(t[0], x, t[1], t[2]);
        vandps(y, t[0], bits(0xffff0000));
      });
      break;
    case ExprKind::kSelect:
      emit_select(i);
      break;
    default:
      emit_binary(i);
  }
  if (layout_.varies[i]) return;
  const int y = regs_->where(i);
  if (plan_.exported[i]) vmovss(ptr[rdi + args_.scalar(i)], vec(y));
  vbroadcastss(whole(y), vec(y));
  vmovups(home(i), whole(y));
}

void TileGenerator::emit_binary(int i) {
  const ExprNode& n = node(i);
  int a = n.args[0], b = n.args[1];
  const bool compares = n.kind == ExprKind::kLess || n.kind == ExprKind::kEqual;
  if (compares) {
    const Vec x = vec(reg(a));
    const Xbyak::Operand& y = operand(b);
    const Vec spare = vec(temp());
    mask(spare, x, y, n.kind == ExprKind::kLess ? Compare::kLess : Compare::kEqual);
    masked_or_zero(vec(result(i)), spare, constant(1.0f));
    return;
  }
  // The processor's least and greatest give the second operand where neither is less, as
  // min(x, y) = y < x ? y : x does its first.
  const bool swapped = n.kind == ExprKind::kMin || n.kind == ExprKind::kMax;
  const bool either = n.kind == ExprKind::kAdd || n.kind == ExprKind::kMul;
  if (swapped || (either && regs_->where(a) < 0 && regs_->where(b) >= 0)) std::swap(a, b);
  if (either && !layout_.varies[a] && layout_.varies[b]) std::swap(a, b);
  const Vec x = vec(reg(a));
  const Xbyak::Operand& y = operand(b);
  const Vec to = vec(result(i));
  switch (n.kind) {
    case ExprKind::kAdd:
      return vaddps(to, x, y);
    case ExprKind::kSub:
      return vsubps(to, x, y);
    case ExprKind::kMul:
      return vmulps(to, x, y);
    case ExprKind::kDiv:
      return vdivps(to, x, y);
    case ExprKind::kMin:
      return vminps(to, x, y);
    case ExprKind::kMax:
      return vmaxps(to, x, y);
    default:
      CHECK(false, "generated code for every kind that the plan gives it");
  }
}

// a != 0 ? b : c, where a may be a comparison that is read here alone.
void TileGenerator::emit_select(int i) {
  const ExprNode& n = node(i);
  const ExprNode& condition = node(n.args[0]);
  const bool folded = plan_.folded[n.args[0]];
  const auto zero = [&](int arg) {
    return plan_.maker[arg] == Maker::kConstant &&
           std::bit_cast<uint32_t>(static_cast<float>(node(arg).value)) == 0;
  };
  Compare how = !folded                             ? Compare::kNotEqual
                : condition.kind == ExprKind::kLess ? Compare::kLess
                                                    : Compare::kEqual;
  int yes = n.args[1], no = n.args[2];
  if (zero(yes) && !zero(no)) {
    std::swap(yes, no);
    how = negated(how);
  }
  const Vec left = vec(reg(folded ? condition.args[0] : n.args[0]));
  const Xbyak::Operand& right = folded ? operand(condition.args[1]) : constant(0.0f);
  const Vec spare = vec(temp());
  mask(spare, left, right, how);
  if (zero(no)) {
    const Xbyak::Operand& y = operand(yes);
    masked_or_zero(vec(result(i)), spare, y);
    return;
  }
  const Vec otherwise = vec(reg(no));
  const Xbyak::Operand& y = operand(yes);
  masked_or(vec(result(i)), spare, y, otherwise);
}

void TileGenerator::emit_input_scalar(int i, int to) {
  const int64_t stream = node(i).index;
  const Xbyak::Reg64 from = base(stream);
  if (in_types_[stream].dtype == Dtype::kF32) {
    vbroadcastss(vec(to), ptr[from]);
    return;
  }
  movzx(eax, word[from]);
  shl(eax, 16);
  vmovd(Xbyak::Xmm(to), eax);
  vbroadcastss(vec(to), Xbyak::Xmm(to));
}

void TileGenerator::reduce(int i) {
  const bool sum = node(i).kind == ExprKind::kRowSum;
  Vec x = vec(reg(node(i).args[0]));
  const bool in_register = accumulators_.count(i) > 0;
  const Vec total = vec(in_register ? accumulator(i, half_) : temp());
  if (!in_register) vmovups(total, home(i, 32 * half_));
  if (masked_ && !wide) {
    // Elements past the end count for nothing.
    const Vec own = vec(temp());
    if (sum) {
      vandps(own, x, vec(mask_));
    } else {
      load(own, bits(0xff800000));
      vblendvps(own, own, x, vec(mask_));
    }
    x = own;
  }
  const Vec to = masked_ && wide ? total | k1 : total;
  if (sum) {
    vaddps(to, total, x);
  } else {
    vmaxps(to, x, total);
  }
  if (!in_register) vmovups(home(i, 32 * half_), total);
}

// 16 lanes to one: halves onto halves, as reduce_sum does.
void TileGenerator::finish_reduction(int i) {
  const bool sum = node(i).kind == ExprKind::kRowSum;
  const auto join = [&](const Vec& low, const Vec& high) {
    if (sum) {
      vaddps(low, low, high);
    } else {
      vmaxps(low, high, low);
    }
  };
  const Vec y0 = Xbyak::Ymm(0), y1 = Xbyak::Ymm(1);
  const bool in_register = accumulators_.count(i) > 0;
  if (wide) {
    const Xbyak::Zmm z0(0);
    if (in_register) {
      vmovaps(z0, Xbyak::Zmm(accumulator(i, 0)));
    } else {
      vmovups(z0, home(i));
    }
    vextractf64x4(Xbyak::Ymm(1), z0, 1);
  } else if (in_register) {
    // Other accumulators are not in the first two registers.
    vmovaps(y0, vec(accumulator(i, 0)));
    vmovaps(y1, vec(accumulator(i, 1)));
  } else {
    vmovups(y0, home(i));
    vmovups(y1, home(i, 32));
  }
  join(y0, y1);
  vextractf128(xmm1, Xbyak::Ymm(0), 1);
  join(xmm0, xmm1);
  vmovhlps(xmm1, xmm0, xmm0);
  join(xmm0, xmm1);
  vmovshdup(xmm1, xmm0);
  join(xmm0, xmm1);
  if (plan_.exported[i]) vmovss(ptr[rdi + args_.scalar(i)], xmm0);
  vbroadcastss(vec(0), xmm0);
  vmovups(home(i), vec(0));
}

void TileGenerator::store_output(int k) {
  const BodyOutput& out = layout_.body.outputs[k];
  const int value = reg(out.node);
  const int64_t stream = args_.output(k);
  if (!is_sum(out)) {
    store_row(value, stream, out_types_[k].dtype);
    return;
  }
  const int total = temp();
  load_row(total, stream, Dtype::kF32);
  vaddps(vec(total), vec(total), vec(value));
  store_row(total, stream, Dtype::kF32);
}

Xbyak::Reg64 TileGenerator::base(int64_t stream) {
  if (const auto p = pointers_.find(stream); p != pointers_.end()) return p->second;
  mov(rax, ptr[rdi + args_.stream(stream)]);
  return rax;
}

Xbyak::Address TileGenerator::at(int64_t stream, Dtype dtype) {
  const Xbyak::Reg64 from = base(stream);
  if (dtype == Dtype::kF32) return ptr[from + rcx * 4 + 32 * half_];
  return ptr[from + rcx * 2 + 16 * half_];
}

void TileGenerator::load_row(int r, int64_t stream, Dtype dtype) {
  const Vec v = vec(r);
  const Xbyak::Address row = at(stream, dtype);
  if (dtype == Dtype::kF32) {
    if (!masked_) {
      vmovups(v, row);
    } else if (wide) {
      vmovups(v | k1 | T_z, row);
    } else {
      vmaskmovps(v, vec(mask_), row);
    }
    return;
  }
  if (masked_ && wide) {
    vpmovzxwd(v | k1 | T_z, row);
  } else if (masked_) {
    const Xbyak::Address tail = home(num_nodes());
    vxorps(v, v, v);
    vmovups(tail, v);
    copy_last_words(row, false);
    vpmovzxwd(v, tail);
  } else {
    vpmovzxwd(v, row);
  }
  vpslld(v, v, 16);
}

// (a, b) -> (-b, a). Rows are whole vectors here, so nothing is masked.
void TileGenerator::load_turned(int r, int arg) {
  const int half = static_cast<int>(layout_.row() / 2);
  const bool in_slot = plan_.slot[arg] >= 0, in_output = plan_.kept_in[arg] >= 0;
  const Dtype dtype = in_slot || in_output ? Dtype::kF32 : in_types_[node(arg).index].dtype;
  const Xbyak::Reg64 from = base(in_slot     ? args_.slot(plan_.slot[arg])
                                 : in_output ? args_.output(plan_.kept_in[arg])
                                             : node(arg).index);
  lea(rsi, ptr[rcx + half]);
  lea(r11, ptr[rcx - half]);
  cmp(rcx, half);
  cmovge(rsi, r11);
  if (dtype == Dtype::kF32) {
    vmovups(vec(r), ptr[from + rsi * 4 + 32 * half_]);
  } else {
    vpmovzxwd(vec(r), ptr[from + rsi * 2 + 16 * half_]);
    vpslld(vec(r), vec(r), 16);
  }
  bits(0x80000000);
  lea(rsi, constant_address(0x80000000));
  lea(rax, ptr[r10 + 64]);  // zeros
  cmp(rcx, half);
  cmovl(rax, rsi);
  vxorps(vec(r), vec(r), ptr[rax]);
}

void TileGenerator::store_row(int r, int64_t stream, Dtype dtype) {
  const Vec v = vec(r);
  if (dtype == Dtype::kF32) {
    const Xbyak::Address row = at(stream, dtype);
    if (!masked_) {
      vmovups(row, v);
    } else if (wide) {
      vmovups(row | k1, v);
    } else {
      vmaskmovps(row, vec(mask_), v);
    }
    return;
  }
  const Vec t = vec(temp());
  const Vec spare = vec(temp());
  round_bf16(t, v, spare, vec(temp()));
  vpsrld(t, t, 16);
  const Xbyak::Address row = at(stream, dtype);
  if (wide) {
    const Xbyak::Zmm z(t.getIdx());
    if (masked_) {
      vpmovdw(row | k1, z);
    } else {
      vpmovdw(row, z);
    }
    return;
  }
  const Xbyak::Xmm low(t.getIdx()), high(spare.getIdx());
  vextracti128(high, Xbyak::Ymm(t.getIdx()), 1);
  vpackusdw(low, low, high);
  if (masked_) {
    vmovdqu(home(num_nodes()), low);
    copy_last_words(row, true);
  } else {
    vmovdqu(row, low);
  }
}

// AVX2 has no masks for 16 bits: the last few elements of a row go one by one.
void TileGenerator::copy_last_words(const Xbyak::Address& row, bool to_row) {
  Xbyak::Label next, done;
  lea(rsi, row);
  mov(r11, ptr[rdi + TileArgs::kElements]);
  sub(r11, rcx);
  sub(r11, 8 * half_);
  jle(done);
  mov(eax, 8);
  cmp(r11, rax);
  cmovg(r11, rax);
  const auto tail = word[rsp + r11 * 2 + 64 * num_nodes() - 2];
  L(next);
  if (to_row) {
    mov(ax, tail);
    mov(word[rsi + r11 * 2 - 2], ax);
  } else {
    mov(ax, word[rsi + r11 * 2 - 2]);
    mov(tail, ax);
  }
  dec(r11);
  jnz(next);
  L(done);
}

}  // namespace adjoint
#endif
