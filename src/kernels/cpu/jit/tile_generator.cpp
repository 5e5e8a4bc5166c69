#if ADJOINT_XBYAK
#include "kernels/cpu/jit/tile_generator.h"

namespace adjoint {

namespace {

uint32_t bits_of(const ExprNode& n) { return std::bit_cast<uint32_t>(static_cast<float>(n.value)); }

}  // namespace

TileGenerator::TileGenerator(const Layout& layout, const std::vector<adjoint::Type>& in_types,
                             const std::vector<adjoint::Type>& out_types, bool wide)
    : VectorCode(wide),
      layout_(layout),
      plan_(layout.tile),
      in_types_(in_types),
      out_types_(out_types),
      args_(tile_args(layout)) {
  for (size_t from = 0; from < plan_.segments.size();) {
    size_t to = from + 1;
    while (to < plan_.segments.size() && plan_.segments[to].calls.empty()) ++to;
    function(from, to);
    from = to;
  }
  ready(PROTECT_RE);
}

void TileGenerator::function(size_t from, size_t to) {
  using namespace Xbyak::util;
  align(64);
  starts.push_back(getSize());
  const Xbyak::Reg64 saved[] = {rbx, rbp, r12, r13, r14, r15};
  for (const Xbyak::Reg64& r : saved) push(r);
  const int frame = 64 * (num_nodes() + 1);
  mov(rax, rsp);
  sub(rsp, frame + 64);
  and_(rsp, -64);
  mov(ptr[rsp + frame], rax);
  mov(r10, ptr[rdi + TileArgs::kConstants]);
  // The streams of this function, as many as there are registers; rax, rsi and r11 are scratch.
  std::vector<bool> used(args_.num_streams(), false);
  for (size_t s = from; s < to; ++s) {
    const Segment& part = plan_.segments[s];
    for (const int k : part.outputs) used[args_.output(k)] = true;
    for (const int i : part.kept) used[args_.slot(plan_.slot[i])] = true;
    for (int i = 0; i < num_nodes(); ++i) {
      if (node(i).kind == ExprKind::kInput && plan_.maker[i] != Maker::kCalled) {
        used[node(i).index] = true;
      }
      if (plan_.slot[i] >= 0) used[args_.slot(plan_.slot[i])] = true;
    }
  }
  const Xbyak::Reg64 free[] = {r8, r9, rbx, rbp, r12, r13, r14, r15};
  pointers_.clear();
  for (int64_t s = 0; s < args_.num_streams() && pointers_.size() < std::size(free); ++s) {
    if (!used[s]) continue;
    const Xbyak::Reg64& r = free[pointers_.size()];
    pointers_.emplace(s, r);
    mov(r, ptr[rdi + args_.stream(s)]);
  }
  Xbyak::Label next_row;
  L(next_row);
  for (size_t s = from; s < to; ++s) segment(plan_.segments[s]);
  if (plan_.all_generated) {
    for (int64_t s = 0; s < args_.num_streams(); ++s) {
      if (!used[s]) continue;
      const auto p = pointers_.find(s);
      if (p != pointers_.end()) {
        add(p->second, ptr[rdi + args_.step(s)]);
      } else {
        mov(rax, ptr[rdi + args_.step(s)]);
        add(qword[rdi + args_.stream(s)], rax);
      }
    }
    dec(qword[rdi + TileArgs::kRows]);
    jnz(next_row, T_NEAR);
  }
  vzeroupper();
  mov(rsp, ptr[rsp + frame]);
  for (size_t i = std::size(saved); i-- > 0;) pop(saved[i]);
  ret();
}

void TileGenerator::segment(const Segment& s) {
  for (const int i : s.calls) {
    if (layout_.varies[i]) continue;
    vbroadcastss(vec(0), ptr[rdi + args_.scalar(i)]);
    vmovups(home(i), vec(0));
  }
  scalars(s);
  if (s.loops()) loop(s);
}

void TileGenerator::scalars(const Segment& s) {
  pins.clear();
  scalar_pins_.clear();
  count_ = num_registers;
  const Block block = block_of_scalars(s);
  for_scalars = true;
  iteration(block, 0, false);
  for_scalars = false;
}

void TileGenerator::loop(const Segment& s) {
  using namespace Xbyak::util;
  const Block block = block_of(s);
  const int halves = wide ? 1 : 2;
  int limit = num_registers;
  accumulators_.clear();
  for (const int i : s.reductions) {
    if (accumulators_.size() < (wide ? 8u : 3u)) {
      std::vector<int> mine;
      for (int h = 0; h < halves; ++h) mine.push_back(--limit);
      accumulators_.emplace(i, mine);
    }
    const bool sum = node(i).kind == ExprKind::kRowSum;
    for (int h = 0; h < halves; ++h) {
      const bool in_register = accumulators_.count(i) > 0;
      const Vec v = vec(in_register ? accumulator(i, h) : 0);
      if (sum) {
        vxorps(v, v, v);
      } else {
        bits(0xff800000);
        load(v, constant_address(0xff800000));
      }
      if (!in_register) vmovups(home(i, 32 * h), v);
    }
  }
  pin(block, limit);

  Xbyak::Label next, last, done;
  xor_(ecx, ecx);
  mov(rdx, ptr[rdi + TileArgs::kElements]);
  and_(rdx, -16);
  jz(last, T_NEAR);
  align(32);
  L(next);
  for (int h = 0; h < halves; ++h) iteration(block, h, false);
  add(rcx, 16);
  cmp(rcx, rdx);
  jb(next, T_NEAR);
  L(last);
  mov(rax, ptr[rdi + TileArgs::kElements]);
  sub(rax, rcx);
  jz(done, T_NEAR);
  if (wide) {
    mov(esi, -1);
    bzhi(esi, esi, eax);
    kmovw(k1, esi);
  } else {
    neg(rax);
    lea(rdx, ptr[r10 + rax * 4 + 64]);
  }
  for (int h = 0; h < halves; ++h) iteration(block, h, true);
  L(done);
  for (const int i : s.reductions) finish_reduction(i);
  pins.clear();
  scalar_pins_.clear();
}

// Registers that a trial run leaves free hold what it asked memory for most.
void TileGenerator::pin(const Block& block, int limit) {
  pins.clear();
  scalar_pins_.clear();
  uses.clear();
  scalar_uses_.clear();
  count_ = limit;
  const size_t start = getSize();
  iteration(block, 0, false);
  // The tail needs more: on AVX2 its mask, and what is masked by it. (It cannot be tried: it has
  // jumps, and a jump that is taken back still gets its target written.)
  const int most = regs_most_ + (wide ? 1 : 4);
  setSize(start);
  std::vector<std::pair<int, std::pair<bool, uint32_t>>> asked;  // times, (is a node, which)
  for (const auto& [bits, times] : uses) asked.push_back({times, {false, bits}});
  for (const auto& [i, times] : scalar_uses_) {
    asked.push_back({times, {true, static_cast<uint32_t>(i)}});
  }
  std::sort(asked.rbegin(), asked.rend());
  for (const auto& [times, what] : asked) {
    if (count_ <= most) break;
    const Vec v = vec(--count_);
    if (what.first) {
      load(v, home(static_cast<int>(what.second)));
      scalar_pins_.emplace(what.second, v);
    } else {
      load(v, constant_address(what.second));
      pins.emplace(what.second, v);
    }
  }
}

void TileGenerator::iteration(const Block& block, int half, bool masked) {
  using namespace Xbyak::util;
  TileRegisters regs(count_, block.reads);
  regs_ = &regs;
  block_ = &block;
  half_ = half;
  masked_ = masked;
  place_ = 0;
  if (masked && !wide) {
    mask_ = take();
    vmovups(vec(mask_), ptr[rdx + 32 * half]);
  }
  for (int place = 0; place < static_cast<int>(block.steps.size()); ++place) {
    place_ = place;
    if (place == block.first_late) {
      // Everything that is still to be stored must have been read by now.
      for (size_t late = place; late < block.steps.size(); ++late) {
        for (const int i : read_by(block.steps[late])) {
          if (layout_.varies[i] && !regs.at_home[i]) reg(i);
        }
        regs.unlock_all();
      }
    }
    step(block, place);
  }
  regs_most_ = regs.most();
  regs_ = nullptr;
}

void TileGenerator::step(const Block& block, int place) {
  place_ = place;
  const Step& s = block.steps[place];
  switch (s.kind) {
    case Step::Kind::kNode:
      emit(s.index);
      break;
    case Step::Kind::kReduce:
      reduce(s.index);
      break;
    case Step::Kind::kKeep:
      store_row(reg(s.index), args_.slot(plan_.slot[s.index]), Dtype::kF32);
      break;
    case Step::Kind::kStore:
      store_output(s.index);
      break;
  }
  for (const int r : temps_) regs_->free(r);
  temps_.clear();
  for (const int i : read_by(s)) {
    const int r = regs_->where(i);
    if (r >= 0 && regs_->next_read(i, place + 1) == INT_MAX) regs_->free(r);
  }
  regs_->unlock_all();
  named_.clear();
  homes_.clear();
}

int TileGenerator::take() {
  return regs_->take(place_, [&](int r, int i) {
    if (has_home(i)) return;
    // An operand can be reloaded, unless a result has overwritten it by then.
    const bool again_late =
        !block_->reads[i].empty() && block_->reads[i].back() >= block_->first_late;
    if (!block_->made[i] && !again_late) return;
    vmovups(home(i), vec(r));
    regs_->at_home[i] = true;
  });
}

int TileGenerator::temp() {
  const int r = take();
  regs_->lock(r);
  temps_.push_back(r);
  return r;
}

int TileGenerator::reg(int i) {
  if (plan_.maker[i] == Maker::kConstant) {
    const auto& pinned = bits(bits_of(node(i)));
    if (!pinned.isMEM()) return pinned.getIdx();
  } else if (!layout_.varies[i] && !block_->made[i]) {
    ++scalar_uses_[i];
    if (const auto p = scalar_pins_.find(i); p != scalar_pins_.end()) return p->second.getIdx();
  }
  if (const int r = regs_->where(i); r >= 0) {
    regs_->lock(r);
    return r;
  }
  const int r = take();
  if (plan_.maker[i] == Maker::kConstant) {
    load(vec(r), bits(bits_of(node(i))));
  } else if (has_home(i)) {
    load(vec(r), home(i));
  } else if (plan_.maker[i] == Maker::kLoaded) {
    load_row(r, node(i).index, in_types_[node(i).index].dtype);
  } else if (plan_.maker[i] == Maker::kTurned) {
    load_turned(r, node(i).args[0]);
  } else if (plan_.kept_in[i] >= 0) {
    load_row(r, args_.output(plan_.kept_in[i]), Dtype::kF32);
  } else {
    load_row(r, args_.slot(plan_.slot[i]), Dtype::kF32);
  }
  regs_->hold(r, i);
  regs_->lock(r);
  return r;
}

const Xbyak::Operand& TileGenerator::operand(int i) {
  if (regs_->where(i) < 0) {
    if (plan_.maker[i] == Maker::kConstant) return bits(bits_of(node(i)));
    const bool pinned = scalar_pins_.count(i) > 0;
    if (!pinned && has_home(i)) {
      if (!layout_.varies[i] && !block_->made[i]) ++scalar_uses_[i];
      homes_.push_back(home(i));
      return homes_.back();
    }
  }
  named_.push_back(vec(reg(i)));
  return named_.back();
}

int TileGenerator::result(int i) {
  for (const int arg : operands(i)) {
    const int r = regs_->where(arg);
    if (r < 0 || regs_->next_read(arg, place_ + 1) != INT_MAX) continue;
    regs_->free(r);
    regs_->hold(r, i);
    regs_->lock(r);
    return r;
  }
  const int r = take();
  regs_->hold(r, i);
  regs_->lock(r);
  return r;
}

}  // namespace adjoint
#endif
