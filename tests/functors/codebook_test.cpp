// codebook: matrices as indices into a few numbers, which are trained.
#include <gtest/gtest.h>

#include <set>

#include "base/error_text.h"
#include "functors/functor_named.h"
#include "functors/pipeline.h"
#include "kernels/harness.h"
#include "kernels/quantize.h"
#include "models/small_models.h"
#include "run/parameters.h"

namespace adjoint {
namespace {

Scheme llama() { return elaborate_preset("llama-tiny", {{"context", 5}, {"batch", 2}}); }

// One row by hand: two heaps and one number apart.
TEST(Codebook, CentresAreMeansOfWhatIsNearest) {
  const float row[] = {1.0f, -2.0f, 1.2f, 9.0f, -2.2f, 1.1f};
  uint8_t indices[6];
  float centres[3];
  find_centres(row, 6, 3, indices, centres);
  EXPECT_NEAR(centres[0], -2.1, 1e-6);
  EXPECT_NEAR(centres[1], 1.1, 1e-6);
  EXPECT_EQ(centres[2], 9.0f);
  EXPECT_EQ(std::vector<int>(indices, indices + 6), (std::vector<int>{1, 0, 1, 2, 0, 1}));
  // As many centres as numbers: nothing is lost, and equal numbers are no trouble.
  float all[6];
  find_centres(row, 6, 6, indices, all);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(all[indices[i]], row[i]);
  const float same[] = {0, 0, 0, 0, 0, 0};
  find_centres(same, 6, 3, indices, centres);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(centres[indices[i]], 0.0f);
}

TEST(Codebook, TrainsCentresInPlaceOfMatrices) {
  const Scheme before = llama();
  for (const std::string item : {"codebook(k=4)", "codebook(k=4, group=8)"}) {
    const BuiltStep built = build_step(before, parse_stack(item), {});
    EXPECT_EQ(built.applied[0].matches, 14) << item;
    std::set<std::string> trained;
    int indices = 0;
    for (const Value in : built.scheme.inputs) {
      const Object& o = built.scheme[in];
      if (o.role != Role::kParameter) continue;
      if (o.type.dtype == Dtype::kU8) {
        EXPECT_TRUE(o.frozen && o.source.facet == "indices") << to_string(o.source);
        ++indices;
      }
      if (!o.frozen) trained.insert(to_string(o.source));
    }
    EXPECT_EQ(indices, 14) << item;
    // A matrix's centres for the matrix, and the rest as it was.
    EXPECT_EQ(trained.size(), paths_of(before, Role::kParameter).size()) << item;
    const auto centres = [](const std::string& name) { return name.ends_with(":centres"); };
    EXPECT_EQ(std::count_if(trained.begin(), trained.end(), centres), 14) << item;
  }
}

// The gradient of a matrix and that of the centres which it is made of are two objects.
TEST(Codebook, GradientsHaveNamesOfTheirOwn) {
  for (const std::string item : {"codebook(k=4)", "codebook(k=4, group=8)"}) {
    const Scheme step = apply_functor("adjoint", apply_functor(item, llama()));
    std::set<std::string> seen;
    for (const Morphism& m : step.morphisms) {
      for (const Value out : m.outputs) {
        if (step[out].role != Role::kGradient) continue;
        if (!step[out].source.path.ends_with(".weight")) continue;
        EXPECT_TRUE(seen.insert(to_string(step[out].source)).second) << to_string(step[out].source);
      }
    }
    EXPECT_EQ(seen.count("block[0].q.weight:centres.grad"), 1) << item;
    EXPECT_EQ(seen.count("block[0].q.weight:grad"), 1) << item;
  }
}

// With one centre for each number of a row it is the plain model, and its gradients are the plain
// matrix's, in another order.
TEST(Codebook, AsManyCentresAsNumbersLoseNothing) {
  const Scheme forward = elaborate_text(R"(axes hidden=8 context=4 vocab=11
block x[batch, seq, hidden]:
  x = x + gelu(linear(rms_norm(x), hidden))
model tokens[batch, seq], targets[batch, seq]:
  loss = cross_entropy(linear(block^3(embed(tokens, vocab)), vocab), targets)
)");
  const auto run_of = [&](const Scheme& s) {
    auto run = std::make_unique<adjoint::Run>(s, make_plan(s, {.threads = num_threads()}));
    initialize(*run, 3);
    for (const Value in : s.inputs) {
      if (s[in].role != Role::kInput) continue;
      std::vector<double> ids(s[in].type.num_elements());
      for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<double>((i * 7 + 3) % 11);
      run->set_values(in, ids);
    }
    return run;
  };
  const Scheme plain = apply_functor("adjoint", forward);
  const Scheme books = apply_functor("adjoint", apply_functor("codebook(k=8)", forward));
  auto a = run_of(plain), b = run_of(books);
  for (const auto& run : {a.get(), b.get()}) {
    for (const Value in : run->scheme().inputs) {
      if (run->scheme()[in].role == Role::kControl) run->set_number(in, 1);
    }
    run->step();
  }
  EXPECT_EQ(a->values(plain.outputs[0]), b->values(books.outputs[0]));
  // Gradients are the last outputs, in the order of the parameters that are trained.
  const auto gradients = [](const adjoint::Run& run) {
    const Scheme& scheme = run.scheme();
    std::map<std::string, Numbers> all;
    auto out = scheme.outputs.rbegin();
    for (auto in = scheme.inputs.rbegin(); in != scheme.inputs.rend(); ++in) {
      if (scheme[*in].role != Role::kParameter || scheme[*in].frozen) continue;
      all[to_string(scheme[*in].source)] = run.values(*out++);
    }
    return all;
  };
  const std::map<std::string, Numbers> dense = gradients(*a), summed = gradients(*b);
  int compared = 0;
  for (const auto& [name, gradient] : dense) {
    const auto centres = summed.find(name + ":centres");
    if (centres == summed.end()) {
      EXPECT_LT(relative_error(summed.at(name), gradient), 1e-5) << name;
      continue;
    }
    const Source source = plain[*plain.find({name})].source;
    const Numbers indices = b->values(*books.find(with_facet(source, "indices")));
    Numbers sums(centres->second.size(), 0.0);
    for (size_t i = 0; i < gradient.size(); ++i) {
      sums[i / 8 * 8 + static_cast<size_t>(indices[i])] += gradient[i];
    }
    EXPECT_LT(relative_error(centres->second, sums), 1e-5) << name;
    ++compared;
  }
  EXPECT_EQ(compared, 3);
}

TEST(Codebook, RefusesInOneSentence) {
  const auto complaint = [](const std::string& item) {
    return error_text([&] { build_step(llama(), parse_stack(item), {}); });
  };
  EXPECT_EQ(complaint("codebook(k=257)"), "codebook: k must be 2 to 256, found 257");
  EXPECT_TRUE(has(complaint("codebook(k=4, group=7)"), "groups of 7 do not divide the rows of"));
  EXPECT_TRUE(has(complaint("codebook(k=16, group=8)"), "has only 8 numbers for k=16 centres"));
  EXPECT_TRUE(has(complaint("codebook(k=4) | quantize(int8)"), "nothing is frozen"));
  const std::string twice =
      complaint("codebook(k=4) | freeze(attention) | quantize(int8, group=4)");
  EXPECT_TRUE(has(twice, ":centres', and codebook says f32; leave one of them out")) << twice;
  const Scheme flat = elaborate_text(R"(axes hidden=8 context=4 vocab=11
model tokens[batch, seq], targets[batch, seq]:
  loss = cross_entropy(linear(embed(tokens, vocab), vocab), targets)
)");
  EXPECT_TRUE(has(error_text([&] { build_step(flat, parse_stack("codebook"), {}); }),
                  "no linear map of a chain"));
}

}  // namespace
}  // namespace adjoint
