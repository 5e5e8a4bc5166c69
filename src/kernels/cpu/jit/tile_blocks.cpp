// What a block of generated code does, step by step, and where it reads each value.
#if ADJOINT_XBYAK
#include "body/facts.h"
#include "kernels/cpu/jit/tile_generator.h"

namespace adjoint {

// A comparison that is folded into a select stands there by its own operands.
std::vector<int> TileGenerator::operands(int i) const {
  std::vector<int> all;
  for (int a = 0; a < facts(node(i).kind).arity; ++a) {
    const int arg = node(i).args[a];
    if (plan_.folded[arg]) {
      all.insert(all.end(), {node(arg).args[0], node(arg).args[1]});
    } else {
      all.push_back(arg);
    }
  }
  return all;
}

std::vector<int> TileGenerator::read_by(const Step& step) const {
  switch (step.kind) {
    case Step::Kind::kNode:
      return operands(step.index);
    case Step::Kind::kReduce:
      return {node(step.index).args[0]};
    case Step::Kind::kKeep:
      return {step.index};
    case Step::Kind::kStore:
      return {layout_.body.outputs[step.index].node};
  }
  return {};
}

void TileGenerator::find_reads(Block& block) const {
  block.reads.assign(num_nodes(), {});
  block.made.assign(num_nodes(), false);
  for (size_t place = 0; place < block.steps.size(); ++place) {
    const Step& step = block.steps[place];
    if (step.kind == Step::Kind::kNode) block.made[step.index] = true;
    for (const int i : read_by(step)) block.reads[i].push_back(static_cast<int>(place));
  }
}

TileGenerator::Block TileGenerator::block_of(const Segment& s) const {
  Block block;
  std::vector<Step> late;
  const auto may_lie_over = [&](int k) {
    for (size_t i = 0; i < in_types_.size(); ++i) {
      if (!is_sum(layout_.body.outputs[k]) && layout_.in[i] == layout_.out[k]) return true;
    }
    return false;
  };
  // What is done with a value is done as soon as it is there.
  const auto after = [&](int i) {
    for (const int r : s.reductions) {
      if (node(r).args[0] == i) block.steps.push_back({Step::Kind::kReduce, r});
    }
    for (const int kept : s.kept) {
      if (kept == i) block.steps.push_back({Step::Kind::kKeep, i});
    }
    for (const int k : s.outputs) {
      if (layout_.body.outputs[k].node != i) continue;
      (may_lie_over(k) ? late : block.steps).push_back({Step::Kind::kStore, k});
    }
  };
  std::vector<bool> made(num_nodes(), false);
  for (const int i : s.nodes) made[i] = true;
  for (int i = 0; i < num_nodes(); ++i) {
    if (!made[i]) after(i);
  }
  for (const int i : s.nodes) {
    block.steps.push_back({Step::Kind::kNode, i});
    after(i);
  }
  block.first_late = static_cast<int>(block.steps.size());
  block.steps.insert(block.steps.end(), late.begin(), late.end());
  find_reads(block);
  return block;
}

TileGenerator::Block TileGenerator::block_of_scalars(const Segment& s) const {
  Block block;
  for (const int i : s.scalars) block.steps.push_back({Step::Kind::kNode, i});
  block.first_late = static_cast<int>(block.steps.size());
  find_reads(block);
  return block;
}

}  // namespace adjoint
#endif
