// What chunks of the readout are, and what is left alone, as text. The law is held on real models
// in tests/train/rewrite_law_test.cpp.
#include <gtest/gtest.h>

#include "functors/becomes.h"
#include "functors/functor_named.h"

namespace adjoint {
namespace {

std::string loss_and_gradients(const std::string& weight_map = "abo,abi->oi",
                               const std::string& weight_type = "f32[v=5, i=3]",
                               const std::string& data = "", const std::string& returned = "") {
  return R"(scheme:
  input %0 h: f32[b=2, s=4, i=3])" +
         data + R"(
  input %1 t: i32[b=2, s=4])" +
         data + R"(
  parameter %2 w: f32[v=5, i=3]
  control %3 scale: f32[]
  %4 y: f32[b=2, s=4, v=5] precision="bf16" = linear(%0, %2) @y
  %5 loss: f32[] metric, %6 loss.count: f32[] metric, %7 loss.lse: f32[b=2, s=4] = cross_entropy(%4, %1) {ignore=-1} @loss
  %8 y:grad: f32[b=2, s=4, v=5] gradient = cross_entropy_grad(%4, %1, %7, %3) {ignore=-1} @loss:grad backward
  %9 w:grad: )" +
         weight_type + R"( gradient = contract(%8, %0) {map=")" + weight_map +
         R"("} @y:grad backward
  %10 h:grad: f32[b=2, s=4, i=3] gradient = contract(%8, %2) {map="abo,oi->abi"} @y:grad backward
  return %5, %6, %9, %10)" +
         returned + "\n";
}

TEST(ChunkReadout, EachChunkGoesAllTheWay) {
  expect_becomes(
      "chunk_readout(rows=4)", loss_and_gradients(),
      {"h.chunk0 = slice(h)", "y.chunk0 = linear(h.chunk0, w)", "t.chunk0 = slice(t)",
       "loss.chunk0, loss.count.chunk0, loss.lse.chunk0 = cross_entropy(y.chunk0, t.chunk0)",
       "y.chunk0:grad = cross_entropy_grad(y.chunk0, t.chunk0, loss.lse.chunk0, scale)",
       "w.chunk0:grad = contract(y.chunk0:grad, h.chunk0)",
       "h.chunk0:grad = contract(y.chunk0:grad, w)", "h.chunk1 = slice(h)",
       "y.chunk1 = linear(h.chunk1, w)", "t.chunk1 = slice(t)",
       "loss.chunk1, loss.count.chunk1, loss.lse.chunk1 = cross_entropy(y.chunk1, t.chunk1)",
       "y.chunk1:grad = cross_entropy_grad(y.chunk1, t.chunk1, loss.lse.chunk1, scale)",
       "w:grad = contract(y.chunk1:grad, h.chunk1, w.chunk0:grad)",
       "h.chunk1:grad = contract(y.chunk1:grad, w)", "loss = sum_all(loss.chunk0, loss.chunk1)",
       "loss.count = sum_all(loss.count.chunk0, loss.count.chunk1)",
       "h:grad = concat(h.chunk0:grad, h.chunk1:grad)"});
}

TEST(ChunkReadout, EveryChunkHasTheOptionsOfTheLoss) {
  const std::string options = "{cap=30, ignore=-1, smoothing=0.125, z=0.5}";
  std::string text = loss_and_gradients();
  for (int call = 0; call < 2; ++call) text = replaced(text, "{ignore=-1}", options);
  const std::string chunks = applied("chunk_readout(rows=4)", text);
  size_t found = 0;
  for (size_t at = chunks.find(options); at != std::string::npos; at = chunks.find(options, at + 1))
    ++found;
  EXPECT_EQ(found, 4u) << chunks;
  EXPECT_EQ(chunks.find("{ignore=-1}"), std::string::npos) << chunks;
  // The gradient of another loss is none of a chunk's business.
  const std::string other = replaced(loss_and_gradients(), "{ignore=-1}", options);
  EXPECT_EQ(applied("chunk_readout(rows=4)", other).find("chunk1"), std::string::npos);
}

