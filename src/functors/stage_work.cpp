// Which rank makes which call of a step, and in which slots: found once for the whole step, from
// the stages of its objects and the pass to which its calls belong.
#include "functors/stage_work.h"

#include <algorithm>

#include "analysis/stages.h"
#include "analysis/structure.h"
#include "base/error.h"
#include "base/text.h"
#include "functors/stage_schedule.h"
#include "ops/op_def.h"

namespace adjoint {

StageWork::StageWork(const Scheme& scheme)
    : scheme(scheme),
      schedule(schedule_of(scheme)),
      holder(holder_of(schedule)),
      made_by(producers(scheme)),
      work(scheme.morphisms.size(), Work::kAnywhere),
      home(scheme.morphisms.size(), -1),
      loop_in(scheme.objects.size(), -1),
      loop_out(scheme.objects.size(), -1) {
  for (const Carry& c : scheme.loop) loop_out[c.in] = c.out, loop_in[c.out] = c.in;
  find_work();
  make_again_where_it_is_read();
  find_weights();
  keep_sums_together();
  find_destinations();
}

int StageWork::stage_of(const Morphism& m) const {
  int stage = 0;
  for (const Value out : m.outputs) stage = std::max(stage, scheme[out].attributes.stage);
  return stage;
}

void StageWork::find_work() {
  chunk.assign(scheme.morphisms.size(), -1);
  std::vector<bool> learned(scheme.objects.size(), false), late = learned;
  std::vector<int> stage(scheme.objects.size(), 0);
  for (const Value in : scheme.inputs) learned[in] = scheme[in].role == Role::kParameter;
  for (const Carry& c : scheme.loop) learned[c.in] = false;
  // An accumulator that grows with what depends on parameters does so itself.
  for (bool changed = true; changed;) {
    changed = false;
    for (const Morphism& m : scheme.morphisms) {
      bool any = false;
      for (const Value in : m.inputs) any = any || learned[in];
      for (const Value out : m.outputs) {
        if (any && !learned[out]) learned[out] = changed = true;
      }
    }
    for (const Carry& c : scheme.loop) {
      if (learned[c.out] && !learned[c.in]) learned[c.in] = changed = true;
    }
  }
  const std::vector<bool> of_data = depends_on_data(scheme);
  // What stands before the last call of the forward pass is of it: the gradients of a readout in
  // chunks, each of which is done before the next.
  size_t last_forward = 0;
  for (size_t i = 0; i < scheme.morphisms.size(); ++i) {
    const Morphism& m = scheme.morphisms[i];
    const bool is_bound = m.section == Section::kBody && learned[m.outputs[0]];
    if (is_bound && m.phase == Phase::kForward && m.epoch == 0) last_forward = i;
  }
  for (size_t i = 0; i < scheme.morphisms.size(); ++i) {
    const Morphism& m = scheme.morphisms[i];
    int own = stage_of(m);
    if (m.section == Section::kEpilogue) {
      work[i] = Work::kAfter;
      if (own > 0) home[i] = holder[own - 1];
      continue;
    }
    const bool any =
        std::any_of(m.outputs.begin(), m.outputs.end(), [&](Value v) { return learned[v]; });
    if (m.section == Section::kPrologue || !any) continue;
    bool waits = (m.phase == Phase::kBackward && i > last_forward) || m.epoch > 0;
    for (const std::vector<Value>* values : {&m.inputs, &m.after}) {
      for (const Value v : *values) waits = waits || late[v];
    }
    // Made of parameters that lie on several stages, and of no data: a copy or a gathered whole.
    if (own == 0 && !of_data[m.outputs[0]]) continue;
    if (own == 0) {  // made by a functor that says nothing: beside its operands
      for (const Value in : m.inputs) own = std::max(own, stage[in]);
      own = std::max(own, 1);
    }
    CHECK(own <= schedule.chunks, "a stage of the pipeline: " + to_string(m.source));
    for (const Value out : m.outputs) late[out] = waits, stage[out] = own;
    work[i] = waits ? Work::kBackward : Work::kForward;
    chunk[i] = own - 1;
    home[i] = holder[own - 1];
  }
}

// What is made again or fetched from another tier is so where it is read: of the state between
// two stages, say, whatever is gathered for the second one's backward pass.
void StageWork::make_again_where_it_is_read() {
  const std::vector<std::vector<int>> read_by = readers(scheme);
  for (size_t i = scheme.morphisms.size(); i-- > 0;) {
    const Morphism& m = scheme.morphisms[i];
    if (chunk[i] < 0 || (m.epoch == 0 && !op_named(m.op).moves)) continue;
    std::set<int> wanted;
    for (const Value out : m.outputs) {
      for (const int reader : read_by[out]) wanted.insert(chunk[reader]);
    }
    if (wanted.size() != 1 || *wanted.begin() < 0) continue;
    chunk[i] = *wanted.begin();
    home[i] = holder[chunk[i]];
  }
}

// Calls of the backward pass that give gradients of parameters and nothing else.
void StageWork::find_weights() {
  const std::vector<bool> is_gradient = parameter_gradients(scheme);
  std::vector<bool> read_before(scheme.objects.size(), false);  // by a call that is not one
  for (size_t i = scheme.morphisms.size(); i-- > 0;) {
    const Morphism& m = scheme.morphisms[i];
    if (work[i] == Work::kBackward) {
      const bool weights = std::all_of(m.outputs.begin(), m.outputs.end(),
                                       [&](Value v) { return is_gradient[v] && !read_before[v]; });
      if (weights) work[i] = Work::kWeight;
    }
    if (work[i] == Work::kWeight || m.section != Section::kBody) continue;
    for (const Value in : m.inputs) read_before[in] = true;
  }
}

// Calls through which an accumulator passes on its way through one part, from its last one back.
bool StageWork::find_way(Value v, const Carry& c, std::vector<int>& way) const {
  if (v == c.in) return true;
  const int maker = made_by[v];
  if (maker < 0 || scheme.morphisms[maker].section != Section::kBody) return false;
  way.push_back(maker);
  for (const Value in : scheme.morphisms[maker].inputs) {
    if (scheme[in].type == scheme[c.in].type && find_way(in, c, way)) return true;
  }
  way.pop_back();
  return false;
}

// All of them are in one slot: between two, another part would find the sum half made.
void StageWork::keep_sums_together() {
  for (const Carry& c : scheme.loop) {
    std::vector<int> way;
    if (made_by[c.out] < 0 || chunk[made_by[c.out]] < 0 || !find_way(c.out, c, way)) continue;
    const auto any = [&](Work kind) {
      return std::any_of(way.begin(), way.end(), [&](int i) { return work[i] == kind; });
    };
    const bool apart = any(Work::kWeight) && (any(Work::kBackward) || any(Work::kForward));
    for (const int i : way) {
      CHECK(chunk[i] == chunk[way[0]],
            "an accumulator is of one stage: " + to_string(scheme[c.out].source));
      if (apart && work[i] == Work::kWeight) work[i] = Work::kBackward;
    }
    if (!any(Work::kForward) || !any(Work::kBackward)) continue;
    fail("pipeline: '", to_string(scheme[c.out].source),
         "' is summed partly on the way forward and partly on the way back, which stages cannot; "
         "switch off the functor that does so");
  }
}

void StageWork::find_destinations() {
  for (size_t i = 0; i < scheme.morphisms.size(); ++i) {
    if (chunk[i] < 0) continue;
    for (const Value in : scheme.morphisms[i].inputs) {
      const int from = made_by[in] >= 0 ? home[made_by[in]] : -1;
      if (from < 0 || from == home[i] || !in_body(in)) continue;
      to[in].insert(home[i]);
      // Forward goes along the chunks and backward against them: else two slots would wait for
      // each other.
      const int maker = made_by[in];
      const bool along = chunk[maker] < chunk[i];
      const bool forward = work[maker] == Work::kForward;
      if ((along && forward) ||
          (!along && work[maker] == Work::kBackward && work[i] != Work::kForward)) {
        continue;
      }
      fail("pipeline: ", scheme.morphisms[i].op, " at ", to_string(scheme.morphisms[i].source),
           " reads '", to_string(scheme[in].source), "', which ", along ? "a later" : "an earlier",
           " pass of another stage makes; cut the chain elsewhere (cuts=[...]), or leave out the "
           "functor that moved it");
    }
  }
}

void check_stages(const Scheme& whole) {
  if (has_stages(whole)) StageWork checked(whole);
}

}  // namespace adjoint
