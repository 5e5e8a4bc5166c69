// frozen matrix W  ->  W as int8, int4 or nf4 codes with scales, dequantized where it is read.
// Memory of frozen weights falls from 32 bits an element to 8 or 4 and the scales' share; each
// phase that reads a matrix spends one pass over it.
#include "ops/quantize.h"

#include <numeric>

#include "analysis/roles.h"
#include "functors/functor.h"

namespace adjoint {

namespace {

CodeFormat format_of(const Arguments& args) {
  CodeFormat format;
  format.kind = code_kind(args.word("format")).value();
  const std::string per = args.word("per");
  if (per == "channel") format.per = CodeFormat::Per::kChannel;
  if (per == "group") {
    format.per = CodeFormat::Per::kGroup;
    format.group = args.whole("group");
  }
  return format;
}

Scheme apply(Scheme scheme, Application& application) {
  const std::vector<ParameterKind> kinds = parameter_kinds(scheme);
  const CodeFormat format = format_of(application.args);
  std::vector<Value> matrices;
  int64_t common = 0;  // what divides every row
  for (const Value in : scheme.inputs) {
    const Object& object = scheme[in];
    if (object.role != Role::kParameter || !object.frozen) continue;
    if (!is_float(object.type.dtype)) continue;  // a codebook's indices are codes already
    if (kinds[in] != ParameterKind::kMatrix) continue;
    matrices.push_back(in);
    common = std::gcd(common, object.type.dim(-1));
  }
  if (matrices.empty()) {
    application.refuse("nothing is frozen; add lora or freeze");
  }
  for (const Value v : matrices) {
    const Object& object = scheme[v];
    const int64_t row = object.type.dim(-1);
    if (!fits(row, format)) {
      if (row % codes_per_byte(format.kind)) {
        application.refuse("'", to_string(object.source), "' has rows of ", row, ", and ",
                           name(format.kind), " packs two codes a byte; use int8");
      }
      application.refuse("groups of ", format.group, " do not divide the rows of '",
                         to_string(object.source), "', which are ", row,
                         " long; the nearest group that fits every matrix is ",
                         nearest_group(common, format));
    }
    application.say(scheme, v, "precision", to_string(format));
    scheme[v].attributes.precision = to_string(format);
  }
  return scheme;
}

}  // namespace

extern const Functor functor_quantize = {
    .name = "quantize",
    .summary = "frozen matrices as int8, int4 or nf4 codes with scales",
    .law = Law::kApproximating,
    .params = {{.name = "format",
                .summary = "8 or 4 bits an element; nf4 has its 16 levels at quantiles of a normal "
                           "distribution",
                .words = {"int8", "int4", "nf4"},
                .least = 1,
                .most = 0},
               {.name = "per",
                .otherwise = "group",
                .summary = "what shares a scale",
                .words = {"tensor", "channel", "group"},
                .least = 1,
                .most = 0},
               {.name = "group",
                .otherwise = "64",
                .summary = "neighbours of a row that share a scale, with per=group"}},
    .rules = {{FunctorPhase::kStepRules, apply}},
};

}  // namespace adjoint
