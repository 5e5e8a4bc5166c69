#include "laws/later_tokens.h"

#include <algorithm>
#include <set>

#include "analysis/graph.h"
#include "analysis/spread.h"
#include "base/text.h"
#include "functors/pipeline.h"
#include "functors/reference.h"
#include "laws/compare.h"
#include "laws/shrink.h"
#include "ops/loss_count.h"

namespace adjoint {

namespace {

// Lengths that are tried: a text may shift by more than a few positions. They are no size of
// anything else in a copy.
constexpr int64_t kContexts[] = {7, 19, 35, 67, 131};
const ShrinkWish kCopy = {.width = 32, .repeats = 8, .batch = 2, .vocab = 23, .dropout = 0};

// Whether positions pass through every call one by one, or through attentions that see none behind
// their own. Then nothing needs to be run.
bool takes_positions_in_turn(const Scheme& scheme, const std::set<std::string>& targets) {
  std::vector<Share> shares(scheme.objects.size());
  for (const Value in : scheme.inputs) {
    const Object& object = scheme[in];
    const bool read = object.role == Role::kInput && !targets.count(object.source.path);
    if (read && object.type.rank() > 1) shares[in] = piece_along(1);
  }
  for (const Morphism& m : scheme.morphisms) {
    std::vector<Share> comes;
    for (const Value in : m.inputs) comes.push_back(shares[in]);
    const auto is_piece = [](const Share& share) { return share.is_piece(); };
    if (std::none_of(comes.begin(), comes.end(), is_piece) || is_loss_term(m)) continue;
    const OpCall call = call_of(scheme, m);
    if (op_named(m.op).attends && call.integer("causal", 0) != 0) {
      shares[m.outputs[0]] = piece_along(1);
      continue;
    }
    const CallShares all = share_call(call, comes, m.outputs.size());
    for (size_t k = 0; k < comes.size(); ++k) {
      if (comes[k].is_piece() && !(all.wants[k] == comes[k])) return false;
    }
    for (size_t k = 0; k < m.outputs.size(); ++k) {
      if (all.gives[k].is_piece()) shares[m.outputs[k]] = all.gives[k];
    }
  }
  return true;
}

// What the rows of the losses are of: logits, or values that are averaged over targets that are fed
// as they are.
std::set<std::string> rows_of_losses(const Scheme& scheme, const std::set<std::string>& targets) {
  std::vector<bool> from_others(scheme.objects.size());
  for (const Value in : scheme.inputs) {
    from_others[in] = scheme[in].role == Role::kInput && !targets.count(scheme[in].source.path);
  }
  std::set<std::string> rows;
  for (const Morphism& m : scheme.morphisms) {
    const bool others =
        std::any_of(m.inputs.begin(), m.inputs.end(), [&](Value in) { return from_others[in]; });
    for (const Value out : m.outputs) from_others[out] = others;
    if (!is_loss_term(m)) continue;
    const auto count = loss_count(m);
    const bool whole = op_named(m.op).loss || (count && !from_others[count->targets]);
    if (whole) rows.insert(to_string(scheme[m.inputs[0]].source));
  }
  return rows;
}

// The sources of calls that these objects are made of, with their ops.
std::set<std::string> calls_behind(const Scheme& scheme, const std::set<std::string>& sources) {
  std::vector<bool> wanted(scheme.objects.size());
  for (size_t v = 0; v < wanted.size(); ++v) {
    wanted[v] = sources.count(to_string(scheme.objects[v].source)) > 0;
  }
  std::set<std::string> calls;
  for (size_t i = scheme.morphisms.size(); i-- > 0;) {
    const Morphism& m = scheme.morphisms[i];
    if (std::none_of(m.outputs.begin(), m.outputs.end(), [&](Value v) { return wanted[v]; })) {
      continue;
    }
    for (const Value in : m.inputs) wanted[in] = true;
    for (const Value out : m.outputs) calls.insert(to_string(scheme[out].source));
  }
  return calls;
}

// Whether the first positions differ, of something that has samples and positions.
bool differs_before(const Node& a, const Node& b, int64_t batch, int64_t context, int64_t before) {
  if (a.sizes.size() < 2 || a.sizes[0] != batch || a.sizes[1] != context) return false;
  const auto row = static_cast<int64_t>(a.numbers.size()) / (batch * context);
  for (int64_t sample = 0; sample < batch; ++sample) {
    const auto begin = a.numbers.begin() + sample * context * row;
    const auto other = b.numbers.begin() + sample * context * row;
    if (!same_bits({begin, begin + before * row}, {other, other + before * row})) return true;
  }
  return false;
}

// The line of the call that made a source, or what is under it; 0: no call of the text.
int line_of(const Scheme& forward, const Written& written, std::string path) {
  path.resize(std::min(path.size(), path.find(':')));
  size_t longest = 0;
  int line = 0;
  for (size_t i = 0; i < forward.morphisms.size() && i < written.calls.size(); ++i) {
    const std::string& at = forward.morphisms[i].source.path;
    const bool holds = path == at || path.starts_with(at + ".") || at.starts_with(path + ".");
    if (!holds || std::min(at.size(), path.size()) < longest || written.calls[i].from.line == 0) {
      continue;
    }
    longest = std::min(at.size(), path.size());
    line = written.calls[i].from.line;
  }
  return line;
}

// The inputs that losses count by and no table is looked up by: tokens may be both.
std::set<std::string> targets_of(const Scheme& forward) {
  std::vector<bool> looked_up(forward.objects.size());
  for (size_t i = forward.morphisms.size(); i-- > 0;) {
    const Morphism& m = forward.morphisms[i];
    const bool leads =
        std::any_of(m.outputs.begin(), m.outputs.end(), [&](Value out) { return looked_up[out]; });
    for (const Value in : m.inputs) {
      if (leads && !is_float(forward[in].type.dtype)) looked_up[in] = true;
    }
    if (op_named(m.op).table >= 0) looked_up[m.inputs[0]] = true;
  }
  std::set<std::string> targets;
  for (const auto& [path, value] : ignored_values(forward)) targets.insert(path);
  for (const Value in : forward.inputs) {
    if (looked_up[in]) targets.erase(forward[in].source.path);
  }
  return targets;
}

std::optional<std::string> look_at(const BoundModel& copy, const Stack& stack,
                                   const StepOptions& options) {
  Written written;
  const Scheme forward = copy.forward(written);
  const Scheme scheme = evaluation_scheme(forward, stack, options);
  const std::set<std::string> targets = targets_of(forward);
  const std::set<std::string> rows = rows_of_losses(scheme, targets);
  if (rows.empty()) return std::nullopt;
  const Scheme reference = to_reference(scheme);
  const InputRanges ranges = input_ranges(forward);
  TraceOptions once{.steps = 1, .reference = true, .nodes_of = 0, .not_other = targets};
  const Trace as_it_is = trace_run(reference, ranges, once);
  const int64_t before = copy.context() / 2;
  once.other_from = before;
  const Trace otherwise = trace_run(reference, ranges, once);
  CHECK(as_it_is.nodes.size() == otherwise.nodes.size(), "one scheme has the same calls twice");
  const auto differs = [&](size_t i) {
    return differs_before(as_it_is.nodes[i], otherwise.nodes[i], copy.batch(), copy.context(),
                          before);
  };
  std::set<std::string> late;
  for (size_t i = 0; i < as_it_is.nodes.size(); ++i) {
    if (rows.count(as_it_is.nodes[i].source) && differs(i)) late.insert(as_it_is.nodes[i].source);
  }
  if (late.empty()) return std::nullopt;
  const std::set<std::string> behind = calls_behind(reference, late);
  for (size_t i = 0; i < as_it_is.nodes.size(); ++i) {
    const std::string& source = as_it_is.nodes[i].source;
    if (!behind.count(source) || !differs(i)) continue;
    const int line = line_of(forward, written, source);
    return join_parts("'", source, "'",
                      line > 0 ? join_parts(" (", copy.text().file, ":", line, ")") : "",
                      " reads later positions, so that the loss of a position depends on tokens "
                      "behind it, which nobody has when text is generated; right for an encoder, "
                      "else a mistake");
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> doubt_about_later_tokens(const BoundModel& model,
                                                    const nlohmann::json& set, const Stack& stack,
                                                    const StepOptions& options) {
  Stack named = stack;
  std::erase_if(named.functors, [](const StackedFunctor& f) { return f.by_default; });
  StepOptions alone = options;
  alone.on_mesh = false;
  alone.target = Target::kCpu;
  try {
    const Scheme whole = model.forward(1, model.context());
    if (takes_positions_in_turn(evaluation_scheme(whole, named, alone), targets_of(whole))) {
      return std::nullopt;
    }
  } catch (const Error&) {  // a stack that is refused, which somebody else says
    return std::nullopt;
  }
  for (const int64_t context : kContexts) {
    ShrinkWish wish = kCopy;
    wish.context = context;
    try {
      return look_at(shrunken(model, set, wish), named, alone);
    } catch (const Error&) {  // the text wants more positions
    }
  }
  return std::nullopt;
}

}  // namespace adjoint
