#include "train/saved_parameters.h"

#include <algorithm>

#include "analysis/structure.h"
#include "base/error.h"
#include "device/parallel.h"
#include "functors/evaluation.h"
#include "functors/pipeline.h"
#include "ops/op_def.h"
#include "run/parameters.h"
#include "run/run.h"

namespace adjoint {

namespace {

// Adds dequantized matrices, decoded by the run's own scheme.
void add_decoded(const Scheme& evaluation, const SavedModel& saved, SavedValues& parameters) {
  const std::vector<int> made_by = producers(evaluation);
  for (Morphism m : evaluation.morphisms) {
    if (!op_named(m.op).decodes) continue;
    for (Value& in : m.inputs) in = before_moves(evaluation, made_by, in);
    Scheme one = evaluation;
    one.morphisms = {m};
    one.inputs = m.inputs;
    one.outputs = m.outputs;
    one.carries.clear();
    one = compact(std::move(one));
    Run run(one, make_plan(one, {.threads = num_threads()}));
    for (const Value in : one.inputs) {
      const SafetensorView* view = saved.file().find(to_string(one[in].source));
      CHECK(view, "the save fits the evaluation");
      run.write(in, view->data);
    }
    run.step();
    Source source = evaluation[m.inputs[0]].source;
    const size_t dot = source.facet.rfind('.');
    source.facet.resize(dot == std::string::npos ? 0 : dot);
    parameters[to_string(source)] = run.values(one.outputs[0]);
  }
}

}  // namespace

SavedValues saved_values(const SavedModel& saved, const Scheme& evaluation) {
  SavedValues parameters;
  for (const SafetensorView& view : saved.file().tensors()) {
    if (view.dtype == "I8" || view.dtype == "U8") continue;  // decoded below
    const std::vector<float> numbers = saved.floats(view.name);
    parameters[view.name] = {numbers.begin(), numbers.end()};
  }
  add_decoded(evaluation, saved, parameters);
  for (const Book& book : books_in(evaluation)) {
    const SafetensorView* view = saved.file().find(to_string(evaluation[book.indices].source));
    CHECK(view, "the save fits the evaluation");
    const auto* const indices = static_cast<const uint8_t*>(view->data);
    const std::vector<double>& centres = parameters.at(to_string(evaluation[book.centres].source));
    const int64_t group = evaluation[book.indices].type.dim(-1);
    const int64_t k = evaluation[book.centres].type.dim(-1);
    std::vector<double> matrix(view->size.count);
    for (size_t i = 0; i < matrix.size(); ++i) {
      matrix[i] = centres[static_cast<int64_t>(i) / group * k + indices[i]];
    }
    parameters[to_string(book.source)] = std::move(matrix);
  }
  return parameters;
}

namespace {

bool is_codes(const SafetensorView& tensor) { return tensor.dtype == "I8" || tensor.dtype == "U8"; }

const Encoded* codes_of(const std::vector<Encoded>& all, const Source& source) {
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Encoded& e) { return e.source == source; });
  return found == all.end() ? nullptr : &*found;
}

// What a book stands for is the model's own, as what codes stand for is.
std::vector<Value> parts_of_matrices(const Scheme& held) {
  std::vector<Value> parts;
  for (const Encoded& e : encoded_parameters(held)) parts.insert(parts.end(), {e.codes, e.scales});
  for (const Book& book : books_in(held)) parts.insert(parts.end(), {book.indices, book.centres});
  return parts;
}

}  // namespace

Scheme held_by(const SavedModel& saved, const Scheme& forward, const StepOptions& step) {
  const auto& tensors = saved.file().tensors();
  const bool has_codes = std::any_of(tensors.begin(), tensors.end(), is_codes);
  Scheme held = has_codes ? evaluation_scheme(forward, parse_stack(step.stack), step)
                          : without_randomness(forward);
  saved.check_fits(held);
  return held;
}

void give_parameters(const SavedModel& saved, const Scheme& held, const Scheme& plain, Run& run) {
  const std::vector<Value> parts = parts_of_matrices(held);
  for (const Value v : held.inputs) {
    const Object& o = held[v];
    const bool part = std::find(parts.begin(), parts.end(), v) != parts.end();
    if (o.role != Role::kParameter || part || plain.find(o.source)) continue;
    fail(saved.path().string(), ": this is a save of another model: it has '", to_string(o.source),
         "', which this model lacks");
  }
  take_parameters(saved, held, plain, run);
}

void take_parameters(const SavedModel& saved, const Scheme& held, const Scheme& plain, Run& run) {
  const std::vector<Encoded> theirs = encoded_parameters(held),
                             ours = encoded_parameters(run.scheme());
  SavedValues values;  // decoded, once somebody asks
  for (const Value v : plain.inputs) {
    if (plain[v].role != Role::kParameter) continue;
    const Source& source = plain[v].source;
    if (another_stage_holds(run.scheme(), source)) continue;
    const std::string name = to_string(source);
    const Encoded *const from = codes_of(theirs, source), *const to = codes_of(ours, source);
    if (from && to && to->format == from->format) {
      for (const auto& [here, there] :
           {std::pair(to->codes, from->codes), std::pair(to->scales, from->scales)}) {
        const void* const whole = saved.file().find(to_string(held[there].source))->data;
        is_sharded(run.scheme()[here]) ? run.write_piece(here, whole) : run.write(here, whole);
      }
    } else if (saved.file().find(name)) {
      write_parameter(run, source, saved.floats(name));
    } else {
      if (values.empty()) values = saved_values(saved, held);
      const std::vector<double>& numbers = values.at(name);
      write_parameter(run, source, std::vector<float>(numbers.begin(), numbers.end()));
    }
  }
}

}  // namespace adjoint
