// The laws that give functors their name, for those that work op by op: identity to identity, and
// F(g after f) = F(g) after F(f), on pieces of real models that keep roles, sources and positions.
// A further functor is one line of kOpWise. Reverse mode turns composition around: the adjoint of g
// after f is f's adjoint after g's, held numerically.
#include <gtest/gtest.h>

#include <set>

#include "analysis/roles.h"
#include "functors/evaluation.h"
#include "functors/phases.h"
#include "functors/reference.h"
#include "kernels/harness.h"
#include "models/test_models.h"
#include "scheme/canonical.h"

namespace adjoint {
namespace {

struct OpWise {
  const char* name;
  Scheme (*apply)(const Scheme&);
  const char* precision = nullptr;  // said of the model
};

// Says a precision of every floating object that is computed, as object rules do: what an op fixes
// is left alone.
Scheme marked(Scheme scheme, const char* precision) {
  const std::vector<bool> fixed = fixed_dtypes(scheme);
  for (size_t v = 0; v < scheme.objects.size(); ++v) {
    Object& object = scheme.objects[v];
    const bool computed = object.role == Role::kActivation || object.role == Role::kGradient;
    if (computed && !fixed[v] && is_float(object.type.dtype)) {
      object.attributes.precision = precision;
    }
  }
  return scheme;
}

const OpWise kOpWise[] = {
    {"without_randomness", without_randomness},
    {"to_reference", to_reference},
    {"realize_precision_of_nothing", [](const Scheme& s) { return realize_precision(s); }},
    {"realize_precision_bf16", [](const Scheme& s) { return realize_precision(s); }, "bf16"},
    {"reference_of_bf16", [](const Scheme& s) { return to_reference(realize_precision(s)); },
     "bf16"},
    {"reference_of_evaluation",
     [](const Scheme& s) { return to_reference(without_randomness(s)); }},
};

// A scheme cut before morphism `at`: what crosses the cut is what the first piece gives and the
// second takes. An object of the batch that both read crosses too.
struct Cut {
  Scheme first, second;
};

Scheme piece(const Scheme& whole, size_t from, size_t to, const std::vector<Value>& takes,
             const std::vector<Value>& gives) {
  Scheme result = whole;
  result.name = "piece";
  result.morphisms.assign(whole.morphisms.begin() + from, whole.morphisms.begin() + to);
  result.inputs = takes;
  std::set<Value> read(gives.begin(), gives.end());
  for (const Morphism& m : result.morphisms) read.insert(m.inputs.begin(), m.inputs.end());
  for (const Value in : whole.inputs) {
    if (read.count(in) && !std::count(takes.begin(), takes.end(), in)) result.inputs.push_back(in);
  }
  result.outputs = gives;
  return compact(result);
}

Cut cut(const Scheme& whole, size_t at) {
  std::set<Value> made, batch;
  for (size_t i = 0; i < at; ++i) {
    const Morphism& m = whole.morphisms[i];
    made.insert(m.outputs.begin(), m.outputs.end());
    for (const Value in : m.inputs) {
      if (whole[in].role == Role::kInput) batch.insert(in);
    }
  }
  std::set<Value> crossing;
  const auto read = [&](Value v) {
    if (made.count(v) || batch.count(v)) crossing.insert(v);
  };
  for (size_t i = at; i < whole.morphisms.size(); ++i) {
    for (const Value in : whole.morphisms[i].inputs) read(in);
  }
  for (const Value out : whole.outputs) read(out);
  const std::vector<Value> across(crossing.begin(), crossing.end());
  return {piece(whole, 0, at, {}, across),
          piece(whole, at, whole.morphisms.size(), across, whole.outputs)};
}

// Every fifth place: inside blocks, between them, before and after all.
std::vector<size_t> cuts_of(const Scheme& scheme) {
  std::vector<size_t> places;
  for (size_t at = 0; at <= scheme.morphisms.size(); at += 5) places.push_back(at);
  places.push_back(scheme.morphisms.size());
  return places;
}

// x -> x, of every object that a model has.
Scheme identity_of(const Scheme& model) {
  Scheme s;
  s.name = "identity";
  for (const Object& object : model.objects) s.outputs.push_back(s.add_input(object));
  return s;
}

void expect_same(const Scheme& a, const Scheme& b, const std::string& what) {
  const Scheme x = canonical(a), y = canonical(b);
  EXPECT_EQ(print(x), print(y)) << what;
  EXPECT_TRUE(x == y) << what << ": they differ in what is not printed";
}

using Case = std::tuple<const OpWise*, const char*>;
class FunctorLaws : public testing::TestWithParam<Case> {
 protected:
  // Rules speak of the whole, so that its pieces agree on what crosses a cut.
  Scheme model() const {
    const Scheme plain = test_model(std::get<1>(GetParam()), {{"seq", 8}});
    const char* precision = std::get<0>(GetParam())->precision;
    return precision ? marked(plain, precision) : plain;
  }
  Scheme f(const Scheme& s) const { return std::get<0>(GetParam())->apply(s); }
};

TEST_P(FunctorLaws, CuttingAndComposingIsNothing) {
  const Scheme whole = model();
  for (const size_t at : cuts_of(whole)) {
    const Cut pieces = cut(whole, at);
    const Scheme again = compose(pieces.first, pieces.second);
    verify(again);
    EXPECT_EQ(again.morphisms.size(), whole.morphisms.size());
    EXPECT_EQ(again.inputs.size(), whole.inputs.size());
  }
}

TEST_P(FunctorLaws, IdentityGoesToIdentity) {
  const Scheme image = f(identity_of(model()));
  EXPECT_TRUE(image.morphisms.empty()) << print(image);
  EXPECT_EQ(image.inputs, image.outputs) << print(image);
}

TEST_P(FunctorLaws, CompositionGoesToComposition) {
  const Scheme whole = model();
  for (const size_t at : cuts_of(whole)) {
    const Cut pieces = cut(whole, at);
    expect_same(f(compose(pieces.first, pieces.second)), compose(f(pieces.first), f(pieces.second)),
                "cut at " + std::to_string(at));
  }
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const OpWise& functor : kOpWise) {
    for (const char* model : kTestModels) cases.emplace_back(&functor, model);
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(All, FunctorLaws, testing::ValuesIn(all_cases()), [](const auto& info) {
  return std::string(std::get<0>(info.param)->name) + "_" + std::get<1>(info.param);
});

// The adjoint of a piece: from gradients of its results to gradients of its operands, with the
// forward pass that they need.
struct AdjointPiece {
  Scheme scheme;               // inputs: the piece's, then one gradient per floating output
  std::vector<Value> of;       // inputs of the piece that have a gradient, in order
  std::vector<size_t> seeded;  // outputs of the piece that bring one
  size_t num_outputs = 0;      // of the piece; the gradients come after them
};

AdjointPiece adjoint_of(const Scheme& forward) {
  AdjointPiece result{.scheme = forward, .of = {}, .seeded = {}};
  result.num_outputs = forward.outputs.size();
  Scheme& s = result.scheme;
  std::vector<std::pair<Value, Value>> seeds;
  for (size_t k = 0; k < forward.outputs.size(); ++k) {
    const Object& out = forward[forward.outputs[k]];
    if (!is_float(out.type.dtype)) continue;
    result.seeded.push_back(k);
    seeds.emplace_back(forward.outputs[k], s.add_input({.type = out.type,
                                                        .source = {out.source.path, "grad"},
                                                        .role = Role::kGradient}));
  }
  for (const Value in : forward.inputs) {
    if (is_float(forward[in].type.dtype) && forward[in].role != Role::kControl) {
      result.of.push_back(in);
    }
  }
  Builder builder(s);
  const auto gradients =
      backpropagate(builder, 0, static_cast<int>(forward.morphisms.size()), seeds, result.of);
  std::vector<Value> reached;
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i]) continue;
    reached.push_back(result.of[i]);
    s.outputs.push_back(*gradients[i]);
  }
  result.of = reached;
  return result;
}