// A loss that is only evaluated, of fewer rows than a sample has: 7 rows in chunks of at most 3 are
// 2, 2 and 3.
TEST(ChunkReadout, AnEvaluationHasNoGradients) {
  expect_becomes(
      "chunk_readout(rows=3)", R"(scheme:
  input %0 h: f32[b=1, s=7, i=3]
  input %1 t: i32[b=1, s=7]
  parameter %2 w: f32[v=5, i=3]
  %3 y: f32[b=1, s=7, v=5] = linear(%0, %2) @y
  %4 loss: f32[] metric, %5 loss.count: f32[] metric, %6 loss.lse: f32[b=1, s=7] = cross_entropy(%3, %1) {ignore=-1} @loss
  return %4, %5
)",
      {"h.chunk0 = slice(h)", "y.chunk0 = linear(h.chunk0, w)", "t.chunk0 = slice(t)",
       "loss.chunk0, loss.count.chunk0, loss.lse.chunk0 = cross_entropy(y.chunk0, t.chunk0)",
       "h.chunk1 = slice(h)", "y.chunk1 = linear(h.chunk1, w)", "t.chunk1 = slice(t)",
       "loss.chunk1, loss.count.chunk1, loss.lse.chunk1 = cross_entropy(y.chunk1, t.chunk1)",
       "h.chunk2 = slice(h)", "y.chunk2 = linear(h.chunk2, w)", "t.chunk2 = slice(t)",
       "loss.chunk2, loss.count.chunk2, loss.lse.chunk2 = cross_entropy(y.chunk2, t.chunk2)",
       "loss = sum_all(loss.chunk0, loss.chunk1, loss.chunk2)",
       "loss.count = sum_all(loss.count.chunk0, loss.count.chunk1, loss.count.chunk2)"});
}

// Fewer rows than a sample has, and two samples: samples one by one, and the gradient joined twice.
TEST(ChunkReadout, SamplesAreCutToo) {
  const Scheme cut = apply_functor("chunk_readout(rows=3)", parse_scheme(loss_and_gradients()));
  std::vector<std::string> concats;
  int losses = 0;
  for (const Morphism& m : cut.morphisms) {
    losses += m.op == "cross_entropy";
    if (m.op == "concat") concats.push_back(shape_string(cut[m.outputs[0]].type));
  }
  EXPECT_EQ(losses, 4);
  EXPECT_EQ(concats,
            (std::vector<std::string>{"[b=1, s=4, i=3]", "[b=1, s=4, i=3]", "[b=2, s=4, i=3]"}));
}

// In a step with several parts a chunk is cut from the part's own samples, so that its rows are
// contiguous, and the accumulator goes through the chunks: no second accumulator, no pass to add
// them.
TEST(ChunkReadout, APartIsCutAlongItsSamplesAndItsSumGoesThroughTheChunks) {
  const Scheme whole = parse_scheme(loss_and_gradients("abo,abi->oi", "f32[v=5, i=3]", " parts=1"));
  Scheme parts = whole;
  for (const Value in : parts.inputs) {
    if (parts[in].role == Role::kInput) parts[in].attributes.parts = 2;
  }
  parts.outputs.pop_back();  // the gradient of h has samples, and would leave the step
  for (Object& object : parts.objects) {
    if (!object.type.axes.empty() && object.type.axes[0].name == "b") object.type.axes[0].size = 4;
  }
  const Scheme timed = realize_time(parts, "accumulate");
  const Scheme cut = apply_functor("chunk_readout(rows=4)", timed);
  std::vector<std::string> addends;
  for (const Morphism& m : cut.morphisms) {
    if (m.op == "slice") {
      EXPECT_EQ(cut[m.outputs[0]].type.dim(0), 1) << to_string(m.source);
      EXPECT_EQ(cut[m.outputs[0]].type.dim(1), 4) << to_string(m.source);
    }
    if (m.op == "contract" && m.inputs.size() > 2) {
      addends.push_back(to_string(cut[m.inputs[2]].source) + " -> " +
                        to_string(cut[m.outputs[0]].source));
    }
  }
  EXPECT_EQ(addends,
            (std::vector<std::string>{"w:grad.begin -> w.chunk0:grad", "w.chunk0:grad -> w:grad"}));
}

