// From a plan of segments to machine code: TileGenerator emits one function per group of segments.
#pragma once
#include <deque>

#include "kernels/cpu/jit/body_jit.h"
#include "kernels/cpu/jit/tile_registers.h"
#include "kernels/cpu/jit/vector_code.h"

namespace adjoint {

class TileGenerator : public VectorCode {
 public:
  TileGenerator(const Layout& layout, const std::vector<adjoint::Type>& in_types,
                const std::vector<adjoint::Type>& out_types, bool wide);
  std::vector<size_t> starts;  // of the functions, in the code

 private:
  // One step of a block: a node, or what is done with one.
  struct Step {
    enum class Kind : uint8_t { kNode, kReduce, kKeep, kStore } kind;
    int index;  // node; for kStore the output
  };
  struct Block {
    std::vector<Step> steps;
    std::vector<std::vector<int>> reads;  // per node
    std::vector<bool> made;               // per node: by a step of this block
    int first_late = 0;                   // from this step on, stores that may lie over an operand
  };

  const ExprNode& node(int i) const { return layout_.body.nodes[i]; }
  int num_nodes() const { return static_cast<int>(layout_.body.nodes.size()); }
  std::vector<int> operands(int i) const;
  std::vector<int> read_by(const Step& step) const;
  Block block_of(const Segment& segment) const;
  Block block_of_scalars(const Segment& segment) const;
  void find_reads(Block& block) const;

  void function(size_t from, size_t to);
  void segment(const Segment& s);
  void scalars(const Segment& s);
  void loop(const Segment& s);
  void pin(const Block& block, int limit);
  void iteration(const Block& block, int half, bool masked);
  void step(const Block& block, int place);
  void finish_reduction(int i);

  void emit(int i);
  void emit_binary(int i);
  void emit_select(int i);
  void emit_input_scalar(int i, int to);
  void reduce(int i);
  void store_output(int k);

  void load_row(int r, int64_t stream, Dtype dtype);
  void load_turned(int r, int arg);
  void store_row(int r, int64_t stream, Dtype dtype);
  void copy_last_words(const Xbyak::Address& row, bool to_row);
  Xbyak::Reg64 base(int64_t stream);
  Xbyak::Address at(int64_t stream, Dtype dtype);
  // Where a node's value is when it is in no register: vectors that must make room, and the last
  // elements of a row, lie on the stack.
  Xbyak::Address home(int i, int bytes = 0) {
    if (i < num_nodes() && plan_.home[i] >= 0) return ptr[rdi + args_.home(plan_.home[i]) + bytes];
    return ptr[rsp + 64 * i + bytes];
  }

  int reg(int i);                        // of a node's value, brought there if need be
  const Xbyak::Operand& operand(int i);  // a register, or memory where that will do
  int temp();                            // until the end of the step
  int result(int i);                     // a register for the node's value
  int take();
  bool has_home(int i) const { return !layout_.varies[i] || regs_->at_home[i]; }
  int accumulator(int reduction, int half) const { return accumulators_.at(reduction)[half]; }

  const Layout& layout_;
  const TilePlan& plan_;
  const std::vector<adjoint::Type>&in_types_, &out_types_;
  TileArgs args_;
  std::map<int64_t, Xbyak::Reg64> pointers_;  // streams in general registers
  std::map<int, Vec> scalar_pins_;            // nodes of one number a row, in registers
  std::map<int, int> scalar_uses_;
  std::map<int, std::vector<int>> accumulators_;  // per reduction; none: it lives at home
  TileRegisters* regs_ = nullptr;
  const Block* block_ = nullptr;
  int count_ = 0;  // registers that blocks may use
  int place_ = 0, half_ = 0, mask_ = -1;
  bool masked_ = false;
  std::vector<int> temps_;
  std::deque<Vec> named_;  // what operand() refers to
  std::deque<Xbyak::Address> homes_;
  int regs_most_ = 0;
};

}  // namespace adjoint
