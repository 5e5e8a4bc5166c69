// The matrix product of any two objects, by an index map in Einstein's manner: "bsi,oi->bso" sums
// over i. Its gradient is two more of itself, so one op serves linear maps, their gradients and the
// meaning of attention. A third operand of the result's type is added to the product, and may be
// overwritten by it: that is how a sum over parts grows in place.
#include <map>

#include "base/counts.h"
#include "base/error.h"
#include "ops/builder.h"
#include "ops/product_letters.h"
#include "ops/samples.h"

namespace adjoint {

namespace {

ProductLetters letters(const OpCall& call) {
  const auto found = product_letters(call.text("map"));
  if (!found) {
    fail("contract: wants an index map such as \"bsi,oi->bso\", found \"", call.text("map"), "\"");
  }
  return *found;
}

std::vector<Type> infer(const OpCall& call) {
  const ProductLetters l = letters(call);
  if (call.inputs.size() != 2 && call.inputs.size() != 3) {
    fail("contract: wants two operands and maybe an addend, found ", call.inputs.size());
  }
  std::map<char, Axis> axes;
  const auto bind = [&](const std::string& in, const Type& t, const char* which) {
    if (static_cast<int>(in.size()) != t.rank()) {
      fail("contract: ", which, " has ", t.rank(), " axes ", shape_string(t), ", the map \"",
           call.text("map"), "\" gives it ", in.size());
    }
    for (size_t i = 0; i < in.size(); ++i) {
      const auto [at, fresh] = axes.emplace(in[i], t.axes[i]);
      if (!fresh && at->second.size != t.axes[i].size) {
        fail("contract: axes do not fit: ", at->second.name, "=", at->second.size, " against ",
             t.axes[i].name, "=", t.axes[i].size, ", both '", in[i], "' of \"", call.text("map"),
             "\"");
      }
    }
  };
  bind(l.a, call.inputs[0], "the first operand");
  bind(l.b, call.inputs[1], "the second operand");
  if (call.inputs[0].dtype != call.inputs[1].dtype || !is_float(call.inputs[0].dtype)) {
    fail("contract: operands have one floating dtype, found ", name(call.inputs[0].dtype), " and ",
         name(call.inputs[1].dtype));
  }
  const Type& like = call.inputs.size() > 2 ? call.inputs[2] : call.inputs[0];
  const auto dtype = dtype_named(call.text("dtype", name(like.dtype)));
  if (!dtype || !is_float(*dtype)) {
    fail("contract: '", call.text("dtype", name(like.dtype)), "' is no floating dtype");
  }
  Type out{.dtype = *dtype};
  for (const char c : l.c) {
    const auto found = axes.find(c);
    if (found == axes.end()) fail("contract: '", c, "' of the result is in no operand");
    out.axes.push_back(found->second);
  }
  if (call.inputs.size() == 3 &&
      (!same_shape(call.inputs[2], out) || call.inputs[2].dtype != out.dtype)) {
    fail("contract: the addend must be ", to_string(out), " as the result is, found ",
         to_string(call.inputs[2]));
  }
  return {out};
}

int64_t flops(const OpCall& call) {
  const ProductLetters l = letters(call);
  int64_t product = 2;
  for (size_t i = 0; i < l.a.size(); ++i) {
    product = product_of({product, call.inputs[0].dim(static_cast<int>(i))});
  }
  for (size_t i = 0; i < l.b.size(); ++i) {
    if (l.a.find(l.b[i]) != std::string::npos) continue;
    product = product_of({product, call.inputs[1].dim(static_cast<int>(i))});
  }
  return product;
}

void grad(GradCall& g) {
  const ProductLetters l = letters(g.call);
  const auto give = [&](int i, const std::string& mine, const std::string& other, Value with) {
    if (!g.wants[i]) return;
    Attrs attrs = {{"map", l.c + "," + other + "->" + mine}};
    if (g.call.inputs[i].dtype != g.builder.type(g.dout()).dtype) {
      attrs["dtype"] = std::string(name(g.call.inputs[i].dtype));
    }
    g.input_grads[i] = g.builder.emit("contract", {g.dout(), with}, std::move(attrs));
  };
  // The second operand is mostly the weight: its gradient first, so that the activation it reads
  // can go.
  give(1, l.b, l.a, g.inputs[0]);
  give(0, l.a, l.b, g.inputs[1]);
  if (g.inputs.size() > 2 && g.wants[2]) g.input_grads[2] = g.dout();
}

// The addend must be added once, so nothing may be summed in pieces beside it.
IndexMap index_map(const OpCall& call) {
  const ProductLetters l = letters(call);
  IndexMap map{{l.a, l.b}, {l.c}};
  if (call.inputs.size() < 3) return map;
  map.inputs.push_back(l.c);
  for (const char c : l.a + l.b) {
    if ((l.c + map.whole).find(c) == std::string::npos) map.whole += c;
  }
  return map;
}

std::vector<Sample> samples() {
  const auto with = [](Type a, Type b, const char* map) {
    return Sample{.inputs = {std::move(a), std::move(b)}, .attrs = {{"map", std::string(map)}}};
  };
  const auto plus = [](Type a, Type b, const Type& addend, const char* map) {
    return Sample{.inputs = {std::move(a), std::move(b), addend},
                  .attrs = {{"map", std::string(map)}}};
  };
  return {with(of({3, 5}), of({5, 7}), "mk,kn->mn"),
          with(of({2, 3, 5}), of({7, 5}), "bsi,oi->bso"),
          with(of({2, 3, 7}), of({2, 3, 5}), "bso,bsi->oi"),
          with(of({2, 3, 2, 5}), of({2, 4, 2, 5}), "bihd,bjhd->bhij"),
          with(of({1, 1}), of({1, 1}), "mk,kn->mn"),
          with(of({1, 5}), of({7, 5}), "mk,nk->mn"),
          with(of({3, 1}), of({3, 33}), "km,kn->mn"),
          plus(of({2, 3, 7}), of({2, 3, 5}), of({7, 5}), "bso,bsi->oi"),
          plus(of({2, 3, 2, 5}), of({2, 4, 2, 5}), of({2, 2, 3, 4}), "bihd,bjhd->bhij")};
}

std::vector<Sample> refused() {
  const auto with = [](Type a, Type b, const char* map) {
    return Sample{.inputs = {std::move(a), std::move(b)}, .attrs = {{"map", std::string(map)}}};
  };
  return {with(of({3, 5}), of({6, 7}), "mk,kn->mn"),
          with(of({3, 5}), of({5, 7}), "mk,kn->mz"),
          with(of({3, 5}), of({5}), "mk,kn->mn"),
          with(of({3, 5}), of({5, 7}), "mk-kn"),
          with(of({3, 5}), of({5, 7}, Dtype::kBF16), "mk,kn->mn"),
          {.inputs = {of({3, 5}), of({5, 7}), of({3, 7}, Dtype::kI32)},
           .attrs = {{"map", std::string("mk,kn->mn")}}},
          {.inputs = {of({3, 5}), of({5, 7}), of({3, 7}, Dtype::kBF16)},
           .attrs = {{"map", std::string("mk,kn->mn")}, {"dtype", std::string("f32")}}},
          {.inputs = {of({3, 5}), of({5, 7}), of({7, 3})},
           .attrs = {{"map", std::string("mk,kn->mn")}}}};
}

}  // namespace

extern const OpDef op_contract = {
    .name = "contract",
    .summary =
        "a product of two objects summed over the axes that the result lacks, plus an addend",
    .params = {{"a"}, {"b"}, {"map", Param::Kind::kWord}},
    .infer = infer,
    .index_map = index_map,
    .flops = flops,
    .grad = grad,
    .one_dtype = true,
    .says_dtype = true,
    .multiplies = true,
    .may_overwrite = {{0, 2}},
    .linear =
        [](const OpCall& call) { return call.inputs.size() == 2 ? Linear::kEach : Linear::kNo; },
    .cost = CostClass::kProducts,
    .addend = 2,
    .rounds_operands = true,
    .samples = samples,
    .refused = refused,
};

}  // namespace adjoint