// What precision puts between the readout and its loss is part of the chunk.
TEST(ChunkReadout, CastsBetweenReadoutAndLossAreCutToo) {
  const std::string text = applied("chunk_readout(rows=4)", R"(scheme:
  input %0 h: bf16[b=2, s=4, i=3]
  input %1 t: i32[b=2, s=4]
  parameter %2 w: bf16[v=5, i=3]
  control %3 scale: f32[]
  %4 y: bf16[b=2, s=4, v=5] = linear(%0, %2) @y
  %5 y:f32: f32[b=2, s=4, v=5] = cast(%4) {dtype="f32"} @y:f32
  %6 loss: f32[] metric, %7 loss.count: f32[] metric, %8 loss.lse: f32[b=2, s=4] = cross_entropy(%5, %1) {ignore=-1} @loss
  %9 y:grad: f32[b=2, s=4, v=5] gradient = cross_entropy_grad(%5, %1, %8, %3) {ignore=-1} @loss:grad backward
  %10 y:grad.bf16: bf16[b=2, s=4, v=5] gradient = cast(%9) {dtype="bf16"} @y:grad.bf16 backward
  %11 w:grad: f32[v=5, i=3] gradient = contract(%10, %0) {dtype="f32", map="abo,abi->oi"} @y:grad backward
  %12 h:grad: bf16[b=2, s=4, i=3] gradient = contract(%10, %2) {map="abo,oi->abi"} @y:grad backward
  return %6, %7, %11, %12
)");
  for (const char* whole : {"f32[b=2, s=4, v=5]", "bf16[b=2, s=4, v=5]"}) {
    EXPECT_EQ(text.find(whole), std::string::npos) << whole << "\n" << text;
  }
  EXPECT_NE(text.find("y.chunk1:grad.bf16: bf16[b=1, s=4, v=5]"), std::string::npos) << text;
}

// A function that must know a row's place among the others is no part of a chunk of rows.
TEST(ChunkReadout, WhatNeedsTheRowsTogetherIsLeftAlone) {
  const std::string text = R"(scheme:
  input %0 h: f32[b=2, s=4, i=3]
  input %1 t: i32[b=2, s=4]
  parameter %2 w: f32[v=4, i=3]
  %3 y: f32[b=2, s=4, v=4] = linear(%0, %2) @y
  %4 z: f32[b=2, s=4, v=4] = softmax(%3) {causal=1} @z
  %5 loss: f32[] metric, %6 loss.count: f32[] metric, %7 loss.lse: f32[b=2, s=4] = cross_entropy(%4, %1) {ignore=-1} @loss
  return %5, %6
)";
  EXPECT_EQ(applied("chunk_readout(rows=2)", text), text);
  const std::string plain = replaced(text, " {causal=1}", "");
  EXPECT_NE(applied("chunk_readout(rows=2)", plain), plain);
}

// The default chunk of a chunk is smaller than the chunk: it is left alone all the same.
TEST(ChunkReadout, ChunksAreNotCutAgain) {
  const std::string rows = "b=8, s=4096";
  std::string text = loss_and_gradients("abo,abi->oi", "f32[v=20000, i=4096]");
  for (const auto& [from, to] : {std::pair<std::string, std::string>{"b=2, s=4", rows},
                                 {"v=5", "v=20000"},
                                 {"i=3", "i=4096"}}) {
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
      text.replace(at, from.size(), to);
    }
  }
  const std::string once = applied("chunk_readout", text);
  EXPECT_NE(once.find(".chunk1"), std::string::npos);
  EXPECT_EQ(once.find(".chunk0.chunk0"), std::string::npos) << once;
}

TEST(ChunkReadout, LeavesAloneWhatItCannotCut) {
  for (const std::string& text : {
           loss_and_gradients("abo,abi->boi", "f32[s=4, v=5, i=3]"),  // rows stay in the result
           loss_and_gradients("abo,abi->oi", "f32[v=5, i=3]", "", ", %4"),  // logits are wanted
           loss_and_gradients("abo,abi->oi", "f32[v=5, i=3]", "", ", %8"),
           loss_and_gradients("abo,abi->oi", "f32[v=5, i=3]", "", ", %7"),
       }) {
    EXPECT_EQ(applied("chunk_readout(rows=4)", text), text);
  }
  EXPECT_EQ(applied("chunk_readout(rows=8)", loss_and_gradients()), loss_and_gradients())
      << "all rows at once";
  EXPECT_EQ(applied("chunk_readout", loss_and_gradients()), loss_and_gradients()) << "too small";
}

}  // namespace
}  // namespace adjoint
