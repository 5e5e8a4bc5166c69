// An optimizer as people write it: what it keeps of a parameter, and what it does with it, in the
// models' own notation. optimizer_text.cpp reads it, parameter_facts.cpp chooses the case of a
// parameter, and text_update.cpp elaborates its update.
//   # Lion (Chen et al., 2023): the sign of a mix of momentum and gradient.
//   optimizer lion(beta1 = 0.9, beta2 = 0.99):
//     state m like p
//     p = p - rate*(sign(beta1*m + (1 - beta1)*g) + decay*p)
//     m = beta2*m + (1 - beta2)*g
// Names: p is the parameter, g its gradient, divided and clipped; rate and decay are the run's;
// step counts 1, 2, ... the steps that were taken. What a state or p was assigned last is carried.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "functors/arguments.h"
#include "functors/step_options.h"
#include "ops/builder.h"

namespace adjoint {

// state m like p; state rows like mean(p, -1) = 0.1: the shape of a term, and the value at first.
struct OptimizerState {
  std::string name;
  Term like;
  std::optional<Term> start = {};  // none: 0
  Position at = {};
};

struct OptimizerRule {
  std::vector<OptimizerState> states = {};
  std::vector<Statement> body = {};
};

// when CONDITION: a rule; otherwise: a rule; otherwise adamw
struct OptimizerCase {
  std::optional<Term> when = {};  // none: otherwise
  OptimizerRule rule = {};
  std::string instead = {};  // another optimizer, as it is called
  Position at = {};
};

struct OptimizerText {
  std::string file, name, summary;
  std::vector<FunctorParam> params = {};
  std::vector<Box> boxes = {};
  OptimizerRule always = {};
  std::vector<OptimizerCase> cases = {};  // the first that holds; none: there is one rule for all
};

OptimizerText parse_optimizer(std::string_view text, std::string_view file);

// Those that come with Adjoint, inside the program (scripts/embed_texts.py).
struct OptimizerFile {
  std::string_view name, text;
};
std::span<const OptimizerFile> optimizer_files();
std::vector<std::string> known_optimizers();  // ops, then texts

// One that was named, with its numbers: an op, or a text.
struct Optimizer {
  std::string name;
  std::vector<FunctorParam> params;  // what it can be told
  const OpDef* op = nullptr;
  std::shared_ptr<const OptimizerText> text = {};
  Arguments args;
  OptimizerRule rule = {};  // of a text, once it is known for which parameter
};

// adamw, lion(beta1=0.95), my.optimizer(steps=3). The numbers of an op are the run's unless said.
Optimizer find_optimizer(const std::string& call, const StepOptions& options);
// A call with the file that it names, if it does, replaced by what `renamed` says.
std::string with_optimizer_file(const std::string& call,
                                const std::function<std::string(const std::string&)>& renamed);

// What a text may ask about the parameter: matrix(p), readout(p).
using ParameterIs = std::function<bool(std::string_view word)>;
std::vector<std::string> parameter_facts();

// The optimizer for one parameter: a text's case that holds for it, or the one named in its stead.
Optimizer optimizer_for(Optimizer optimizer, const Type& parameter, const ParameterIs& is,
                        const StepOptions& options);

struct ParameterUpdate {
  Value parameter = 0, gradient = 0;  // of the sum, as it was computed
  Value rate = 0, factor = 0, ok = 0;
  double decay = 0;
  ParameterIs is = {};
  std::function<Value()> steps = {};  // taken so far, asked for where the text speaks of them
};

// Emits the update of a text's rule, with its states and carries. What is computed element by
// element becomes one `map` per shape, which overwrites state in place as an optimizer's op does.
void update_by_text(Builder& builder, const Optimizer& optimizer, const ParameterUpdate& update);

}  // namespace adjoint