// Values of objects by source.
using Values = std::map<std::string, Numbers>;

Values start_values(const Scheme& s) {
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  Values values;
  for (const Value in : s.inputs) {
    const Object& object = s[in];
    Numbers x(object.type.num_elements());
    for (double& number : x) {
      number = is_float(object.type.dtype) ? 0.3 * normal(random)
                                           : static_cast<double>(random() % kTestVocab);
    }
    if (object.role == Role::kControl) x = {7, 1, 0};
    values[to_string(object.source)] = x;
  }
  return values;
}

// Runs the adjoint of a piece on `values` (what it takes) and `gradients` (of what it gives), adds
// what it gives to the one and its gradients to the other.
void run_adjoint(const Scheme& forward, Values& values, Values& gradients) {
  const AdjointPiece adjoint = adjoint_of(forward);
  std::vector<Numbers> inputs;
  for (const Value in : forward.inputs) inputs.push_back(values.at(to_string(forward[in].source)));
  for (const size_t k : adjoint.seeded) {
    const Object& out = forward[forward.outputs[k]];
    const auto found = gradients.find(to_string(out.source));
    inputs.push_back(found != gradients.end() ? found->second
                                              : Numbers(out.type.num_elements(), 0.0));
  }
  const std::vector<Numbers> outputs = run_scheme(adjoint.scheme, inputs, true);
  for (size_t k = 0; k < adjoint.num_outputs; ++k) {
    values[to_string(forward[forward.outputs[k]].source)] = outputs[k];
  }
  for (size_t i = 0; i < adjoint.of.size(); ++i) {
    Numbers& sum = gradients[to_string(forward[adjoint.of[i]].source)];
    const Numbers& part = outputs[adjoint.num_outputs + i];
    if (sum.empty()) sum.assign(part.size(), 0.0);
    for (size_t e = 0; e < part.size(); ++e) sum[e] += part[e];  // a tied weight is in both pieces
  }
}

