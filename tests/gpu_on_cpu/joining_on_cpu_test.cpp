// Joining bodies changes no bits on a GPU: what a kernel gives does not depend on what else it
// computes.
#include "functors/functor_named.h"
#include "functors/random_chain.h"
#include "gpu_on_cpu/compiler.h"
#include "gpu_on_cpu/scheme_on_cpu.h"
#include "kernels/backend.h"

namespace adjoint {
namespace {

class JoiningOnCpu : public KernelsOnCpu {};

TEST_F(JoiningOnCpu, FusedChainsGiveTheSameBits) {
  struct Chain {
    std::vector<Numbers> inputs;
    SchemeOnCpu alone, joined;
    std::string what;
  };
  std::deque<Chain> chains;
  for (unsigned seed = 0; seed < 40; ++seed) {
    const RandomChain chain(seed, seed % 2 == 1);
    const Scheme fused = apply_functor("fuse", chain.scheme);
    if (chain.inputs[0].size() > 30000) continue;  // fibers take their time
    chains.push_back({chain.inputs, SchemeOnCpu(chain.scheme), SchemeOnCpu(fused),
                      "seed " + std::to_string(seed) + "\n" + print(chain.scheme) + print(fused)});
  }
  finish_kernels();
  for (Chain& chain : chains) {
    expect_same_bits(chain.joined.run(chain.inputs), chain.alone.run(chain.inputs), chain.what);
  }
}

// One result by itself and as the first of several, some of which want whole rows.
TEST_F(JoiningOnCpu, AResultIsTheSameBesideOthers) {
  const std::vector<std::vector<const char*>> bodies = {
      {"x0/1", "x0/1, exp(x0)", "x0/1, rowsum(x0)/one", "x0/1, x0/2",
       "x0/1, sub(x0, rowmax(x0)), mul(x0, rowsum(x0))/1"},
      {"rowsum(x0)/one", "rowsum(x0)/one, mul(x0, rowsum(x0))", "rowsum(x0)/one, x0/1",
       "rowsum(x0)/one, div(x0, rowsum(mul(x0, x0))), exp(x0)/2"},
      {"tanh(x0)", "tanh(x0), x0/1", "tanh(x0), rowsum(x0)/one, exp(sub(x0, rowmax(x0)))"}};
  struct Variant {
    Sample sample;
    SchemeOnCpu run;
    bool first;
  };
  std::deque<Variant> variants;
  for (const std::vector<int64_t>& sizes : std::vector<std::vector<int64_t>>{
           {37, 3, 24}, {64, 1, 40}, {5, 2, 264}, {40, 2, 768}, {9, 1, 2056}, {3, 2, 9000}}) {
    for (const std::vector<const char*>& alike : bodies) {
      for (const Dtype dtype : {Dtype::kF32, Dtype::kBF16}) {
        for (const char* body : alike) {
          const Sample sample{.inputs = {of(sizes, dtype)}, .attrs = {{"body", std::string(body)}}};
          variants.push_back(
              {sample, SchemeOnCpu(sample_scheme("map", sample, dtype)), body == alike.front()});
        }
      }
    }
  }
  finish_kernels();
  Numbers alone;
  for (Variant& variant : variants) {
    const Dtype dtype = variant.sample.inputs[0].dtype;
    const Numbers got = variant.run.run(sample_numbers(variant.sample, dtype, 5))[0];
    if (variant.first) alone = got;
    expect_same_bits({got}, {alone},
                     std::get<std::string>(variant.sample.attrs.at("body")) + " on " +
                         to_string(variant.sample.inputs[0]));
  }
}

}  // namespace
}  // namespace adjoint
