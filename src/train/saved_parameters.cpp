#include "train/saved_parameters.h"

#include "analysis/structure.h"
#include "base/error.h"
#include "device/parallel.h"
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

}  // namespace adjoint