class AdjointLaw : public testing::TestWithParam<const char*> {};

TEST_P(AdjointLaw, TheAdjointOfACompositionIsTheCompositionOfAdjoints) {
  const Scheme forward = test_model(GetParam(), {{"seq", 8}});
  const Values start = start_values(forward);
  // The whole: what a training step differentiates.
  const Scheme with_gradients = apply_adjoint(forward);
  std::vector<Numbers> inputs;
  for (const Value in : with_gradients.inputs) {
    const auto found = start.find(to_string(with_gradients[in].source));
    inputs.push_back(found != start.end() ? found->second : Numbers{1.0});  // the scale
  }
  const std::vector<Numbers> whole = run_scheme(with_gradients, inputs, true);

  for (size_t at = 3; at < forward.morphisms.size(); at += 7) {
    const Cut pieces = cut(forward, at);
    Values values = start, gradients;
    // Forward through the first piece, so that the second has what it takes.
    Values ignored;
    run_adjoint(pieces.first, values, ignored);
    gradients[to_string(forward[forward.outputs[0]].source)] = {1.0};
    run_adjoint(pieces.second, values, gradients);
    run_adjoint(pieces.first, values, gradients);
    size_t k = forward.outputs.size();
    for (const Value in : forward.inputs) {
      if (forward[in].role != Role::kParameter) continue;
      const std::string path = to_string(forward[in].source);
      EXPECT_LT(relative_error(gradients[path], whole[k++]), 1e-12) << path << ", cut at " << at;
    }
  }
}

TEST_P(AdjointLaw, TheAdjointOfAnIdentityIsAnIdentity) {
  Scheme identity;
  for (const Object& object : test_model(GetParam()).objects) {
    if (is_float(object.type.dtype)) identity.outputs.push_back(identity.add_input(object));
  }
  const AdjointPiece adjoint = adjoint_of(identity);
  EXPECT_TRUE(adjoint.scheme.morphisms.empty());
  const size_t n = identity.inputs.size();
  ASSERT_EQ(adjoint.of.size(), n);
  for (size_t i = 0; i < n; ++i) {
    EXPECT_EQ(adjoint.scheme.outputs[n + i], adjoint.scheme.inputs[n + i]);
  }
}

INSTANTIATE_TEST_SUITE_P(All, AdjointLaw, testing::ValuesIn(kTestModels),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace adjoint
