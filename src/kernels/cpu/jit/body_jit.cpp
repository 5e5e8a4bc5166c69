#include "kernels/cpu/jit/body_jit.h"

#include <map>
#include <mutex>
#include <string>

#if ADJOINT_XBYAK
#include "kernels/cpu/jit/tile_generator.h"
#endif

namespace adjoint {

namespace {

// All that generated code depends on.
std::string key_of(const Layout& layout, const std::vector<Type>& in_types,
                   const std::vector<Type>& out_types, TileIsa isa) {
  std::string key;
  const auto add = [&](auto value) {
    key.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  const auto add_all = [&](const auto& values) {
    add(values.size());
    for (const auto value : values) add(value);
  };
  add(isa);
  for (const ExprNode& n : layout.body.nodes) {
    add(n.kind), add(n.args), add(n.value), add(n.index);
  }
  for (const BodyOutput& out : layout.body.outputs) {
    add(out.node), add(out.summed_axes), add(out.row);
  }
  for (size_t i = 0; i < in_types.size(); ++i) {
    add(in_types[i].dtype);
    for (size_t k = 0; k < out_types.size(); ++k) add(layout.in[i] == layout.out[k]);
  }
  for (const Type& t : out_types) add(t.dtype);
  const TilePlan& plan = layout.tile;
  for (const Segment& s : plan.segments) {
    for (const auto* list : {&s.calls, &s.scalars, &s.nodes, &s.reductions, &s.outputs, &s.kept}) {
      add_all(*list);
    }
  }
  for (const Maker m : plan.maker) {
    if (m == Maker::kTurned) add(layout.row());
  }
  add_all(layout.varies);
  add_all(plan.maker), add_all(plan.slot), add_all(plan.kept_in), add_all(plan.home);
  add_all(plan.exported), add_all(plan.folded), add_all(plan.stored);
  return key;
}

// Sanitizers do not see into generated code, so they get the interpreter.
TileIsa& chosen_isa() {
#if ADJOINT_NO_CLONES
  static TileIsa isa = TileIsa::kNone;
#else
  static TileIsa isa = best_tile_isa();
#endif
  return isa;
}

}  // namespace

TileArgs tile_args(const Layout& layout) {
  return {.inputs = static_cast<int64_t>(layout.in.size()),
          .outputs = static_cast<int64_t>(layout.out.size()),
          .slots = layout.tile.num_slots,
          .nodes = static_cast<int64_t>(layout.body.nodes.size()),
          .homes = layout.tile.num_homes};
}

void set_tile_isa(TileIsa isa) { chosen_isa() = std::min(isa, best_tile_isa()); }

#if ADJOINT_XBYAK

TileIsa best_tile_isa() {
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    return TileIsa::kAvx512;
  }
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return avx2 && __builtin_cpu_supports("bmi2") ? TileIsa::kAvx2 : TileIsa::kNone;
}

// Throws Xbyak::Error where the system gives no memory that can be executed.
std::shared_ptr<const TileCode> compile_tile(const Layout& layout,
                                             const std::vector<Type>& in_types,
                                             const std::vector<Type>& out_types, TileIsa isa) {
  struct Memory {
    TileGenerator generator;
    std::vector<VectorCode::Line> constants;
    Memory(const Layout& layout, const std::vector<Type>& in, const std::vector<Type>& out,
           bool wide)
        : generator(layout, in, out, wide), constants(generator.pool()) {}
  };
  const auto memory =
      std::make_shared<Memory>(layout, in_types, out_types, isa == TileIsa::kAvx512);
  auto code = std::make_shared<TileCode>();
  for (const size_t start : memory->generator.starts) {
    code->functions.push_back(reinterpret_cast<TileCode::Function>(
        const_cast<uint8_t*>(memory->generator.getCode() + start)));
  }
  code->constants = memory->constants.data();
  code->memory = memory;
  return code;
}

std::shared_ptr<const TileCode> generate_tile(const Layout& layout,
                                              const std::vector<Type>& in_types,
                                              const std::vector<Type>& out_types) {
  const TileIsa isa = chosen_isa();
  if (isa == TileIsa::kNone) return nullptr;
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<const TileCode>> known;
  const std::string key = key_of(layout, in_types, out_types, isa);
  const std::lock_guard lock(mutex);
  if (auto code = known[key].lock()) return code;
  try {
    const auto code = compile_tile(layout, in_types, out_types, isa);
    known[key] = code;
    return code;
  } catch (const Xbyak::Error& error) {
    const int what = error;
    if (what == Xbyak::ERR_CANT_ALLOC || what == Xbyak::ERR_CANT_PROTECT) return nullptr;
    throw;
  }
}

#else

TileIsa best_tile_isa() { return TileIsa::kNone; }

std::shared_ptr<const TileCode> compile_tile(const Layout&, const std::vector<Type>&,
                                             const std::vector<Type>&, TileIsa) {
  return nullptr;
}

std::shared_ptr<const TileCode> generate_tile(const Layout&, const std::vector<Type>&,
                                              const std::vector<Type>&) {
  return nullptr;
}

#endif

}  // namespace adjoint
