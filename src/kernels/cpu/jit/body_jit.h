// Generated code for bodies: a plan of segments (body_segments.h) becomes machine code, AVX-512 or
// AVX2, in which values stay in vector registers from operand to result. Every instruction rounds
// as the interpreter's loop does, so both give the same bits; 16 lanes carry a row's sum either
// way. Where there is no Xbyak, or another processor, the interpreter does all of it. Xbyak and not
// LLVM: no optimizer may contract or reorder what is emitted.
#pragma once
#include <memory>
#include <vector>

#include "kernels/body_layout.h"

namespace adjoint {

// What generated code is given: one block of memory a thread, at these offsets. A stream is an
// operand, then an output, then a slot: a pointer to its first element, and its step to the next
// row in bytes. A home is where a node's one number of the row lies as a vector.
struct TileArgs {
  int64_t inputs, outputs, slots, nodes, homes;

  static constexpr int64_t kElements = 0, kRows = 8, kConstants = 16, kStreams = 24;
  int64_t num_streams() const { return inputs + outputs + slots; }
  int64_t output(int64_t k) const { return inputs + k; }
  int64_t slot(int64_t i) const { return inputs + outputs + i; }
  int64_t stream(int64_t s) const { return kStreams + 8 * s; }
  int64_t step(int64_t s) const { return stream(num_streams() + s); }
  int64_t scalar(int64_t node) const { return step(num_streams()) + 4 * node; }
  int64_t home(int64_t i) const { return (scalar(nodes) + 63) / 64 * 64 + 64 * i; }
  int64_t bytes() const { return home(homes); }
};
TileArgs tile_args(const Layout& layout);

enum class TileIsa : uint8_t { kNone, kAvx2, kAvx512 };

struct TileCode {
  using Function = void (*)(void* args);
  // One per group of segments: a group begins where the interpreter has something to make.
  std::vector<Function> functions;
  const void* constants = nullptr;
  std::shared_ptr<const void> memory;
};

// nullptr: this machine cannot, or generated code is switched off. The same code is given to all
// calls that differ in nothing but sizes and places.
std::shared_ptr<const TileCode> generate_tile(const Layout& layout,
                                              const std::vector<Type>& in_types,
                                              const std::vector<Type>& out_types);

// The code for any processor, to be run on this one or not.
std::shared_ptr<const TileCode> compile_tile(const Layout& layout,
                                             const std::vector<Type>& in_types,
                                             const std::vector<Type>& out_types, TileIsa isa);

// For tests: which way calls that are prepared from now on will run.
TileIsa best_tile_isa();
void set_tile_isa(TileIsa isa);  // at most the best

}  // namespace adjoint
