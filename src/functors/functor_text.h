// A functor as people write it, with rules or as a stack of others. functor_text.cpp reads it,
// text_rules.h applies its rules, stack.cpp expands its stack.
//   functor qlora(rank = 16) = quantize(nf4) | lora(rank) | bf16 | checkpoint(block)
//
//   # what it does, and why
//   functor lora(rank = 16, alpha = 2*rank: number, on = all: all | attention | feed_forward):
//     law approximating
//     elsewhere low_rank_adapters
//     let scale = alpha/rank
//     require rank <= 1024, else "rank {rank} is too large"
//     object parameter -> frozen unless made or trained
//     mesh data = n
//     order by schedule in chunks chunks
//     object input -> sharded along samples over data
//     object x_l in chain -> kept when l mod every == 0, else recomputed
//     object x_l in chain -> kept when l == 2, or refuse "{other} keeps the states {kept}"
//     object parameter inside chain -> frozen when l < L/2 and not l in keep
//     object parameter made here as lora_b -> rate 16 and decay 0
//     morphism y = linear(x, W) where parameter(W), inside chain, on when l >= L - last
//       expect rank <= width(x), else "rank={rank} is more than the width {width(x)}"
//       A = param(rank, width(x), init=uniform(1/sqrt(width(x))))
//       B = param(width(y), rank)
//       -> y(x, W + scale * contract(B, A, "or,ri->oi"))
#pragma once
#include <optional>

#include "functors/functor.h"
#include "scheme/document.h"

namespace adjoint {

// One word of a selector: activation, of parameter, inside block, not frozen; parameter(W) where it
// speaks of an operand.
struct Clause {
  enum class Kind : uint8_t { kIs, kOf, kInside, kOutside, kChainState, kMade, kMadeHere };
  Kind kind = Kind::kIs;
  std::string word = {};  // of `made here as lora_b` the name, which may be ""
  std::string variable = {};
  bool negated = false;
  Position at = {};
};

struct AttributeValue {
  // residence, precision, tier, frozen, parts, parts again, stage, sums, placement/data; rate,
  // decay, optimizer, clipped
  std::string attribute;
  std::string word;               // kept, bf16, host, sgd, sharded, ...
  std::vector<Term> number = {};  // of parts, rate, decay and stage
  Position at = {};
  std::string along = {};  // of a shard: which axis of the object it is of; "": its first
};
// Of an attribute that is a placement: the axis of the mesh. "" of any other.
std::string_view mesh_axis_of(const AttributeValue& value);
// What axes of objects are called where they are sharded.
std::vector<std::string> axis_words();
std::string print(const AttributeValue& value);

// l mod k == 0, l in keep, on == all, number(every), and these joined by `not`, `and`, `or` and
// brackets; none: always.
using Condition = std::optional<Term>;

struct Choice {
  std::vector<AttributeValue> values = {};  // rate 0.1 and decay 0
  Condition when = {};
};

// What a rule leaves alone: what functors of the stack made, and what another one says of it.
struct Exceptions {
  bool made_here = false, made = false;  // by this functor, by any
  // frozen unless trained, trained unless frozen, kept unless recomputed: as another one says
  bool yields = false;
};

struct ObjectRule {
  std::vector<Clause> selector;
  std::string index = {};  // l of x_l: the number of a state
  bool by_block = false;   // it speaks of l, the block in which an object is
  std::vector<Choice> choices;
  Exceptions unless = {};
  std::string refusal = {};  // what it says where another functor says otherwise; "": the usual
  Position at = {};
};

// require k <= L, else "..."
struct Requirement {
  Term condition;
  std::string message;
};

struct MorphismRule {
  std::string result, op;
  std::vector<std::string> operands;
  std::vector<Clause> where = {};
  Condition when = {};
  bool by_block = false;                       // it speaks of l, the block in which the use is
  std::vector<Requirement> expectations = {};  // a use that is otherwise is told of
  std::vector<Statement> statements = {};
  Term replacement;
  Position at = {};
};

// state average of trained -> d*average + (1 - d)*parameter: carried from step to step. A rule that
// rewrites uses may read one as `mask(W)`: state mask of parameter = 1 every 10 -> ...
struct StateRule {
  std::string name;
  std::vector<Clause> selector = {};
  std::vector<Term> begins = {};  // = 1; none: zeros
  std::vector<Term> every = {};   // every 10; none: after each step
  bool by_block = false;
  std::vector<Statement> statements = {};
  Term value = {};
  Position at = {};
};

struct Let {
  std::string name;
  std::vector<std::pair<Term, Condition>> choices;
};

// mesh data = n: the ranks that work together, and how many.
struct MeshRule {
  std::string axis;
  Term size;
  Position at = {};
};

// order by 1f1b in chunks chunks: in which order a rank works through parts and chunks.
struct OrderRule {
  std::string word;  // a schedule, or a parameter that is one
  Term chunks = {.number = 1};
  Position at = {};
};

// Where a line of the text stands, which may go on over several: its kind is the word that it
// begins with, and `index` its number among its kind. A rule has what is left and right of its
// arrow.
struct FunctorLine {
  std::string kind;
  size_t index = 0;
  TextSpan span = {}, left = {}, right = {};
};
struct ParamPlace {
  TextSpan whole = {}, otherwise = {};
};

struct FunctorText {
  std::string file, name, summary;
  Law law = Law::kExact;
  bool says_law = false;
  std::optional<Term> against = {};  // law exact against data_parallel(reduce=part) when stage >= 2
  Condition against_when = {};
  std::vector<std::string> elsewhere = {};  // what other programs call it
  bool by_default = false;
  std::vector<FunctorParam> params = {};
  std::vector<StackPart> parts = {};
  std::vector<Let> lets = {};
  std::vector<Requirement> requirements = {};
  std::vector<MeshRule> mesh = {};
  std::optional<OrderRule> order = {};
  std::vector<ObjectRule> objects = {};
  std::vector<MorphismRule> morphisms = {};
  std::vector<StateRule> states = {};
  std::vector<FunctorLine> lines = {};
  std::vector<ParamPlace> param_places = {};  // one for each of params
  Position head_end = {};                     // behind the colon, or the last part of a stack
};

// The block in which an object or a use is, in rules that have no other number of this name.
constexpr std::string_view kBlockNumber = "l";
// 1 where a scheme is trained, 0 where it is evaluated, in conditions of rules that rewrite uses.
constexpr std::string_view kTraining = "training";
// In rules about states: the parameter after its update, and how many steps were taken before.
constexpr std::string_view kParameterAfter = "parameter", kStepsTaken = "steps";

FunctorText parse_functor_text(std::string_view text, std::string_view file);

// The rules of a text at work (text_rules.cpp).
Functor functor_of(FunctorText text);

// Of a text; mistakes name file, line and column.
Functor parse_functor(std::string_view text, std::string_view file);

}  // namespace adjoint
