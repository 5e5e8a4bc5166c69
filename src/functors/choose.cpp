// logits  ->  logits and a token that is drawn by them, as the input `choice` says, and which is
// the next step's: a step of one position begins with the token that the last step drew, wherever
// it was drawn, and nobody has to carry it there. A step of several positions is given its tokens.
#include "functors/choose.h"

#include "base/error.h"
#include "functors/functor.h"
#include "ops/builder.h"
#include "ops/choose_token.h"

namespace adjoint {

namespace {

Scheme chosen(Scheme scheme, Application& application) {
  const Value logits = scheme.outputs.empty() ? -1 : scheme.outputs[0];
  Value tokens = -1;
  for (const Value in : scheme.inputs) {
    if (scheme[in].role == Role::kInput && scheme[in].source.path == "tokens") tokens = in;
  }
  if (logits < 0 || tokens < 0 || scheme[logits].type.rank() != 3 ||
      scheme[logits].type.dim(1) != 1) {
    application.refuse("wants tokens, and logits of one position");
  }
  Object next{.type = {Dtype::kI32, {scheme[tokens].type.axes[0], {"seq", 1}}},
              .source = with_facet(scheme[tokens].source, kNextToken),
              .role = Role::kState,
              .init = Init{}};
  const Object of_next = next;
  Value in = tokens;
  if (scheme[tokens].type.dim(1) == 1) {
    scheme[tokens] = std::move(next);
  } else {
    in = scheme.add_input(std::move(next));
  }
  const Value choice = scheme.add_input(
      {.type = {Dtype::kF32, {scheme[tokens].type.axes[0], {"numbers", kChoiceNumbers}}},
       .source = {std::string(kChoice)},
       .role = Role::kInput});
  Builder builder(scheme);
  builder.at(of_next.source, Phase::kForward, Role::kState);
  Attrs attrs;
  if (!application.args.is_word("usable")) attrs["usable"] = application.args.whole("usable");
  const Value token = builder.emit("choose_token", {logits, choice}, std::move(attrs));
  scheme[token].type = of_next.type;
  scheme.carries.push_back({in, token});
  scheme.outputs.push_back(token);
  ++application.matches;
  return scheme;
}

}  // namespace

extern const Functor functor_choose = {
    .name = "choose",
    .summary = "the next token is drawn where the logits are, and is the next step's",
    .law = Law::kExact,
    .params = {{.name = "usable",
                .otherwise = "all",
                .summary = "how many of the logits are of tokens",
                .words = {"all"}}},
    .of_forward = true,
    .rules = {{FunctorPhase::kPositions, chosen}},
};

}  // namespace adjoint
