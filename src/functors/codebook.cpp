// matrix W of a linear map of the chain  ->  W = gather(centres, indices): every row, or group of a
// row, as indices of a byte into k numbers of its own (Han et al., "Deep compression", 2016).
// Indices are frozen, and found by k-means of what W would have begun as, or had been trained to.
// Centres are trained in W's place: the gradient of one is the sum of its elements' gradients.
#include <algorithm>
#include <map>
#include <set>

#include "analysis/roles.h"
#include "analysis/structure.h"
#include "functors/functor.h"
#include "ops/builder.h"

namespace adjoint {

namespace {

constexpr int64_t kMostCentres = 256;  // that a byte tells apart

// Weights of linear maps that the model has, not of those that another functor added.
std::vector<Value> matrices_of_chain(const Scheme& scheme, const Roles& roles,
                                     std::map<std::string, int64_t>& counts) {
  const std::vector<bool> is_addition = find_additions(scheme).is_addition;
  std::vector<Value> matrices;
  std::set<Value> seen;
  for (size_t i = 0; i < scheme.morphisms.size(); ++i) {
    const Morphism& m = scheme.morphisms[i];
    const int weight = op_named(m.op).weight;
    if (weight < 0 || is_addition[i] || roles.chain().block_of_morphism[i] < 0) continue;
    const Object& w = scheme[m.inputs[weight]];
    if (w.role != Role::kParameter || w.type.rank() != 2) continue;
    if (!seen.insert(m.inputs[weight]).second) continue;
    matrices.push_back(m.inputs[weight]);
    ++counts[std::string(name(roles.use_of(static_cast<int>(i))))];
  }
  return matrices;
}

// Emits what makes w, which is no longer an input; returns its centres.
Value emit_matrix(Scheme& scheme, Value w, int64_t k, int64_t group) {
  const Object matrix = scheme[w];
  const bool grouped = group < matrix.type.dim(-1);
  const auto part = [&](std::string_view facet, Dtype dtype, Axis last) {
    Object made = matrix;
    made.type = {dtype, {matrix.type.axes[0]}};
    if (grouped) made.type.axes.push_back({"groups", matrix.type.dim(-1) / group});
    made.type.axes.push_back(std::move(last));
    made.source = with_facet(matrix.source, facet);
    return scheme.add_input(std::move(made));
  };
  const Value indices = part("indices", Dtype::kU8, {matrix.type.axes[1].name, group});
  const Value centres = part("centres", Dtype::kF32, {"centres", k});
  scheme[indices].frozen = true;
  Builder builder(scheme);
  builder.at(with_facet(matrix.source, "ids"), Phase::kForward, Role::kActivation);
  const Value ids = builder.emit("cast", {indices}, {{"dtype", std::string("i32")}});
  builder.at(with_facet(matrix.source, "chosen"), Phase::kForward, Role::kActivation);
  Value made = builder.emit("gather", {centres, ids});
  if (grouped) {
    builder.at(matrix.source, Phase::kForward, Role::kActivation);
    made = builder.emit("merge", {made});
  }
  // The last morphism makes the object that W's readers read.
  Morphism& last = scheme.morphisms.back();
  last.outputs = {w};
  last.source = matrix.source;
  scheme[w].role = Role::kActivation;
  scheme[w].frozen = false;
  scheme[w].init.reset();
  return centres;
}

Scheme replace_matrices(const Scheme& before, Application& application) {
  const int64_t k = application.args.whole("k");
  if (k < 2 || k > kMostCentres) {
    application.refuse("k must be 2 to ", kMostCentres, ", found ", k);
  }
  const Roles roles(before);
  const std::vector<Value> matrices = matrices_of_chain(before, roles, application.counts);
  if (matrices.empty()) {
    application.refuse("no linear map of a chain has a matrix of its own; this scheme has ",
                       roles.describe());
  }
  const bool by_row = application.args.word("group") == "channel";
  std::vector<int64_t> groups;
  for (const Value w : matrices) {
    const int64_t row = before[w].type.dim(-1);
    const int64_t group = by_row ? row : application.args.whole("group");
    if (row % group) {
      application.refuse("groups of ", group, " do not divide the rows of '",
                         to_string(before[w].source), "', which are ", row, " long");
    }
    if (group < k) {
      application.refuse("'", to_string(before[w].source), "' has only ", group,
                         " numbers for k=", k, " centres");
    }
    groups.push_back(group);
  }
  Scheme after = before;
  after.morphisms.clear();
  std::erase_if(after.inputs, [&](Value in) {
    return std::find(matrices.begin(), matrices.end(), in) != matrices.end();
  });
  std::set<Value> made;
  for (const Morphism& m : before.morphisms) {
    for (const Value in : m.inputs) {
      const auto found = std::find(matrices.begin(), matrices.end(), in);
      if (found == matrices.end() || !made.insert(in).second) continue;
      const Value centres = emit_matrix(after, in, k, groups[found - matrices.begin()]);
      if (!after[centres].frozen) continue;
      // Frozen numbers may be held otherwise, but these few are what the bytes stand for.
      application.say(after, centres, "precision", "f32");
      after[centres].attributes.precision = "f32";
    }
    after.morphisms.push_back(m);
  }
  application.matches = static_cast<int64_t>(matrices.size());
  return compact(std::move(after));
}

}  // namespace

extern const Functor functor_codebook = {
    .name = "codebook",
    .summary = "matrices of the chain as indices into k numbers of each row, which are trained",
    .law = Law::kApproximating,
    .params = {{.name = "k", .otherwise = "16", .summary = "different numbers, at most 256"},
               {.name = "group",
                .otherwise = "channel",
                .summary = "neighbours of a row that share them",
                .words = {"channel"}}},
    .rules = {{FunctorPhase::kMorphisms, replace_matrices}},
};

}  // namespace adjoint
